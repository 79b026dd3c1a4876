"""`invoke power-status --watch`: one session per host held open and asked again and again; lost hosts come back by themselves.

Each host has a thread of its own, so that one that hangs holds up nobody's figures.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Self

from wattherd import errors, fleet, inventory
from wattherd.link import session
from wattherd.verbs import access, power_status, project, rests, sightings, watch

#: After a host was lost it is tried again this much later, twice as late each time, up to the longest.
_AGAIN_S, _AGAIN_LIMIT_S = 2.0, 60.0
#: The first picture waits so long at most for hosts that have not answered.
_FIRST_S = 15.0
_ENDS_S = 5.0


class Following:
    """The newest answer of every selected host. A context: at its end all sessions are closed."""

    def __init__(self, reach: access.Access, selection: project.Selection, seen: watch.Watch, *, every_s: float) -> None:
        """`every_s` is the time between two looks at a host, in seconds."""
        self._reach = reach
        self._hosts = power_status.selected(reach, selection, seen)
        self._every_s = every_s
        self._memory = rests.Rests(reach.project.state)
        self._sighted = sightings.read(reach.project.state)
        self._told: dict[str, fleet.Done[power_status.Seen]] = {}
        self._live: dict[str, session.Session] = {}
        self._change = threading.Condition()
        self._ends = threading.Event()
        self._connecting = threading.Semaphore(max(1, reach.forks))
        self._threads = [threading.Thread(target=self._follow, args=(host,), daemon=True, name=host.name) for host in self._hosts]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        with self._change:
            self._change.wait_for(lambda: len(self._told) == len(self._hosts), _FIRST_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        with self._change:
            live = list(self._live.values())
        ends_s = time.monotonic() + _ENDS_S
        for opened in live:
            with contextlib.suppress(OSError, EOFError, errors.Problem):
                opened.close()
        for thread in self._threads:
            thread.join(max(0.0, ends_s - time.monotonic()))
        self._memory.save()

    def wait(self, seconds_s: float) -> None:
        """Until the next picture is due."""
        self._ends.wait(seconds_s)

    def picture(self) -> power_status.Picture:
        with self._change:
            told = {host.name: self._told[host.name] for host in self._hosts if host.name in self._told}
            waiting = tuple(host.name for host in self._hosts if host.name not in self._told)
        return power_status.Picture(hosts=told, waiting=waiting)

    def _follow(self, host: inventory.Host) -> None:
        again_s = _AGAIN_S
        while not self._ends.is_set():
            with self._change:
                before = self._told.get(host.name)
            try:
                self._ask(host)
            except errors.Problem as problem:
                found = problem
            except Exception as error:  # noqa: BLE001 - one host's surprise is that host's value
                found = errors.Problem("internal", f"{type(error).__name__}: {error}", hint="please report this")
            else:
                return
            with self._change:
                answered = self._told.get(host.name) is not before
            self._tell(host.name, fleet.Done(problem=found))
            again_s = _AGAIN_S if answered else min(again_s * 2, _AGAIN_LIMIT_S)
            self._ends.wait(again_s)

    def _ask(self, host: inventory.Host) -> None:
        """Until this ends; raises what the session was lost by."""
        with self._connecting:
            if self._ends.is_set():
                return
            opened = self._reach.open(host)
        with self._change:
            self._live[host.name] = opened
        try:
            while not self._ends.is_set():
                begun_s = time.monotonic()
                seen = power_status.look(opened, host, self._memory, self._sighted.get(host.name), looks=1)
                self._tell(host.name, fleet.Done(value=seen))
                self._ends.wait(max(0.0, self._every_s - (time.monotonic() - begun_s)))
        finally:
            with self._change:
                self._live.pop(host.name, None)
            with contextlib.suppress(OSError, EOFError, errors.Problem):
                opened.close()

    def _tell(self, name: str, done: fleet.Done[power_status.Seen]) -> None:
        if self._ends.is_set():
            return  # what ends because we end is no host's fault
        with self._change:
            self._told[name] = done
            self._change.notify_all()
