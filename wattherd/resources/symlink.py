"""A symbolic link that is turned to its target in one step, after the target was seen to run.

Knows that a probe must end with status 0, and how programs say that they cannot run on this machine; not what is probed.
"""

from __future__ import annotations

import re
import stat
from typing import ClassVar, Optional, Tuple

from wattherd import errors, store
from wattherd import machine as machines
from wattherd.records import dataclass
from wattherd.resources import base, place, probes

_PROBE_LIMIT_S = 60.0
_LINE_LIMIT = 400
#: How a program, its loader or the kernel says that it was made for another machine: pattern of the words -> what that means.
_REASONS = (
    (r"version `(GLIBC\w*_[\w.]+)' not found", "it needs {0}, which is newer than this node's C library"),
    (r"error while loading shared libraries: ([^:\s]+)", "the shared library {0} is missing on this node"),
    ("Exec format error", "it was built for another kind of processor"),
    ("CUDA driver version is insufficient", "the NVIDIA driver of this node is older than the CUDA it was built with"),
)
_TELLING = r"(?i)error|fail|cannot|could not|not found|unable|denied|illegal|invalid"
_SIGILL = (-4, 132)
_NOT_FOUND = 127
_TIMED_OUT = 124


@dataclass(frozen=True)
class Symlink(base.Resource):
    """`probes` are argument lists that must all succeed before the link is turned; they are not run when it stands right.

    A row of `expected` is the last word of a probe, a pattern that its output must hold, and what it means when it does not.
    """

    TYPE: ClassVar[str] = "symlink"

    path: str
    target: str
    probes: Tuple[Tuple[str, ...], ...] = ()
    expected: Tuple[Tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        if place.plain_path(f"symlink:{self.path}", self.path) != self.path or not self.target:
            raise errors.Problem("manifest-invalid", f"{self.id}: a link has a path that does not end in '/', and a target")
        if not all(self.probes):
            raise errors.Problem("manifest-invalid", f"{self.id}: a probe names no program")
        if any(len(row) != 3 for row in self.expected):
            raise errors.Problem("manifest-invalid", f"{self.id}: what is expected has three words: probe, pattern, meaning")

    @property
    def id(self) -> str:
        return f"symlink:{self.path}"

    def wanted(self) -> base.State:
        return {"target": self.target}

    def actual(self, machine: machines.Machine) -> Optional[base.State]:
        found = machine.lstat(self.path)
        if found is None:
            return None
        return {"target": machine.readlink(self.path)} if stat.S_ISLNK(found.st_mode) else {"kind": place.kind(found)}

    def preflight(self, machine: machines.Machine, state: Optional[base.State]) -> None:
        if base.delta(self.wanted(), state):
            place.check_folders(machine, self.id, self.path)
            self._check_kind(machine)

    def fix(self, machine: machines.Machine, delta: base.Delta, tell: base.Tell) -> None:  # noqa: ARG002 - one surface for every type
        self._check_kind(machine)
        place.need_folder(machine, self.id, self.path)
        for argv in self.probes:
            tell(f"trying {argv[0]}")
            self._probe(machine, argv)
        place.sweep(machine, self.path)
        with machines.no_space(self.path):
            machine.symlink(self.path, self.target)

    def ours(self, machine: machines.Machine) -> bool:
        return (machine.readlink(self.path) or "").startswith(store.RELEASES + "/")

    def remove(self, machine: machines.Machine, tell: base.Tell) -> None:
        found = machine.lstat(self.path)
        if found is not None and not stat.S_ISLNK(found.st_mode):
            tell(f"{self.path} is {place.kind(found)} by now: left as it is")
            return
        machine.unlink(self.path)

    def _check_kind(self, machine: machines.Machine) -> None:
        found = machine.lstat(self.path)
        if found is not None and not stat.S_ISLNK(found.st_mode):
            raise place.conflict(self.id, self.path, found, "a symbolic link")

    def _probe(self, machine: machines.Machine, argv: Tuple[str, ...]) -> None:
        try:
            done = machine.run(argv, timeout_s=_PROBE_LIMIT_S)
        except OSError as error:  # the kernel refused to start it: another architecture, no right to execute
            done = machines.Result(126, b"", f"{argv[0]}: {error.strerror}".encode())
        if done.code == 0:
            lacking = probes.lacking(argv, self.expected, done)
            if not lacking:
                return
            known = _known_reason(done)
            raise errors.Problem(
                "release-does-not-run",
                f"{self.id}: {lacking}" + (f": {known}" if known else ""),
                hint="nothing was switched: what was in use stays in use",
            )
        raise errors.Problem(
            "release-does-not-run",
            f"{self.id}: {argv[0]} does not run on this node: {_reason(done)}",
            hint="nothing was switched: what was in use stays in use",
            exit_status=done.code,
            line=_telling_line(done) or None,
        )


def _reason(done: machines.Result) -> str:
    if done.code in _SIGILL:
        return "it was built for another CPU (illegal instruction)"
    known = _known_reason(done)
    if known:
        return known
    if done.code == _TIMED_OUT:
        return f"it did not end within {_PROBE_LIMIT_S:.0f} s"
    line = _telling_line(done)
    if done.code == _NOT_FOUND:
        return line or "the program was not found"
    ended = f"signal {-done.code}" if done.code < 0 else f"exit status {done.code}"
    return f"{ended}: {line}" if line else ended


def _known_reason(done: machines.Result) -> str:
    found = ((re.search(pattern, done.words), words) for pattern, words in _REASONS)
    return next((words.format(*match.groups()) for match, words in found if match), "")


def _telling_line(done: machines.Result) -> str:
    """The first line that names a failure, or else the first line."""
    lines = [line.strip() for line in done.words.splitlines() if line.strip()]
    return next((line for line in lines if re.search(_TELLING, line)), lines[0] if lines else "")[:_LINE_LIMIT]
