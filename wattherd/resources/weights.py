"""A GGUF that lies on the node already, or on a read-only mount there: checked, and given the name that servers use. Never touched.

The name is a link in Wattherd's own folder; removal takes the link. All parts of a split model are one resource, since only all of
them together are a model.
"""

from __future__ import annotations

import os
import posixpath
import stat
from typing import ClassVar, List, Optional, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.records import dataclass
from wattherd.resources import adoption, base, place

_SOUND = "sound"


@dataclass(frozen=True)
class Weights(base.Resource):
    """`paths` become links to `places`, in order. `digests` are the places' sha256, or () when nobody has pinned them.

    What the catalogue says (architecture, quantisation, context; '' and 0 are not said) is compared with the header. `kind` is model,
    projector or adapter.
    """

    TYPE: ClassVar[str] = "weights"

    paths: Tuple[str, ...]
    places: Tuple[str, ...]
    digests: Tuple[str, ...] = ()
    kind: str = "model"
    architecture: str = ""
    quantisation: str = ""
    context: int = 0

    def __post_init__(self) -> None:
        for path in (*self.paths, *self.places):
            place.plain_path(self.id, path)
        if not self.paths or len(self.paths) != len(self.places) or len(self.digests) not in (0, len(self.places)):
            raise errors.Problem("manifest-invalid", f"weights:{self.paths[:1]}: as many paths as places, and digests for all or none")

    @property
    def id(self) -> str:
        return f"weights:{self.paths[0] if self.paths else ''}"

    def wanted(self) -> base.State:
        return {"places": list(self.places), "content": _SOUND}

    def actual(self, machine: machines.Machine) -> Optional[base.State]:
        links = [machine.readlink(path) for path in self.paths]
        if not any(links) and not any(machine.exists(path) for path in self.paths):
            return None
        return {"places": links, "content": self._fault(machine) or _SOUND}

    def is_new(self, machine: machines.Machine, state: Optional[base.State]) -> bool:
        """A link that leads to another place is one of ours from an earlier run; a real file is not."""
        del state
        return all(not machine.exists(path) or machine.readlink(path) is not None for path in self.paths)

    def ours(self, machine: machines.Machine) -> bool:
        return any(machine.readlink(path) in self.places for path in self.paths)

    def preflight(self, machine: machines.Machine, state: Optional[base.State]) -> None:
        del state
        for path in self.paths:
            found = machine.lstat(path)
            if found is not None and not stat.S_ISLNK(found.st_mode):
                raise place.conflict(self.id, path, found, "a link to the model's place")
        self._check(machine)

    def fix(self, machine: machines.Machine, delta: base.Delta, tell: base.Tell) -> None:
        del delta
        if self.digests:
            tell(f"comparing {posixpath.basename(self.places[0])} with its sha256", 0, self._size_bytes(machine), "bytes")
        self._check(machine)
        for path, target in zip(self.paths, self.places):
            machine.make_dirs(posixpath.dirname(path))
            if machine.readlink(path) != target:
                machine.symlink(path, target)

    def takes(self) -> Tuple[str, ...]:
        return self.paths

    def remove(self, machine: machines.Machine, tell: base.Tell) -> None:
        """The links go. What they lead to stays."""
        del tell
        for path in self.paths:
            if machine.readlink(path) is not None:
                machine.unlink(path)

    def _size_bytes(self, machine: machines.Machine) -> int:
        sizes = [os.stat(machine.path(one)).st_size for one in self.places if os.path.exists(machine.path(one))]
        return sum(sizes)

    def _fault(self, machine: machines.Machine) -> str:
        """What is wrong with what lies there, in words; '' when nothing is."""
        try:
            self._check(machine)
        except errors.Problem as problem:
            return f"({problem.code}: {problem.message})"
        return ""

    def _check(self, machine: machines.Machine) -> None:
        """Missing parts first, all of them; then digests, or the headers where nothing is pinned."""
        missing = [one for one in self.places if not os.path.isfile(machine.path(one))]
        if missing:
            raise errors.Problem(
                "artifact-missing",
                f"{', '.join(missing[:4])}{f' and {len(missing) - 4} more' if len(missing) > 4 else ''} is not there, or is no file",
                hint="path: means a file that is already on the node: is its disk or network share mounted? (findmnt)",
                missing=len(missing),
            )
        for one in self.places:
            adoption.check_readable(machine, one)
        for one, digest in zip(self.places, self.digests):
            found = machine.digest(one)
            if found != digest:
                raise errors.Problem(
                    "digest-mismatch",
                    f"{one} has sha256 {found}, and the catalogue pins {digest}",
                    hint="find out which of the two is right; Wattherd never changes a file that is used in place",
                    wanted=digest,
                    found=found,
                )
        self._check_headers(machine)

    def _check_headers(self, machine: machines.Machine) -> None:
        # Only here: a session that has no model in place never loads the reader.
        from wattherd.gguf import check, header, kinds, split

        found: List[header.Header] = []
        count = len(self.places)
        for number, one in enumerate(self.places, 1):
            read = check.read(machine.path(one), one, paths_hint="path: names a file on the node")
            if count > 1 or read.split_count > 1:
                split.check_part(posixpath.basename(one), read, number, count, one)
            found.append(read)
        whole = header.joined(found)
        if self.kind == "model":
            kinds.servable(whole, self.places[0])
        elif whole.kind != self.kind:
            raise errors.Problem(
                "gguf-not-servable", f"{self.places[0]} is no {self.kind}: its header says {whole.kind}", hint="name the right file"
            )
        kinds.check_said(self.places[0], self.architecture, self.quantisation, self.context, whole)
