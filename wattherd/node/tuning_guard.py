"""The guard of a sweep: a process of its own that outlives the session, waits for its end, and sets the cards back if that end left them.

It waits for a lock that the kernel takes from the tuning process whatever ends it, so it misses no end and needs no clock.
"""

from __future__ import annotations

import os
import sys
from typing import List

import wattherd
from wattherd import errors
from wattherd import machine as machines
from wattherd.power import tuning_record

CODE = "import sys; sys.path.insert(0, sys.argv[1]); from wattherd.node import tuning_guard; sys.exit(tuning_guard.stay())"
#: A driver that hangs may answer again; after this the keeper, or the next session, goes on trying.
_RETRY_S = 5.0
_RETRIES_S = 600.0
_START_LIMIT_S = 20.0


def start(machine: machines.Machine) -> None:
    """Before the first change. `command-failed` when no guard can be left behind: then nothing may be changed."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(wattherd.__file__)))
    program = [sys.executable, "-I", "-S", "-c", CODE, folder]
    done = machine.run(_as_unit(program), timeout_s=_START_LIMIT_S)
    if done.code != 0:
        # No systemd here (a container): a process of its own session does as well, as long as nobody ends all of them.
        done = machine.run(_apart(program), timeout_s=_START_LIMIT_S)
    if done.code != 0:
        words = done.words.splitlines()[-1] if done.words else f"exit status {done.code}"
        raise errors.Problem(
            "command-failed",
            f"no guard could be started that would set the card back if this session were killed: {words[:200]}",
            hint="systemd-run must work on this host; nothing was changed",
        )


def _as_unit(program: List[str]) -> List[str]:
    unit = f"wattherd-tune-guard-{os.getpid()}"
    properties = ["--property=Type=exec", "--property=OOMScoreAdjust=-500"]
    words = "--description=sets a card back after a sweep of power limits (Wattherd)"
    return ["systemd-run", "--quiet", "--collect", f"--unit={unit}", words, *properties, "--", *program]


def _apart(program: List[str]) -> List[str]:
    return ["sh", "-c", 'exec setsid --fork "$@" </dev/null >/dev/null 2>&1', "sh", *program]


def stay() -> int:
    """In the guard's own process. Exit status 0 when the cards are as they were; 1 when it gave up, and the record is left for others."""
    return watch(machines.Machine())


def watch(machine: machines.Machine) -> int:
    """Holds the lock from the sweep's end until it is done, so that nobody sets the cards meanwhile."""
    handle = tuning_record.await_end(machine)
    try:
        ends_s = machine.monotonic_s() + _RETRIES_S
        while True:
            if not tuning_record.restore(machine).left:
                return 0
            if machine.monotonic_s() > ends_s:
                return 1
            machine.wait(_RETRY_S)
    finally:
        os.close(handle)
