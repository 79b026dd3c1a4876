"""One command as a child: how long it took, and the CPU that it cost here and on the nodes of a lab on this machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """`cpu_s` is the child's with all that it waited for; `nodes_cpu_s` that of all nodes, None where it cannot be seen."""

    wall_s: float
    cpu_s: float
    nodes_cpu_s: float | None = None


@dataclass(frozen=True)
class Ran:
    cost: Cost
    code: int
    out: str
    words: str


def run(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], leaders: Sequence[int] = (), timeout_s: float = 3600) -> Ran:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as words:
        before_s, begun_s = _nodes_cpu_s(leaders), time.monotonic()
        child = subprocess.Popen(argv, cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, stdout=out, stderr=words)
        code, used = _wait(child, timeout_s)
        wall_s = time.monotonic() - begun_s
        after_s = _nodes_cpu_s(leaders)
        nodes_cpu_s = round(after_s - before_s, 3) if leaders else None
        cost = Cost(round(wall_s, 3), round(used, 3), nodes_cpu_s)
        texts = []
        for stream in (out, words):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
        return Ran(cost, code, texts[0], texts[1])


def _wait(child: subprocess.Popen[bytes], timeout_s: float) -> tuple[int, float]:
    """Exit code and CPU seconds. wait4 is the one call that gives both, and only for whoever reaps the child itself."""
    descriptor = os.pidfd_open(child.pid)
    try:
        import select

        if not select.select([descriptor], [], [], timeout_s)[0]:
            child.kill()
        _, status, usage = os.wait4(child.pid, 0)
    finally:
        os.close(descriptor)
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, usage.ru_utime + usage.ru_stime


def _nodes_cpu_s(leaders: Sequence[int]) -> float:
    """Pid 1 of each node and its services, with all children that these have reaped: a session counts once it is over."""
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
