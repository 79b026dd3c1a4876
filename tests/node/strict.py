"""A node for tests: a root of its own, a clock that waits without sleeping, and a runner that refuses what was not planned.

`Bench` is what the cases of a resource type get. Knows nothing of any type.
"""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wattherd import machine as machines

#: As the last word of a plan: any further words.
REST = "..."

Effect = Callable[[Sequence[str]], machines.Result | None]


@dataclass(frozen=True)
class Call:
    """One command as it was asked for."""

    argv: tuple[str, ...]
    given: bytes | None
    environment: Mapping[str, str]
    timeout_s: float | None
    held: tuple[int, ...] = ()


@dataclass
class Planned:
    argv: tuple[str, ...]
    result: machines.Result
    effect: Effect | None
    left: int | None

    def fits(self, argv: Sequence[str]) -> bool:
        if self.left == 0:
            return False
        if self.argv[-1] == REST:
            return tuple(argv[: len(self.argv) - 1]) == self.argv[:-1]
        return tuple(argv) == self.argv


@dataclass
class Runner:
    """Stands where `machine.run_program` stands. An unplanned command fails; so does a test that planned commands and ran none."""

    planned: list[Planned] = field(default_factory=list)
    ran: list[Call] = field(default_factory=list)
    refused: list[tuple[str, ...]] = field(default_factory=list)

    def plan(
        self,
        *argv: str,
        code: int = 0,
        out: str | bytes = "",
        err: str = "",
        effect: Effect | None = None,
        times: int | None = 1,
    ) -> None:
        """Allow a command `times` times (None: any number). `effect` may change the tree, and may return a Result of its own."""
        body = out.encode() if isinstance(out, str) else out
        self.planned.append(Planned(argv, machines.Result(code, body, err.encode()), effect, times))

    def __call__(
        self, argv: Sequence[str], given: bytes | None, environment: Mapping[str, str], timeout_s: float | None, held: Sequence[int] = ()
    ) -> machines.Result:
        self.ran.append(Call(tuple(argv), given, dict(environment), timeout_s, tuple(held)))
        for plan in self.planned:
            if plan.fits(argv):
                plan.left = None if plan.left is None else plan.left - 1
                made = plan.effect(argv) if plan.effect else None
                return made or plan.result
        self.refused.append(tuple(argv))
        raise AssertionError(f"not planned: {' '.join(argv)}")

    @property
    def commands(self) -> list[tuple[str, ...]]:
        return [call.argv for call in self.ran]

    def verify(self) -> None:
        assert not self.refused, f"not planned: {self.refused}"
        assert self.ran or not self.planned, f"planned, but nothing ran: {[plan.argv for plan in self.planned]}"


class Machine(machines.Machine):
    """A Machine whose waits cost nothing: they move its clock. `on_wait` is where a test lets the world move on."""

    def __init__(self, root: str, runner: machines.Runner = machines.run_program) -> None:
        super().__init__(root, runner)
        self.clock_s = 1_700_000_000.0
        self.waits: list[float] = []
        self.on_wait: Callable[[], None] | None = None

    def now_s(self) -> float:
        return self.clock_s

    def monotonic_s(self) -> float:
        return self.clock_s

    def wait(self, seconds_s: float) -> None:
        self.clock_s += seconds_s
        self.waits.append(seconds_s)
        if self.on_wait:
            self.on_wait()


@dataclass
class Told:
    """A Tell that remembers."""

    words: list[str] = field(default_factory=list)
    steps: list[tuple[str, float, float, str]] = field(default_factory=list)

    def __call__(self, words: str, done: float = 0, total: float = 0, unit: str = "") -> None:
        self.words.append(words)
        self.steps.append((words, done, total, unit))


@dataclass
class Bench:
    """What a case is made on: the node, its runner, and what was told."""

    machine: Machine
    runner: Runner
    tell: Told = field(default_factory=Told)

    @property
    def me(self) -> str:
        """The user who runs the tests, who owns what they write: the owner that a resource can really get here."""
        return pwd.getpwuid(os.geteuid()).pw_name

    @property
    def my_group(self) -> str:
        return grp.getgrgid(os.getegid()).gr_name

    def put(self, path: str, body: str | bytes = "", mode: int = 0o644) -> None:
        """A file of the node, with the folders above it."""
        real = Path(self.machine.path(path))
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_bytes(body.encode() if isinstance(body, str) else body)
        real.chmod(mode)

    def folder(self, path: str, mode: int = 0o755) -> None:
        real = Path(self.machine.path(path))
        real.mkdir(parents=True, exist_ok=True)
        real.chmod(mode)

    def link(self, path: str, target: str) -> None:
        real = Path(self.machine.path(path))
        real.parent.mkdir(parents=True, exist_ok=True)
        real.symlink_to(target)

    def tree(self) -> dict[str, tuple[object, ...]]:
        return snapshot(self.machine.root)


def snapshot(root: str) -> dict[str, tuple[object, ...]]:
    """Everything under `root`, with times and inodes: equal snapshots mean that nothing was written."""
    found: dict[str, tuple[object, ...]] = {}
    for real in sorted(Path(root).rglob("*")):
        seen = real.lstat()
        body: object = None
        if real.is_symlink():
            body = str(real.readlink())
        elif real.is_file():
            body = hashlib.sha256(real.read_bytes()).hexdigest()
        found[str(real.relative_to(root))] = (seen.st_ino, seen.st_mode, seen.st_uid, seen.st_gid, seen.st_mtime_ns, seen.st_ctime_ns, body)
    return found
