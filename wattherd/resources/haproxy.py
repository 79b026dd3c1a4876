"""HAProxy's configuration: a folder of files that is checked before it is taken, and reloaded without cutting a stream.

What runs says itself from which files it was loaded: their digest stands in its environment, asked over the master's socket. So a
reload is due whenever that digest is another one, never because "a file changed in this run".
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import stat
from typing import ClassVar, Dict, Iterator, List, Mapping, Optional, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.records import dataclass, field
from wattherd.resources import base, listeners, place, runtime, scratch, systemd

#: The file of the folder that HAProxy is given; it names the others without a path.
MAIN = "haproxy.cfg"
LOADED = "WATTHERD_LOADED"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_STAMP = re.compile(rb"\nglobal\n    setenv WATTHERD_LOADED ([0-9a-f]{64})\n\Z")
#: Answers of one served instance each.
_ANSWER = re.compile(r"[0-9]{3}-[A-Za-z0-9._-]+\.http\Z")
#: Checking a configuration binds nothing, so an address that is not this node's would be found out by the reload alone.
_BOUND = re.compile(r"(?m)^\s*bind \[?(\S+?)\]?:[0-9]+(?=\s|$)")
_RELOAD_LIMIT_S = 60.0
_PAUSE_S = 0.25
_CHECK_LIMIT_S = 60.0


@dataclass(frozen=True)
class Haproxy(base.Resource):
    """`files` are names and what is in them; `beside` are files of others that it reads too (keys), whose change is a reload.

    `binds` are its ports, `socket` is the master's own. A proxy that does not run reads everything when it starts: nothing is to
    be reloaded then. Nor where its unit is to be restarted, because it was started from other inputs than `started_as`: what it is to read
    may need what it lacks.
    """

    TYPE: ClassVar[str] = "haproxy"

    folder: str
    files: Mapping[str, str] = field(repr=False)
    unit: str
    socket: str
    program: str = "/usr/sbin/haproxy"
    beside: Tuple[str, ...] = ()
    binds: Tuple[int, ...] = ()
    started_as: str = ""
    owner: str = "root"
    group: str = "root"

    def __post_init__(self) -> None:
        place.plain_path(self.id, self.folder)
        wrong = next((name for name in self.files if not _NAME.match(name)), None)
        if wrong is not None or MAIN not in self.files:
            raise errors.Problem("manifest-invalid", f"{self.id}: plain file names are wanted, {MAIN} among them, not {wrong!r}")

    @property
    def id(self) -> str:
        return f"haproxy:{self.folder}"

    def wanted(self) -> base.State:
        sums = {name: _sum(text.encode()) for name, text in self.files.items()}
        return {**sums, "rights": f"0644 {self.owner}:{self.group}", "stamped": True, "loaded": True}

    def actual(self, machine: machines.Machine) -> Optional[base.State]:
        sums: Dict[str, Optional[str]] = {}
        rights: List[str] = []
        for name in self.files:
            found, body = machine.lstat(self._path(name)), self._read(machine, name)
            sums[name] = None if body is None else _sum(_STAMP.sub(b"", body) if name == MAIN else body)
            if found is not None:
                seen = place.rights(machine, found)
                rights.append(f"{seen['mode']} {seen['owner']}:{seen['group']}")
        if not rights:
            return None
        stamp = self._stamp_on_disk(machine)
        return {
            **sums,
            "rights": next((one for one in rights if one != rights[0]), rights[0]),
            "stamped": stamp == self._digest_on_disk(machine),
            "loaded": self._is_loaded(machine, stamp),
        }

    def preflight(self, machine: machines.Machine, state: Optional[base.State]) -> None:
        if not base.delta(self.wanted(), state):
            return
        for name in self.files:
            found = machine.lstat(self._path(name))
            if found is not None and not stat.S_ISREG(found.st_mode):
                raise place.conflict(self.id, self._path(name), found, "a file")
        # Not `ports`: an instance that goes leaves the proxy first, and is drained when nothing new can come.
        if self.binds:
            listeners.check_free(machine, self.id, self.binds, self.unit, beside_ours=True)
        listeners.check_addresses(self.id, _BOUND.findall(self.files[MAIN]))
        if self._can_check(machine):
            self._check(machine)

    def fix(self, machine: machines.Machine, delta: base.Delta, tell: base.Tell) -> None:  # noqa: ARG002 - one surface for every type
        place.need_folder(machine, self.id, self._path(MAIN))
        if self._can_check(machine):
            self._check(machine)
        before = {name: self._read(machine, name) for name in (*self.files, *self._left(machine))}
        bodies = {name: text.encode() for name, text in self.files.items()}
        self._write(machine, {**dict.fromkeys(before), **bodies, MAIN: bodies[MAIN] + self._stamp(machine)})
        try:
            self._reload(machine, tell)
        except errors.Problem:
            # It is sound, and still what runs could not take it (an address that is not this node's): what it had stays what it has.
            self._write(machine, before)
            machine.run(["systemctl", "reload", self.unit], timeout_s=_RELOAD_LIMIT_S)
            raise

    def takes(self) -> Tuple[str, ...]:
        return tuple(self._path(name) for name in self.files)

    def remove(self, machine: machines.Machine, tell: base.Tell) -> None:  # noqa: ARG002 - one surface for every type
        for name in (*self.files, *self._left(machine)):
            machine.unlink(self._path(name))

    def texts(self, machine: machines.Machine) -> Tuple[str, str]:
        old, new = "", ""
        for name, text in sorted(self.files.items()):
            body = self._read(machine, name)
            old += f"--- {name}\n" + _STAMP.sub(b"", body or b"").decode("utf-8", "replace") if body is not None else ""
            new += f"--- {name}\n" + text
        return old, new

    # -- the files

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def _read(self, machine: machines.Machine, name: str) -> Optional[bytes]:
        found = machine.lstat(self._path(name))
        return machine.read(self._path(name)) if found is not None and stat.S_ISREG(found.st_mode) else None

    def _digest(self, machine: machines.Machine, bodies: Mapping[str, bytes]) -> str:
        """Over our own files and what lies beside them, as it is on this node now."""
        summing = hashlib.sha256()
        for name in sorted(bodies):
            summing.update(f"{name}\0{_sum(bodies[name])}\n".encode())
        for path in self.beside:
            summing.update(f"{path}\0{_sum(machine.read(path) or b'')}\n".encode())
        return summing.hexdigest()

    def _digest_on_disk(self, machine: machines.Machine) -> str:
        bodies = {name: self._read(machine, name) or b"" for name in self.files}
        return self._digest(machine, {**bodies, MAIN: _STAMP.sub(b"", bodies[MAIN])})

    def _stamp_on_disk(self, machine: machines.Machine) -> str:
        found = _STAMP.search(self._read(machine, MAIN) or b"")
        return found.group(1).decode() if found else ""

    def _stamp(self, machine: machines.Machine) -> bytes:
        digest = self._digest(machine, {name: text.encode() for name, text in self.files.items()})
        return f"\nglobal\n    setenv {LOADED} {digest}\n".encode()

    def _write(self, machine: machines.Machine, bodies: Mapping[str, Optional[bytes]]) -> None:
        """Each file whole or not at all, the one that names the others last. None goes."""
        owner = machine.owner_ids(self.owner, self.group)
        for name in sorted(bodies, key=lambda name: name == MAIN):
            place.sweep(machine, self._path(name))
            body = bodies[name]
            if body is None:
                machine.unlink(self._path(name))
            else:
                machine.write(self._path(name), body, owner=owner)

    def _left(self, machine: machines.Machine) -> Tuple[str, ...]:
        """Answers of instances that are no longer served; whatever else lies in the folder is somebody's own."""
        return tuple(name for name in machine.names(self.folder) if _ANSWER.match(name) and name not in self.files)

    # -- is it sound

    def _can_check(self, machine: machines.Machine) -> bool:
        """Not before the package is there, nor before the keys that it names are."""
        return machine.exists(self.program) and all(machine.exists(path) for path in self.beside)

    def _check(self, machine: machines.Machine) -> None:
        with self._candidate(machine) as folder:
            done = machine.run([self.program, "-c", "-C", machine.path(folder), "-f", MAIN], timeout_s=_CHECK_LIMIT_S)
        if done.code != 0:
            lines = [line.strip() for line in done.words.splitlines() if line.strip()]
            told = [line for line in lines if "[ALERT]" in line] or lines
            raise errors.Problem(
                "proxy-config",
                f"{self.id}: HAProxy does not take it: {' / '.join(told[:3])[:600] or f'exit status {done.code}'}",
                hint="what runs now was left as it is, and so were its files",
            )

    @contextlib.contextmanager
    def _candidate(self, machine: machines.Machine) -> Iterator[str]:
        with scratch.folder(machine, "haproxy") as folder:
            machine.make_dirs(folder, 0o700)
            for name, text in self.files.items():
                machine.write(f"{folder}/{name}", text.encode())
            yield folder

    # -- is it loaded

    def _running(self, machine: machines.Machine) -> str:
        """The digest that the newest worker was loaded from; empty when no proxy runs, words when it does not tell."""
        found = runtime.workers(machine, self.socket)
        if found is None:
            return "no answer" if runtime.listens(machine, self.socket) else ""
        answer = runtime.tell_worker(machine, self.socket, found.every[0], f"show env {LOADED}") or ""
        match = re.search(rf"{LOADED}=([0-9a-f]{{64}})", answer)
        return match.group(1) if match else "another configuration"

    def _is_loaded(self, machine: machines.Machine, stamp: str) -> bool:
        if self._running(machine) in {"", stamp}:
            return True
        pid = systemd.look_one(machine, self.unit).pid if self.started_as else 0
        return bool(pid) and systemd.started_with(machine, pid) != self.started_as

    def _reload(self, machine: machines.Machine, tell: base.Tell) -> None:
        wanted, begun_s, since_s = self._stamp_on_disk(machine), machine.monotonic_s(), machine.now_s()
        if self._is_loaded(machine, wanted):
            return
        tell(f"reloading {self.unit}: what runs ends in its own time")
        machine.run(["systemctl", "reset-failed", self.unit])
        done = machine.run(["systemctl", "reload", self.unit], timeout_s=_RELOAD_LIMIT_S)
        while done.code == 0 and self._running(machine) != wanted:
            waited_s = machine.monotonic_s() - begun_s
            if waited_s >= _RELOAD_LIMIT_S:
                break
            tell(f"waiting for {self.unit} to load it", waited_s, _RELOAD_LIMIT_S, "s")
            machine.wait(_PAUSE_S)
        if self._running(machine) not in {"", wanted}:
            line = systemd.why_it_failed(machine, self.unit, "", since_s)
            raise errors.Problem(
                "proxy-config",
                f"{self.id}: HAProxy did not load it{': ' if line else ''}{line}",
                hint=f"it goes on with what it had; journalctl -u {self.unit} -n 50 shows the rest",
            )


def _sum(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
