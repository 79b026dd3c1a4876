"""This very program, kept on the node for a resident of it: copied out of the program cache, which may be deleted at any time.

Each version lies under its digest beside the last ones, and `current` leads to the one in use. Knows nothing of what the resident does.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import re
import stat
from typing import ClassVar, List, Optional, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.records import dataclass
from wattherd.resources import base, place, tree

HOME = "/opt/wattherd/program"
CURRENT = HOME + "/current"
#: Where sessions of root keep theirs (link/boot.py).
CACHE = "/var/cache/wattherd/program"
#: The one in use and those that a rollback goes back to.
KEPT = 3
_ZIP = "program.zip"
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}\Z")


@dataclass(frozen=True)
class Program(base.Resource):
    """`name` is the resident's, `digest` the sha256 of the zip of the program that the controller runs with.

    Where that program is nowhere on the node (a rollback by a later controller), the one that runs this session serves in its stead:
    `notes` says so, and the next deploy that brings the one named puts it right.
    """

    TYPE: ClassVar[str] = "program"
    #: Where the one in use is found.
    PLACE: ClassVar[str] = CURRENT

    name: str
    digest: str

    def __post_init__(self) -> None:
        if not _NAME.match(self.name) or not _DIGEST.match(self.digest):
            raise errors.Problem("manifest-invalid", f"{self.id}: a program has a plain name and the sha256 of its zip")

    @property
    def id(self) -> str:
        return f"program:{self.name}"

    @property
    def folder(self) -> str:
        return f"{HOME}/{self.digest}"

    def wanted(self) -> base.State:
        return {"digest": self.digest}

    def actual(self, machine: machines.Machine) -> Optional[base.State]:
        found = machine.lstat(CURRENT)
        if found is None:
            return None
        if not stat.S_ISLNK(found.st_mode):
            return {"kind": place.kind(found)}
        led = posixpath.basename(machine.readlink(CURRENT) or "")
        if not is_whole(machine, led):
            return {"digest": "(damaged)"}
        serves = self._choose(machine)
        return {"digest": self.digest if serves is not None and led == serves[0] else led}

    def preflight(self, machine: machines.Machine, state: Optional[base.State]) -> None:
        if not base.delta(self.wanted(), state):
            return
        place.check_folders(machine, self.id, CURRENT)
        found = machine.lstat(CURRENT)
        if found is not None and not stat.S_ISLNK(found.st_mode):
            raise place.conflict(self.id, CURRENT, found, "a symbolic link")

    def notes(self, machine: machines.Machine) -> Tuple[str, ...]:
        serves = self._choose(machine)
        if serves is None or serves[0] == self.digest:
            return ()
        return (f"the program {self.digest[:12]} is not on this node any more; {self.name} runs with {serves[0][:12]}, which runs this",)

    def fix(self, machine: machines.Machine, delta: base.Delta, tell: base.Tell) -> None:  # noqa: ARG002 - one surface for every type
        self.preflight(machine, None)
        serves = self._choose(machine)
        if serves is None:
            raise errors.Problem(
                "artifact-missing",
                f"{self.id}: the program {self.digest[:12]} is neither in {CACHE} nor what runs this session",
                hint="deploy again: each session brings its program along",
            )
        digest, body = serves
        _sweep(machine)
        if body is not None:
            _install(machine, digest, body)
        place.sweep(machine, CURRENT)
        with machines.no_space(CURRENT):
            machine.symlink(CURRENT, digest)
        _prune(machine, digest)

    def ours(self, machine: machines.Machine) -> bool:
        return any(tree.is_marked(machine, f"{HOME}/{name}") for name in machine.names(HOME))

    def takes(self) -> Tuple[str, ...]:
        return (CURRENT, HOME)

    def gone(self, machine: machines.Machine) -> bool:
        return not own(machine)

    def remove(self, machine: machines.Machine, tell: base.Tell) -> None:  # noqa: ARG002 - as above
        for path in own(machine):
            if path == CURRENT:
                machine.unlink(path)
            else:
                _take(machine, path)
        machine.rmdir(HOME)

    def _choose(self, machine: machines.Machine) -> Optional[Tuple[str, Optional[bytes]]]:
        """Which program to have, and its zip where it must be unpacked first. None: there is none to be had."""
        if is_whole(machine, self.digest):
            return self.digest, None
        own_zip = _running_zip()
        for found in (machine.read(f"{CACHE}/{self.digest}/{_ZIP}"), own_zip):
            if found is not None and hashlib.sha256(found).hexdigest() == self.digest:
                return self.digest, found
        if own_zip is None:
            return None
        digest = hashlib.sha256(own_zip).hexdigest()
        return digest, None if is_whole(machine, digest) else own_zip


def is_whole(machine: machines.Machine, name: str) -> bool:
    """The folder of that digest holds the zip of that digest, and every file of it."""
    folder = f"{HOME}/{name}"
    if not _DIGEST.match(name) or tree.marker(machine, folder).get("digest") != name or not machine.exists(f"{folder}/{_ZIP}"):
        return False
    return machine.digest(f"{folder}/{_ZIP}") == name and not tree.gap(machine, folder, tree.marker(machine, folder))


def own(machine: machines.Machine) -> List[str]:
    """Everything here that is ours by its name and mark, the link first."""
    names = machine.names(HOME)
    link = [CURRENT] if _DIGEST.match(posixpath.basename(machine.readlink(CURRENT) or "")) else []
    marked = [name for name in names if _DIGEST.match(name) and tree.is_marked(machine, f"{HOME}/{name}")]
    return [*link, *(f"{HOME}/{name}" for name in names if tree.is_half(name) or name in marked)]


def _running_zip() -> Optional[bytes]:
    """The zip that this very process was unpacked from; None in a checkout."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(errors.__file__)))
    with contextlib.suppress(OSError), open(os.path.join(folder, _ZIP), "rb") as stream:
        return stream.read()
    return None


