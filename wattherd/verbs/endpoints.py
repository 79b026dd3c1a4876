"""`invoke endpoints`: what clients and gateways need to reach what the inventory serves, and how much of its context was ever needed.

Without a measurement only the inventory is read and no host is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wattherd import errors, fleet, inventory
from wattherd.serving import endpoint, instance
from wattherd.verbs import access, project, watch
from wattherd.wire import fields


@dataclass(frozen=True, kw_only=True)
class Use:
    """What one server's counters say since its process began; None is unknown. `most_tokens` is the fullest that a slot has been."""

    most_tokens: int | None = None
    processing: int | None = None
    deferred: int | None = None


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


def measured(
    reach: access.Access, selection: project.Selection, found: Sequence[endpoint.Endpoint], seen: watch.Watch
) -> tuple[Mapping[tuple[str, str, str], Use], Mapping[str, errors.Problem]]:
    """(host, instance, model) -> use, and the hosts that could not be asked. A model that is not loaded has no row: asking loads it."""
    loaded = reach.project.load(selection)
    hosts = {name: loaded.host(name) for name in dict.fromkeys(one.host for one in found)}
    seen.phase("measure", list(hosts))
    done = fleet.each(list(hosts), lambda name: _measure(reach, hosts[name]), forks=reach.forks)
    uses: dict[tuple[str, str, str], Use] = {}
    for name, one in done.items():
        for row in one.value or ():
            uses[name, fields.text(row, "name"), fields.text(row, "model", "")] = _use(row)
    return uses, {name: one.problem for name, one in done.items() if one.problem is not None}


def _measure(reach: access.Access, host: inventory.Host) -> Sequence[fields.Document]:
    servers = [
        {
            "name": one.name,
            "url": instance.place(one, proxied=instance.is_proxied(host.settings)).url(),
            "key_file": instance.key_file(one),
            "router": one.router is not None,
            "sleeps": any(options.sleep_idle_s for options in one.presets),
        }
        for one in host.settings.serve
    ]
    opened = reach.open(host)
    try:
        return fields.objects(opened.call({"verb": "usage", "servers": servers}), "uses")
    finally:
        opened.close()


def _use(row: fields.Document) -> Use:
    def number(key: str) -> int | None:
        return fields.integer(row, key) if key in row else None

    return Use(most_tokens=number("most_tokens"), processing=number("processing"), deferred=number("deferred"))
