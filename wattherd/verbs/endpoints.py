"""`invoke endpoints`: what clients and gateways need to reach what the inventory serves. Reads the inventory only; no host is asked."""

from __future__ import annotations

from collections.abc import Sequence

from wattherd import errors
from wattherd.serving import endpoint
from wattherd.verbs import project, watch


def endpoints(here: project.Project, selection: project.Selection, seen: watch.Watch) -> Sequence[endpoint.Endpoint]:
    """Every endpoint of the selected hosts, in inventory order. Raises `nothing-selected` when they serve nothing."""
    loaded = here.load(selection)
    for words in loaded.warnings:
        seen.warn(words)
    hosts = project.hosts_of(loaded, selection, writes=False)
    trained = {name: entry.context for name, entry in loaded.catalogue.items() if entry.context}
    found = [
        one
        for host in hosts
        for server in host.settings.serve
        for one in endpoint.endpoints(host.name, host.connection.host, server, trained)
    ]
    if not found:
        raise errors.Problem(
            "nothing-selected", "none of these hosts serves a model", hint="list an instance under serve: in its group_vars or host_vars"
        )
    return found
