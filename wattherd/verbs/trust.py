"""`invoke trust`: fetch the host keys of the selected hosts, show them, record those that a person (or --yes) accepts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from wattherd import fleet, inventory
from wattherd.link import connect
from wattherd.link import trust as keys
from wattherd.verbs import access, project, watch

#: Asked once with everything that would be recorded; True records it.
Confirm = Callable[[Mapping[str, Sequence[keys.Found]]], bool]


@dataclass(frozen=True, kw_only=True)
class Trusted:
    """Per host: what was found, and what was recorded now."""

    found: Mapping[str, fleet.Done[Sequence[keys.Found]]]
    recorded: Mapping[str, int]


def trust(reach: access.Access, selection: project.Selection, confirm: Confirm, seen: watch.Watch, *, replace: bool = False) -> Trusted:
    """Changed keys are refused (a value on that host) unless `replace`."""
    loaded = reach.project.load(selection)
    hosts = {host.name: host for host in project.hosts_of(loaded, selection, writes=True) if not host.connection.local}
    seen.phase("fetch host keys", list(hosts))
    found = fleet.each(list(hosts), lambda name: _fetch(reach, hosts[name], replace=replace), forks=reach.forks)
    new = {name: [key for key in done.value if key.state != "known"] for name, done in found.items() if done.value}
    new = {name: fresh for name, fresh in new.items() if fresh}
    recorded: dict[str, int] = {}
    if new and confirm(new):
        for name, fresh in new.items():
            recorded[name] = keys.record(reach.project.known_hosts, fresh, replace=replace)
    return Trusted(found=found, recorded=recorded)


def _fetch(reach: access.Access, host: inventory.Host, *, replace: bool) -> Sequence[keys.Found]:
    found = connect.fetch_keys(host.connection, host.name, known_hosts=reach.project.known_hosts)
    if not replace:
        keys.refuse_changed(found)
    return found
