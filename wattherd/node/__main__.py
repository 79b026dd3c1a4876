"""The node program's door: the boot stage calls `main(mode, arguments)` after it has spoken its marker line."""

from __future__ import annotations

import gc
import signal
import sys
from typing import Sequence

from wattherd import machine as machines


def main(arguments: Sequence[str]) -> int:
    """Modes: `session`; `receive DIGEST SIZE` and `send DIGEST OFFSET` (bulk). Exit status 0 unless the link broke."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    gc.set_threshold(20_000, 50, 50)  # what a session loads it keeps: looking through it for garbage while it loads finds nothing
    machine = machines.Machine()
    mode, rest = arguments[0], arguments[1:]
    try:
        if mode == "session":
            from wattherd.node import session

            return session.Session(machine, sys.stdin.buffer, sys.stdout.buffer).serve()
        from wattherd.node import bulk

        if mode == "receive":
            return bulk.receive(machine, rest[0], int(rest[1]), sys.stdin.buffer, sys.stdout.buffer)
        return bulk.send(machine, rest[0], int(rest[1]), sys.stdout.buffer)
    except BrokenPipeError:
        # The controller is gone: nothing can be told to anybody. What was begun is whole or will be converged next time.
        return 1
