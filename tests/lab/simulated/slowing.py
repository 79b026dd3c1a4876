"""How a card's clock slows a real process: by a quota of processor time that is the clock's part of what the process would get without it.

What it would get is measured, not assumed: other work on this machine may leave a server half a core, and 70 % of that is a slower server
still. The kernel counts how long its threads ran and how long they waited; what they waited for their own quota is taken off.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.lab import places
from tests.lab.simulated import groups, holders

_WINDOW_S = 0.6
#: Of the estimate, so much is of the newest window.
_NEWEST = 0.5
#: A window in which the process ran for less than this many seconds says nothing of what it could get.
_WORKING_S = 0.05
_FULL = 0.995
_CHANGED = 0.03


@dataclass
class Slowed:
    """One process: the cores that it could use, those that it may (0: all), and the counters of the last look."""

    node: str
    cores: float
    quota: float = 0.0
    at: float = 0.0
    ran_s: float = 0.0
    waited_s: float = 0.0


@dataclass
class Slowing:
    lab: places.Places
    processes: dict[int, Slowed] = field(default_factory=dict)

    def slow(self, node: str, process: holders.Process, speed: float, now: float) -> None:
        """Let a process run at `speed`, 0 to 1; 1 is no throttle at all."""
        one = self.processes.setdefault(process.pid, Slowed(node, float(process.threads), at=now))
        if now - one.at >= _WINDOW_S:
            self._look(one, process, now)
        wanted = one.cores * speed if speed < _FULL else 0.0
        if (wanted == 0.0) != (one.quota == 0.0) or abs(wanted - one.quota) > _CHANGED * one.quota:
            groups.slow(self.lab, node, process.pid, wanted or None)
            one.quota = wanted
        process.allowed = wanted or float(process.threads)

    def forget(self, known: dict[int, holders.Process]) -> None:
        """The groups of processes that ended go with them."""
        for pid in [pid for pid in self.processes if pid not in known]:
            groups.slow(self.lab, self.processes.pop(pid).node, pid, None)

    def sweep(self, node: str) -> None:
        """Groups that an earlier daemon left to processes that are at full speed, or gone."""
        groups.sweep(self.lab, node, {pid for pid, one in self.processes.items() if one.quota})

    def _look(self, one: Slowed, process: holders.Process, now: float) -> None:
        ran_s, waited_s = holders.scheduled(process.pid)
        waited_s = max(0.0, waited_s - groups.throttled_s(self.lab, one.node, process.pid))
        ran, waited = ran_s - one.ran_s, max(0.0, waited_s - one.waited_s)
        if one.ran_s and ran > _WORKING_S:
            one.cores += (process.threads * ran / (ran + waited) - one.cores) * _NEWEST
        one.at, one.ran_s, one.waited_s = now, ran_s, waited_s
