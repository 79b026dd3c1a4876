"""The node's lock: one writer at a time, a session or the keeper. Its file has the number of the process whose turn it is."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Callable, Iterator, Mapping

from wattherd import errors, store
from wattherd import machine as machines
from wattherd.wire import event

Emit = Callable[[Mapping[str, Any]], None]
#: A run whose controller was killed ends after the step it is in; a second controller's run may be short. Both are worth a wait.
WAIT_S = 90.0
_PAUSE_S = 0.5


@contextlib.contextmanager
def if_free(machine: machines.Machine) -> Iterator[bool]:
    """Not waited for: False while somebody else has it."""
    with contextlib.ExitStack() as stack:
        try:
            handle = stack.enter_context(store.locked(machine, store.LOCK, errors.Problem("node-busy", "another run is at work here")))
        except errors.Problem:
            handle = -1
        if handle >= 0:
            os.truncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}".encode(), 0)
        yield handle >= 0


@contextlib.contextmanager
def taken(machine: machines.Machine, emit: Emit) -> Iterator[None]:
    """Waits a short while, and says for whom: a killed predecessor needs a heartbeat to notice that it is alone. Then `node-busy`."""
    limit_s = machine.monotonic_s() + WAIT_S
    while True:
        with if_free(machine) as mine:
            if mine:
                yield
                return
        holder = machine.text(store.LOCK).strip()[:20] or "unknown"
        left_s = limit_s - machine.monotonic_s()
        emit(event.progress("lock:node", f"another run (process {holder}) is at work here", WAIT_S - left_s, WAIT_S, "s"))
        if left_s < 0:
            raise errors.Problem(
                "node-busy",
                f"another run is at work on this node (process {holder})",
                hint="wait for it, or see who runs it: ps -fp " + holder,
            )
        machine.wait(_PAUSE_S)
