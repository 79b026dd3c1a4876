"""Programs that touch the NVIDIA driver: nvidia-smi and the reading child, one at a time on a node, each with a hard time limit.

A driver that is stuck holds every program that asks it, in the kernel, where no signal reaches. So each probe holds a lock for as long as
it lives, and while one is stuck no second is started. Knows nothing of what is asked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import Iterator, List, Mapping, Optional, Sequence, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.records import dataclass

LOCK = "/run/wattherd-probe.lock"
#: nvidia-smi on eight cards without persistence takes 5 to 10 s (each is initialised and let go again); a stuck one never ends.
LIMIT_S = 20.0
#: No probe of ours lives longer than this while it can still be killed.
_STUCK_S = 45.0
#: One that does not look stuck at first sight (its starter holds the lock too, for a moment) must look so for this long.
_SURE_S = 2.0
_BETWEEN_LOOKS_S = 0.1
_TIMED_OUT = 124
_HINT = "its driver hangs: dmesg | grep -iE 'nvrm|xid' says why; a process in state D goes only with a reboot"


@dataclass(frozen=True)
class Holder:
    """A process that has the lock open: how long it lives, and its state as /proc has it (D: waits in the kernel)."""

    pid: int
    name: str
    state: str
    age_s: float


def smi(machine: machines.Machine, arguments: Sequence[str], *, limit_s: float = LIMIT_S) -> machines.Result:
    """Run nvidia-smi to its end; its exit status and words are the caller's to judge (127: there is none here).

    Raises `driver-silent` where it does not end within `limit_s` seconds, or an earlier probe is still stuck.
    """
    return probe(machine, ["nvidia-smi", *arguments], limit_s=limit_s)


def probe(
    machine: machines.Machine, argv: Sequence[str], *, limit_s: float = LIMIT_S, environment: Optional[Mapping[str, str]] = None
) -> machines.Result:
    """Run a program that asks the driver, with the lock in its hands. Raises `driver-silent` as `smi` does."""
    with _turn(machine, limit_s) as lock:
        done = machine.run(argv, timeout_s=limit_s, environment=environment, held=lock)
    if done.code == _TIMED_OUT:
        left = f"; process {done.left_pid} cannot be killed" if done.left_pid else ""
        name = "nvidia-smi" if argv[0] == "nvidia-smi" else "reading the cards"
        raise errors.Problem("driver-silent", f"the NVIDIA driver gives no answer: {name} did not end in {limit_s:.0f} s{left}", hint=_HINT)
    return done


@contextlib.contextmanager
def _turn(machine: machines.Machine, limit_s: float) -> Iterator[Tuple[int, ...]]:
    """Wait for the lock and give the open file. None is given where no file can be opened (a read-only system): then nothing is locked."""
    handle = _opened(machine)
    if handle is None:
        yield ()
        return
    try:
        _wait(machine, handle, limit_s)
        yield (handle,)
    finally:
        os.close(handle)


def _opened(machine: machines.Machine) -> Optional[int]:
    """The node's one file for root, a file of its own for anybody else: whoever can open it can stop every probe."""
    path = LOCK if os.geteuid() == 0 or machine.root else os.path.expanduser("~/.cache/wattherd/probe.lock")
    with contextlib.suppress(OSError):
        machine.make_dirs(os.path.dirname(path))
        return os.open(machine.path(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    return None


def _wait(machine: machines.Machine, handle: int, limit_s: float) -> None:
    began_s = machine.monotonic_s()
    suspect: Optional[int] = None
    since_s = began_s
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        now_s = machine.monotonic_s()
        holder = _holder(machine, handle)
        old = holder is not None and holder.age_s > _STUCK_S
        if holder is None or not old or holder.pid != suspect:
            suspect, since_s = (holder.pid if holder is not None and old else None), now_s
        sure = suspect is not None and (now_s - since_s >= _SURE_S or (holder is not None and holder.state == "D"))
        if sure or now_s - began_s >= limit_s:
            raise _stuck(machine, holder, limit_s)
        # flock has no limit of its own, and a signal to end it would meet a whole process.
        machine.wait(_BETWEEN_LOOKS_S)


def _stuck(machine: machines.Machine, holder: Optional[Holder], limit_s: float) -> errors.Problem:
    if holder is None:
        return errors.Problem("driver-silent", f"another probe of the cards did not end in {limit_s:.0f} s", hint=f"fuser -v {LOCK}")
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(machine.now_s() - holder.age_s))
    state = " and waits in the kernel (state D)" if holder.state == "D" else ""
    words = f"the NVIDIA driver gives no answer: process {holder.pid} ({holder.name}) asks it since {since} UTC{state}"
    # One that sleeps can be ended: a driver that hangs is not proven then, and what a probe left running may hold the lock after it.
    hint = _HINT if holder.state == "D" else f"ps -fp {holder.pid} shows what it is, and kill {holder.pid} ends it; if it stays, {_HINT}"
    return errors.Problem("driver-silent", words, hint=hint, pid=holder.pid, since=since)


def _holder(machine: machines.Machine, handle: int) -> Optional[Holder]:
    """The youngest process that has the lock's file open, other than this one: the probe itself, not whoever started it."""
    mine = os.fstat(handle)
    found: List[Holder] = []
    for name in machine.names("/proc"):
        if name.isdigit() and int(name) != os.getpid() and _has_open(machine, name, (mine.st_dev, mine.st_ino)):
            one = _process(machine, name)
            if one is not None:
                found.append(one)
    return min(found, key=lambda one: one.age_s, default=None)


def _has_open(machine: machines.Machine, pid: str, wanted: Tuple[int, int]) -> bool:
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):  # it ended meanwhile, or belongs to somebody else
        for name in machine.names(folder):
            with contextlib.suppress(OSError):
                seen = os.stat(machine.path(f"{folder}/{name}"))
                if (seen.st_dev, seen.st_ino) == wanted:
                    return True
    return False


def _process(machine: machines.Machine, pid: str) -> Optional[Holder]:
    """proc(5), stat: the name stands in parentheses and may hold anything; the state is the 3rd field, the start the 22nd, in ticks."""
    head, _, tail = machine.text(f"/proc/{pid}/stat").rpartition(")")
    words = tail.split()
    uptime = machine.text("/proc/uptime").split()
    if len(words) < 20 or not uptime:
        return None
    name = "".join(letter for letter in head.partition("(")[2] if letter.isprintable())
    age_s = float(uptime[0]) - int(words[19]) / os.sysconf("SC_CLK_TCK")
    return Holder(int(pid), name, words[0], max(0.0, age_s))