def _install(machine: machines.Machine, digest: str, body: bytes) -> None:
    """Unpack beside, compile, mark, rename: a power cut leaves the whole of it, or a half one under another name."""
    import compileall
    import io
    import zipfile

    path, new = f"{HOME}/{digest}", f"{HOME}/.{digest}.new"
    machine.make_dirs(new)
    sizes = {_ZIP: len(body)}
    with machines.no_space(path):
        with zipfile.ZipFile(io.BytesIO(body)) as packed:
            packed.extractall(machine.path(new))
            sizes.update({one.filename: one.file_size for one in packed.infolist() if not one.is_dir()})
        compileall.compile_dir(machine.path(new), quiet=2, ddir=path)
        machine.write(f"{new}/{_ZIP}", body, mode=0o600)
        tree.mark(machine, new, digest, "", sizes)
        os.sync()
    if machine.exists(path):
        _take(machine, path)
    machine.rename(new, path)


def _take(machine: machines.Machine, path: str) -> None:
    """Out of sight first, so that nothing half deleted is ever found under its name."""
    folder, name = posixpath.split(path)
    old = path if tree.is_half(name) else f"{folder}/.{name}.old"
    if old != path:
        if machine.exists(old):
            machine.remove_tree(old)
        machine.rename(path, old)
    machine.remove_tree(old)


def _sweep(machine: machines.Machine) -> None:
    for name in machine.names(HOME):
        if tree.is_half(name):
            machine.remove_tree(f"{HOME}/{name}")


def _prune(machine: machines.Machine, current: str) -> None:
    """The last ones by when they came, and always the one in use."""

    def came_s(name: str) -> float:
        found = machine.lstat(f"{HOME}/{name}/{tree.MARKER}")
        return found.st_mtime if found is not None else 0.0

    old = [name for name in machine.names(HOME) if _DIGEST.match(name) and name != current and tree.is_marked(machine, f"{HOME}/{name}")]
    for name in sorted(old, key=came_s, reverse=True)[KEPT - 1 :]:
        _take(machine, f"{HOME}/{name}")
