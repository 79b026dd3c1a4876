"""A directory with a given mode and owner. What is in it belongs to others: it is removed only when empty."""

from __future__ import annotations

import stat
from typing import AbstractSet, ClassVar, Optional

from wattherd import machine as machines
from wattherd import units
from wattherd.records import dataclass
from wattherd.resources import base, place


@dataclass(frozen=True)
class Directory(base.Resource):
    TYPE: ClassVar[str] = "directory"

    path: str
    mode: str = "0755"
    owner: str = "root"
    group: str = "root"

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", place.plain_path(f"directory:{self.path}", self.path))
        place.mode_bits(self.id, self.mode)

    @property
    def id(self) -> str:
        return f"directory:{self.path}"

    def wanted(self) -> base.State:
        return {"mode": f"{self._mode():04o}", "owner": self.owner, "group": self.group}

    def actual(self, machine: machines.Machine) -> Optional[base.State]:
        found = machine.lstat(self.path)
        if found is None:
            return None
        return place.rights(machine, found) if stat.S_ISDIR(found.st_mode) else {"kind": place.kind(found)}

    def preflight(self, machine: machines.Machine, state: Optional[base.State]) -> None:
        if base.delta(self.wanted(), state):
            place.check_folders(machine, self.id, self.path)
            self._check_kind(machine)

    def fix(self, machine: machines.Machine, delta: base.Delta, tell: base.Tell) -> None:  # noqa: ARG002 - one surface for every type
        self._check_kind(machine)
        place.need_folder(machine, self.id, self.path)
        owner = machine.owner_ids(self.owner, self.group)
        if not machine.exists(self.path):
            with machines.no_space(self.path):
                machine.make_dirs(self.path, mode=0o700)  # nobody looks in before the owner is right
        place.set_rights(machine, self.path, self._mode(), owner)

    def kept(self, machine: machines.Machine, gone: AbstractSet[str], made: AbstractSet[str] = frozenset()) -> str:  # noqa: ARG002 - as everywhere
        left = [name for name in machine.names(self.path) if f"{self.path}/{name}" not in gone]
        return f"{units.plural(len(left), 'thing')} in it that Wattherd did not make" if left else ""

    def remove(self, machine: machines.Machine, tell: base.Tell) -> None:
        found = machine.lstat(self.path)
        if found is None:
            return
        if not stat.S_ISDIR(found.st_mode):
            tell(f"{self.path} is {place.kind(found)} by now: left as it is")
        elif not machine.rmdir(self.path):
            tell(f"{self.path} is not empty ({units.plural(len(machine.names(self.path)), 'thing')} in it): left as it is")

    def _mode(self) -> int:
        return place.mode_bits(self.id, self.mode)

    def _check_kind(self, machine: machines.Machine) -> None:
        found = machine.lstat(self.path)
        if found is not None and not stat.S_ISDIR(found.st_mode):
            raise place.conflict(self.id, self.path, found, "a directory")
