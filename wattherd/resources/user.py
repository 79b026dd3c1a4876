"""A user, the group of the same name, and membership in further groups.

Groups that are not listed are left alone, and so is the home of a user that goes: data is not ours. On the real root the
name service is asked, so that users of a directory service count; under another root its own passwd and group are read.
"""

from __future__ import annotations

import grp
import pwd
import re
from typing import ClassVar, List, Optional, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.records import dataclass
from wattherd.resources import base

_NAME = r"[a-z_][a-z0-9_-]{0,31}\Z"
#: One field of a line in /etc/passwd.
_FIELD = r"[^:\n\x00-\x1f]*\Z"


@dataclass(frozen=True)
class Account:
    uid: int
    gid: int
    comment: str
    home: str
    shell: str


@dataclass(frozen=True)
class Group:
    gid: int
    members: Tuple[str, ...]


@dataclass(frozen=True)
class User(base.Resource):
    """`home` None asks for none: a new system user gets /nonexistent, a person's /home/NAME; one that exists keeps its own."""

    TYPE: ClassVar[str] = "user"

    name: str
    system: bool = True
    shell: str = "/usr/sbin/nologin"
    home: Optional[str] = None
    groups: Tuple[str, ...] = ()
    comment: str = ""

    def __post_init__(self) -> None:
        for name in (self.name, *self.groups):
            if not re.match(_NAME, name):
                raise errors.Problem("manifest-invalid", f"user:{self.name}: {name!r} is not a name that useradd takes")
        for value in (self.shell, self.home or "", self.comment):
            if not re.match(_FIELD, value):
                raise errors.Problem("manifest-invalid", f"user:{self.name}: {value!r} does not fit in a line of /etc/passwd")

    @property
    def id(self) -> str:
        return f"user:{self.name}"

    @property
    def _every_group(self) -> Tuple[str, ...]:
        return tuple(dict.fromkeys((self.name, *self.groups)))

    def wanted(self) -> base.State:
        return self._state(self.shell, self.home, self.comment, self._every_group)

    def actual(self, machine: machines.Machine) -> Optional[base.State]:
        account = _account(machine, self.name)
        if account is None:
            return None
        return self._state(account.shell, account.home, account.comment, self._joined(machine, account))

    def fix(self, machine: machines.Machine, delta: base.Delta, tell: base.Tell) -> None:  # noqa: ARG002 - one surface for every type
        self._need_groups(machine)
        account = _account(machine, self.name)
        if account is None:
            self._add(machine)
        else:
            self._change(machine, account)

    def remove(self, machine: machines.Machine, tell: base.Tell) -> None:
        account = _account(machine, self.name)
        if account is None:
            return
        pids = _processes(machine, account.uid)
        if pids:
            raise errors.Problem(
                "user-busy",
                f"{self.id}: processes of this user still run: {', '.join(pids[:5])}{' and more' if len(pids) > 5 else ''}",
                hint=f"stop them (ps -u {self.name}), then run again; nothing was removed",
            )
        machine.must(["userdel", self.name])
        if account.home not in {"", "/nonexistent"} and machine.exists(account.home):
            tell(f"the home {account.home} of {self.name} was left as it is")

    def _state(self, shell: str, home: Optional[str], comment: str, groups: Tuple[str, ...]) -> base.State:
        """What was not asked for is not compared."""
        state: base.State = {"shell": shell, "groups": ",".join(groups)}
        if self.home is not None:
            state["home"] = home
        if self.comment:
            state["comment"] = comment
        return state

    def _joined(self, machine: machines.Machine, account: Account) -> Tuple[str, ...]:
        found = [(name, _group(machine, name)) for name in self._every_group]
        return tuple(name for name, group in found if group and (group.gid == account.gid or self.name in group.members))

    def _need_groups(self, machine: machines.Machine) -> None:
        missing = [name for name in self.groups if name != self.name and _group(machine, name) is None]
        if missing:
            raise errors.Problem(
                "group-unknown",
                f"{self.id}: this node has no group {' and no group '.join(missing)}",
                hint="a package or driver usually brings it: list that before the user, or take the group from the list",
            )

    def _add(self, machine: machines.Machine) -> None:
        argv = ["useradd", "--shell", self.shell]
        argv += ["--system", "--no-create-home"] if self.system else ["--create-home"]
        # A run that was killed inside useradd can have left the group without its user.
        argv += ["--gid", self.name] if _group(machine, self.name) else ["--user-group"]
        home = self.home or ("/nonexistent" if self.system else "")
        argv += ["--home-dir", home] if home else []
        argv += ["--comment", self.comment] if self.comment else []
        others = [name for name in self.groups if name != self.name]
        argv += ["--groups", ",".join(others)] if others else []
        machine.must([*argv, self.name])

    def _change(self, machine: machines.Machine, account: Account) -> None:
        if _group(machine, self.name) is None:
            machine.must(["groupadd", *(["--system"] if self.system else []), self.name])
        argv: List[str] = []
        if account.shell != self.shell:
            argv += ["--shell", self.shell]
        if self.home is not None and account.home != self.home:
            argv += ["--home", self.home]
        if self.comment and account.comment != self.comment:
            argv += ["--comment", self.comment]
        joined = self._joined(machine, account)
        missing = [name for name in self._every_group if name not in joined]
        if missing:
            argv += ["--append", "--groups", ",".join(missing)]
        if argv:
            machine.must(["usermod", *argv, self.name])


def _account(machine: machines.Machine, name: str) -> Optional[Account]:
    if machine.root:
        row = _row(machine, "/etc/passwd", name, 7)
        return Account(int(row[2]), int(row[3]), row[4], row[5], row[6]) if row else None
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(found.pw_uid, found.pw_gid, found.pw_gecos, found.pw_dir, found.pw_shell)


def _group(machine: machines.Machine, name: str) -> Optional[Group]:
    if machine.root:
        row = _row(machine, "/etc/group", name, 4)
        return Group(int(row[2]), tuple(row[3].split(","))) if row else None
    try:
        found = grp.getgrnam(name)
    except KeyError:
        return None
    return Group(found.gr_gid, tuple(found.gr_mem))


def _row(machine: machines.Machine, path: str, name: str, columns: int) -> Optional[List[str]]:
    rows = (line.split(":") for line in machine.text(path).splitlines() if line.startswith(f"{name}:"))
    return next((row for row in rows if len(row) == columns), None)


def _processes(machine: machines.Machine, uid: int) -> List[str]:
    """The processes that run as this user, whichever of the four user ids it is."""
    found = []
    for pid in machine.names("/proc"):
        if pid.isdigit():
            line = next((line for line in machine.text(f"/proc/{pid}/status").splitlines() if line.startswith("Uid:")), "")
            if str(uid) in line.split()[1:]:
                found.append(pid)
    return found
