"""`invoke models-gc`: what on the nodes no current or previous generation refers to, and its removal when asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wattherd import fleet, inventory
from wattherd.verbs import access, project, watch
from wattherd.wire import fields


@dataclass(frozen=True, kw_only=True)
class Left:
    """One thing on a node; `removed` says that it is gone now."""

    kind: str
    path: str
    size_bytes: int
    name: str = ""
    removed: bool = False


def collect(
    reach: access.Access, selection: project.Selection, seen: watch.Watch, *, delete: bool
) -> Mapping[str, fleet.Done[tuple[Left, ...]]]:
    """Every host's list, in inventory order. Without `delete` nothing is written anywhere."""
    hosts = {host.name: host for host in project.hosts_of(reach.project.load(selection), selection, writes=delete)}
    seen.phase("remove what is not needed" if delete else "look for what is not needed", list(hosts))
    return fleet.each(list(hosts), lambda name: _one(reach, hosts[name], delete=delete), forks=reach.forks)


def _one(reach: access.Access, host: inventory.Host, *, delete: bool) -> tuple[Left, ...]:
    opened = reach.open(host)
    try:
        told = opened.call({"verb": "models-gc", "delete": delete})
    finally:
        opened.close()
    removed = set(fields.texts(told, "removed"))
    return tuple(
        Left(
            kind=fields.text(row, "kind"),
            path=fields.text(row, "path"),
            size_bytes=fields.integer(row, "size_bytes"),
            name=fields.text(row, "name", ""),
            removed=fields.text(row, "path") in removed,
        )
        for row in fields.objects(told, "left")
    )
