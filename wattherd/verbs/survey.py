"""The verbs that only look: `ping` and `facts`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from wattherd import errors, fleet, inventory
from wattherd.verbs import access, project, watch
from wattherd.wire import facts


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one host answered. A host without python3 is reachable: that is a fact, and it is said."""

    facts: facts.Facts | None = None
    seconds: float = 0.0
    problem: errors.Problem | None = None

    @property
    def status(self) -> str:
        return "ok" if self.no_python else fleet.status_of(self.problem)

    @property
    def no_python(self) -> bool:
        return self.problem is not None and self.problem.code == "python-missing"


def survey(reach: access.Access, selection: project.Selection, seen: watch.Watch) -> Mapping[str, Seen]:
    """Open one session to every selected host, read its hello, close it."""
    loaded = reach.project.load(selection)
    for words in loaded.warnings:
        seen.warn(words)
    hosts = {host.name: host for host in project.hosts_of(loaded, selection, writes=False)}
    seen.phase("connect", list(hosts))
    done = fleet.each(list(hosts), lambda name: _look(reach, hosts[name]), forks=reach.forks)
    return {name: one.value if one.value is not None else Seen(problem=one.problem) for name, one in done.items()}


def _look(reach: access.Access, host: inventory.Host) -> Seen:
    begun_s = time.monotonic()
    opened = reach.open(host)
    try:
        return Seen(facts=opened.facts, seconds=round(time.monotonic() - begun_s, 3))
    finally:
        opened.close()
