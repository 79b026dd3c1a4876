"""How a card's clock slows a real process: by a quota of processor time that is the clock's part of what its threads could use.

A quota slows nothing that gets less than it anyway. So a process that holds a card goes before all else on this machine, as one whose work
is done by a card of its own would not notice what else its processors do.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.lab import places
from tests.lab.simulated import groups, holders

_FULL = 0.995
_CHANGED = 0.03


@dataclass
class Slowed:
    """One process, and the cores that it may use: 0 is all of them."""

    node: str
    quota: float = 0.0


@dataclass
class Slowing:
    lab: places.Places
    processes: dict[int, Slowed] = field(default_factory=dict)

    def slow(self, node: str, process: holders.Process, speed: float) -> None:
        """Let a process run at `speed`, 0 to 1; 1 is no throttle at all."""
        one = self.processes.get(process.pid)
        wanted = process.threads * speed if speed < _FULL else 0.0
        if one is None or (wanted == 0.0) != (one.quota == 0.0) or abs(wanted - one.quota) > _CHANGED * one.quota:
            groups.slow(self.lab, node, process.pid, wanted or None)
            self.processes[process.pid] = Slowed(node, wanted)
        process.allowed = wanted or float(process.threads)

    def forget(self, known: dict[int, holders.Process]) -> None:
        """The groups of processes that ended go with them."""
        for pid in [pid for pid in self.processes if pid not in known]:
            groups.free(self.lab, self.processes.pop(pid).node, pid)

    def sweep(self, node: str) -> None:
        """Groups that an earlier daemon left to processes that are gone."""
        groups.sweep(self.lab, node, set(self.processes))
