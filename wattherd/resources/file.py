"""A file with a given content, mode and owner.

Content and rights arrive together by one rename. What stands at the path and is no file is a conflict, never deleted.
"""

from __future__ import annotations

import hashlib
import stat
from typing import ClassVar, Optional, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.records import dataclass, field
from wattherd.resources import base, place

#: Beyond this a digest comes from the machine's cache, where it is kept; below it reading is as quick as looking it up.
_SMALL_BYTES = 1024 * 1024


@dataclass(frozen=True)
class File(base.Resource):
    """`encoding` base64 carries bytes that are no text. `sensitive` keeps the content out of every diff."""

    TYPE: ClassVar[str] = "file"

    path: str
    text: str = field(default="", repr=False)
    encoding: str = "utf-8"
    mode: str = "0644"
    owner: str = "root"
    group: str = "root"
    sensitive: bool = False

    def __post_init__(self) -> None:
        if place.plain_path(f"file:{self.path}", self.path) != self.path:
            raise errors.Problem("manifest-invalid", f"{self.id}: the path of a file does not end in '/'")
        place.mode_bits(self.id, self.mode)
        if self.encoding not in {"utf-8", "base64"}:
            raise errors.Problem("manifest-invalid", f"{self.id}: the encoding is utf-8 or base64, not {self.encoding!r}")

    @property
    def id(self) -> str:
        return f"file:{self.path}"

    def wanted(self) -> base.State:
        digest = hashlib.sha256(self._body()).hexdigest()
        return {"sha256": digest, "mode": f"{self._mode():04o}", "owner": self.owner, "group": self.group}

    def actual(self, machine: machines.Machine) -> Optional[base.State]:
        found = machine.lstat(self.path)
        if found is None:
            return None
        if not stat.S_ISREG(found.st_mode):
            return {"kind": place.kind(found)}
        return {"sha256": self._digest(machine, found.st_size), **place.rights(machine, found)}

    def preflight(self, machine: machines.Machine, state: Optional[base.State]) -> None:
        if base.delta(self.wanted(), state):
            place.check_folders(machine, self.id, self.path)
            self._check_kind(machine)

    def fix(self, machine: machines.Machine, delta: base.Delta, tell: base.Tell) -> None:  # noqa: ARG002 - one surface for every type
        self._check_kind(machine)
        place.need_folder(machine, self.id, self.path)
        owner = machine.owner_ids(self.owner, self.group)
        if "sha256" not in delta:
            place.set_rights(machine, self.path, self._mode(), owner)
            return
        place.sweep(machine, self.path)
        machine.write(self.path, self._body(), mode=self._mode(), owner=owner)

    def remove(self, machine: machines.Machine, tell: base.Tell) -> None:
        found = machine.lstat(self.path)
        if found is not None and not stat.S_ISREG(found.st_mode):
            tell(f"{self.path} is {place.kind(found)} by now: left as it is")
            return
        machine.unlink(self.path)

    def texts(self, machine: machines.Machine) -> Tuple[str, str]:
        found = machine.lstat(self.path)
        if self.sensitive or (found is not None and (not stat.S_ISREG(found.st_mode) or found.st_size > place.TEXT_LIMIT_BYTES)):
            return "", ""
        return place.both_shown(machine.read(self.path) if found else None, self._body())

    def _mode(self) -> int:
        return place.mode_bits(self.id, self.mode)

    def _body(self) -> bytes:
        import base64

        try:
            return base64.b64decode(self.text, validate=True) if self.encoding == "base64" else self.text.encode("utf-8")
        except ValueError as error:
            raise errors.Problem("manifest-invalid", f"{self.id}: the text is not {self.encoding}") from error

    def _digest(self, machine: machines.Machine, size_bytes: int) -> Optional[str]:
        if size_bytes > _SMALL_BYTES:
            return machine.digest(self.path)
        body = machine.read(self.path)
        return None if body is None else hashlib.sha256(body).hexdigest()

    def _check_kind(self, machine: machines.Machine) -> None:
        found = machine.lstat(self.path)
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise place.conflict(self.id, self.path, found, "a file")
