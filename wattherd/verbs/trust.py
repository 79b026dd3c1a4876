"""`invoke trust`: fetch the host keys of the selected hosts, show them, record those that a person (or --yes) accepts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from wattherd import errors, fleet, inventory
from wattherd.link import trust as keys
from wattherd.verbs import access, project, watch

_HOPS_AT_MOST = 8

#: Asked once with everything that would be recorded; True records it.
Confirm = Callable[[Mapping[str, Sequence[keys.Found]]], bool]


@dataclass(frozen=True, kw_only=True)
class Trusted:
    """Per host: what was found, and what was recorded now."""

    found: Mapping[str, fleet.Done[Sequence[keys.Found]]]
    recorded: Mapping[str, int]


def trust(reach: access.Access, selection: project.Selection, confirm: Confirm, seen: watch.Watch, *, replace: bool = False) -> Trusted:
    """Changed keys are refused (a value on that host) unless `replace`. Jump hosts come first, each once it is recorded."""
    loaded = reach.project.load(selection)
    hosts = {host.name: host for host in project.hosts_of(loaded, selection, writes=True) if not host.connection.local}
    seen.phase("fetch host keys", list(hosts))
    found: dict[str, fleet.Done[Sequence[keys.Found]]] = {}
    recorded: dict[str, int] = {}
    todo = list(hosts)
    for _ in range(_HOPS_AT_MOST):
        found |= fleet.each(todo, lambda name: _fetch(reach, hosts[name], replace=replace), forks=reach.forks)
        new = {name: fresh for name in todo if (fresh := [key for key in found[name].value or () if key.state != "known"])}
        if not new or not confirm(new):
            break
        for name, fresh in new.items():
            recorded[name] = recorded.get(name, 0) + len(keys.record(reach.project.known_hosts, fresh, replace=replace))
        # What was recorded may have been a jump host: what lies behind it can be asked only now.
        todo = list(new)
    return Trusted(found=found, recorded=recorded)


def _fetch(reach: access.Access, host: inventory.Host, *, replace: bool) -> Sequence[keys.Found]:
    found = reach.doors.fetch_keys(host.connection, host.name)
    changed = [key for key in found if key.state == "changed"]
    if changed and not replace:
        raise errors.Problem(
            "host-key-changed",
            f"{changed[0].hop} shows {changed[0].fingerprint} and is known by another key ({', '.join(changed[0].where)})",
            hint=f"find out why first: a new machine, or somebody in between. When it is right: invoke trust --hosts {host.name} --replace",
        )
    return found
