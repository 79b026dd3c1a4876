"""A file whose content is a secret: the manifest names only its place, rights and a salted digest.

The content comes apart from the manifest (node/secrets.py) and lies in KEPT under its digest, for root alone, as long as a generation names
it: so a rollback needs no controller that still knows the old secret. Nothing here shows a byte of it: not in a state, a diff or an error.
"""

from __future__ import annotations

import hashlib
import re
import stat
from typing import ClassVar, Optional

from wattherd import errors, store
from wattherd import machine as machines
from wattherd.records import dataclass
from wattherd.resources import base, place

KEPT = store.HOME + "/secrets"
LIMIT_BYTES = 64 * 1024
#: The digest stands in manifests and generations, and what a unit was started from is readable by everyone: guessing a weak key from
#: it must be dear. 25 ms for one secret on an old core.
_ROUNDS = 50_000
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
#: What systemd reads as special within double quotes of an environment file.
_ESCAPED = re.compile(r'(["\\$`])')
_AS_WANTED, _ANOTHER = "as wanted", "another"
#: The variable that llama-server and the children of a router take their keys from.
API_KEY = "LLAMA_API_KEY"


@dataclass(frozen=True)
class Secret(base.Resource):
    """`salt` is the host's name: with the path it makes one key's digest another on every host and in every file."""

    TYPE: ClassVar[str] = "secret"

    path: str
    digest: str
    salt: str
    mode: str = "0600"
    owner: str = "root"
    group: str = "root"

    def __post_init__(self) -> None:
        if place.plain_path(f"secret:{self.path}", self.path) != self.path:
            raise errors.Problem("manifest-invalid", f"{self.id}: the path of a file does not end in '/'")
        if place.mode_bits(self.id, self.mode) & 0o007:
            raise errors.Problem("manifest-invalid", f"{self.id}: mode {self.mode} lets everyone on the node at a secret")
        if not _DIGEST.match(self.digest):
            raise errors.Problem("manifest-invalid", f"{self.id}: its digest is not 64 hexadecimal digits")

    @property
    def id(self) -> str:
        return f"secret:{self.path}"

    @property
    def kept_path(self) -> str:
        return f"{KEPT}/{self.digest}"

    def wanted(self) -> base.State:
        return {"content": _AS_WANTED, "mode": f"{self._mode():04o}", "owner": self.owner, "group": self.group}

    def actual(self, machine: machines.Machine) -> Optional[base.State]:
        found = machine.lstat(self.path)
        if found is None:
            return None
        if not stat.S_ISREG(found.st_mode):
            return {"kind": place.kind(found)}
        body = machine.read(self.path) if found.st_size <= LIMIT_BYTES else None
        same = body is not None and self.fits(body)
        return {"content": _AS_WANTED if same else _ANOTHER, **place.rights(machine, found)}

    def preflight(self, machine: machines.Machine, state: Optional[base.State]) -> None:
        if base.delta(self.wanted(), state):
            place.check_folders(machine, self.id, self.path)
            self._check_kind(machine)

    def fix(self, machine: machines.Machine, delta: base.Delta, tell: base.Tell) -> None:  # noqa: ARG002 - one surface for every type
        self._check_kind(machine)
        place.need_folder(machine, self.id, self.path)
        owner = machine.owner_ids(self.owner, self.group)
        if "content" not in delta:
            place.set_rights(machine, self.path, self._mode(), owner)
            return
        body = machine.read(self.kept_path)
        if body is None or not self.fits(body):
            machine.unlink(self.kept_path)
            raise errors.Problem(
                "secret-missing",
                f"{self.id}: this node does not hold the secret that its manifest names",
                hint="run the deploy again: the controller then sends it",
            )
        place.sweep(machine, self.path)
        machine.write(self.path, body, mode=self._mode(), owner=owner)

    def remove(self, machine: machines.Machine, tell: base.Tell) -> None:
        found = machine.lstat(self.path)
        if found is not None and not stat.S_ISREG(found.st_mode):
            tell(f"{self.path} is {place.kind(found)} by now: left as it is")
            return
        machine.unlink(self.path)

    def fits(self, body: bytes) -> bool:
        return digest_of(body, self.salt, self.path) == self.digest

    def _mode(self) -> int:
        return place.mode_bits(self.id, self.mode)

    def _check_kind(self, machine: machines.Machine) -> None:
        found = machine.lstat(self.path)
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise place.conflict(self.id, self.path, found, "a file")


def digest_of(body: bytes, salt: str, path: str) -> str:
    """The secret's name: slow to compute on purpose, and of no use for another host or path."""
    return hashlib.pbkdf2_hmac("sha256", body, f"wattherd secret\0{salt}\0{path}".encode(), _ROUNDS).hex()


def environment_line(name: str, value: str) -> str:
    """One line of an EnvironmentFile= that gives exactly this value (systemd.exec(5))."""
    return f"{name}={quoted(value)}\n"


def quoted(value: str) -> str:
    escaped = _ESCAPED.sub(r"\\\1", value)
    return f'"{escaped}"'


def environment_value(text: str, name: str) -> str:
    """The value that `environment_line` wrote; empty when the name is not there."""
    found = re.search(rf'^{re.escape(name)}="((?:[^"\\]|\\.)*)"$', text, re.MULTILINE)
    return re.sub(r"\\(.)", r"\1", found.group(1)) if found else ""


def api_key(text: str) -> str:
    """One key of a server's environment file, fit for a header: any of several opens. Empty where there is none.

    A key that no header carries would else stand in the error of whoever tried to send it.
    """
    key = environment_value(text, API_KEY).partition(",")[0]
    return key if key.isascii() and key.isprintable() else ""
