"""One command as a child: how long it took, and the CPU that it cost here and on the nodes of a lab on this machine."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_TICKS = os.sysconf("SC_CLK_TCK")
_GONE_S = 5.0
_LOOK_S = 0.02


@dataclass(frozen=True)
class Cost:
    """`cpu_s` is the child's with all that it waited for; `nodes_cpu_s` that of all nodes, None where nobody looked."""

    wall_s: float
    cpu_s: float
    nodes_cpu_s: float | None = None


@dataclass(frozen=True)
class Ran:
    cost: Cost
    code: int
    out: str
    words: str


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    leaders: Sequence[int] = (),
    hang_up: Callable[[], None] = lambda: None,
    timeout_s: float = 3600,
) -> Ran:
    """`leaders` are the nodes' first processes. `hang_up` ends connections that the command leaves open, after the clock was read."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as words:
        before_s, begun_s = _nodes_cpu_s(leaders), time.monotonic()
        child = subprocess.Popen(argv, cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, stdout=out, stderr=words)
        code, cpu_s = _wait(child, timeout_s)
        wall_s = time.monotonic() - begun_s
        hang_up()
        _until_sessions_end(leaders)
        nodes_cpu_s = round(_nodes_cpu_s(leaders) - before_s, 3) if leaders else None
        cost = Cost(round(wall_s, 3), round(cpu_s, 3), nodes_cpu_s)
        return Ran(cost, code, _text(out), _text(words))


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode(errors="replace")


def _wait(child: subprocess.Popen[bytes], timeout_s: float) -> tuple[int, float]:
    """Exit code and CPU seconds. wait4 is the one call that gives both, and only to whoever reaps the child itself."""
    descriptor = os.pidfd_open(child.pid)
    try:
        if not select.select([descriptor], [], [], timeout_s)[0]:
            child.kill()
        _, status, usage = os.wait4(child.pid, 0)
    finally:
        os.close(descriptor)
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, usage.ru_utime + usage.ru_stime


def _until_sessions_end(leaders: Sequence[int]) -> None:
    """The next one starts on quiet nodes, and a session's CPU is counted with its server's once that has reaped it."""
    until_s = time.monotonic() + _GONE_S
    while time.monotonic() < until_s and any(True for leader in leaders for _ in _sessions(leader)):
        time.sleep(_LOOK_S)


def _sessions(leader: int) -> Iterator[int]:
    for pid in _children(leader):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "sshd":
                yield from _children(pid)


def _nodes_cpu_s(leaders: Sequence[int]) -> float:
    """The first process of each node and its services, with all children that these have reaped."""
    return sum(_own_cpu_s(pid) for leader in leaders for pid in (leader, *_children(leader)))


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _own_cpu_s(pid: int) -> float:
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(field) for field in fields[11:15]) / _TICKS
    return 0.0
