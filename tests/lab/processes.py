"""Which processes of this machine belong to a node, found by looking at /proc, and how they are ended.

There is no pid file that could lie: a keeper (the shell and systemd-nspawn) names the node's own root folder in its command line,
and what runs inside has that root's file system. Signals go through a pid file descriptor, after the identity was read again.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process now, told apart from a later one with the same number by its start time."""

    pid: int
    started: str


@dataclass(frozen=True)
class Found:
    """One node's processes: `keepers` are outside of it, `leader` is the node's own pid 1 as this machine counts."""

    keepers: tuple[Process, ...]
    leader: Process | None
    inside: tuple[Process, ...]

    @property
    def any(self) -> bool:
        return bool(self.keepers or self.inside)


def of(root: Path) -> Found:
    """The processes of the node whose root is mounted there."""
    return of_all((root,))[root]


def of_all(roots: Sequence[Path]) -> dict[Path, Found]:
    """The same for many nodes in one walk through /proc."""
    devices = {device: root for root in roots if (device := _mounted(root)) is not None}
    by_name = {os.fsencode(root): root for root in roots}
    keepers: dict[Path, list[Process]] = {root: [] for root in roots}
    inside: dict[Path, list[Process]] = {root: [] for root in roots}
    for pid in _pids():
        words = _words(pid)
        kept = next((by_name[word] for word in words if word in by_name), None) if b"systemd-nspawn" in words else None
        lives = devices.get(_device(_PROC / str(pid) / "root") or -1)
        process = _process(pid) if kept or lives else None
        if process and lives:
            inside[lives].append(process)
        elif process and kept:
            keepers[kept].append(process)
    return {root: Found(tuple(keepers[root]), _leader(inside[root]), tuple(inside[root])) for root in roots}


def alive(pids: Iterable[int]) -> tuple[Process, ...]:
    return tuple(process for pid in pids if (process := _process(pid)))


def kill(processes: Iterable[Process], number: int = signal.SIGKILL) -> None:
    for process in processes:
        with _held(process) as descriptor:
            if descriptor is not None:
                signal.pidfd_send_signal(descriptor, number)


def wait_gone(processes: Iterable[Process], timeout_s: float) -> bool:
    """Wait for the end of all; False where one outlived the time."""
    until = time.monotonic() + timeout_s
    for process in processes:
        with _held(process) as descriptor:
            if descriptor is None:
                continue
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                return False
    return True


@contextlib.contextmanager
def _held(process: Process) -> Iterator[int | None]:
    """The process's descriptor, or None where that very process is gone: its number may already belong to another one."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield descriptor if _process(process.pid) == process else None
    finally:
        os.close(descriptor)


def _pids() -> Iterator[int]:
    return (int(path.name) for path in _PROC.iterdir() if path.name.isdigit())


def _words(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def _process(pid: int) -> Process | None:
    try:
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else Process(pid, fields[19])


def _device(root: Path) -> int | None:
    try:
        return root.stat().st_dev
    except OSError:
        return None


def _mounted(root: Path) -> int | None:
    """The device of the node's own file system; never that of the machine itself, whose processes would all seem to be the node's."""
    device = _device(root)
    return device if device != _device(Path("/")) and os.path.ismount(root) else None


def _leader(inside: Sequence[Process]) -> Process | None:
    return next((process for process in inside if _is_first(process.pid)), None)


def _is_first(pid: int) -> bool:
    """Number 1 in the innermost process namespace."""
    with contextlib.suppress(OSError):
        for line in (_PROC / str(pid) / "status").read_text(errors="replace").splitlines():
            if line.startswith("NSpid:"):
                numbers = line.split()[1:]
                return len(numbers) == 2 and numbers[1] == "1"
    return False
