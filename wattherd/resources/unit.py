"""A systemd unit: its file, whether it is enabled, whether it runs, and from which inputs its process was started.

A service is restarted because its running process was started from other inputs than the wanted ones: their digest stands
in the process's environment. What has no main process (oneshot, timer, socket, mount) cannot tell; there a changed file
means restart, and a marker keeps that due when a run is killed in between.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import stat
from typing import AbstractSet, Callable, ClassVar, ContextManager, Mapping, Optional, Sequence, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.records import dataclass, field
from wattherd.resources import activation, base, drain, listeners, place, readiness, systemd

#: One file for each unit whose file was written and whose follow-up is not finished: its content is what stood there before.
PENDING = "/var/lib/wattherd/pending"
#: Where packages put theirs, which a file of ours of the same name only covers.
_PACKAGED = ("/usr/lib/systemd/system", "/lib/systemd/system")
_NAME = re.compile(r"[A-Za-z0-9:_.\\-]+(?:@[A-Za-z0-9:_.\\-]+)?\.(?:service|socket|timer|path|mount|automount|swap|slice|target)\Z")
#: File states that enable and disable cannot change: such a unit is as enabled as anyone asks.
_FIXED = frozenset(("static", "generated", "transient", "indirect", "alias"))
#: Types of service that are active only once they said so themselves.
_TELLS_ITSELF = frozenset(("notify", "notify-reload", "dbus"))


@dataclass(frozen=True)
class Unit(base.Resource):
    """`text` empty is a unit that a package brought. `inputs` is the caller's digest of everything that the process starts from.

    `started_from` are ids of resources that the planner turns into `inputs`: a node never sees them.

    A oneshot without RemainAfterExit is inactive after it ran, so `started` means that its last run did not fail, and
    `stopped` that nobody wants it run now; the timer that starts it is a unit of its own.

    `drain` says how the front proxy is told to keep requests away before the process goes (resources/drain.py); `stop_limit_s` how long
    the process may take to end, where that is longer than a process usually takes.
    """

    TYPE: ClassVar[str] = "unit"

    name: str
    text: str = field(default="", repr=False)
    enabled: bool = True
    state: str = "started"
    inputs: str = field(default="", repr=False)
    started_from: Tuple[str, ...] = ()
    ready_url: str = ""
    ready_timeout_s: int = 60
    ports: Tuple[int, ...] = ()
    sensitive: bool = False
    drain: Mapping[str, str] = field(default_factory=dict)
    stop_limit_s: int = activation.STOP_LIMIT_S

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise errors.Problem(
                "unit-invalid", f"unit:{self.name} is not the name of a unit", hint="give the whole name: llama@qwen.service"
            )
        if self.state not in {"started", "stopped"}:
            raise errors.Problem("manifest-invalid", f"{self.id}: the state is started or stopped, not {self.state!r}")
        if self.ready_url:
            readiness.check_url(self.id, self.ready_url)
        if self.drain:
            drain.read(self.id, self.drain)
        if self.text and self.enabled and "\n[Install]" not in f"\n{self.text}":
            raise errors.Problem(
                "unit-invalid",
                f"{self.id} has no [Install] section, so it cannot be enabled",
                hint="add one (WantedBy=multi-user.target), or say enabled=False",
            )

    @property
    def id(self) -> str:
        return f"unit:{self.name}"

    def wanted(self) -> base.State:
        state: base.State = {"sha256": hashlib.sha256(self._body()).hexdigest()} if self.text else {}
        state.update(loaded=True, enabled=self.enabled, active="active" if self._started else "inactive")
        if self._shows_inputs:
            state["inputs"] = self._digest()
        if self._started and self.ready_url:
            state["ready"] = True
        if self._started and self.drain:
            state["admitted"] = True
        return state

    def actual(self, machine: machines.Machine) -> Optional[base.State]:
        return self.observe(machine, [self])[self.id]

    @classmethod
    def observe(cls, machine: machines.Machine, batch: Sequence[Unit]) -> Mapping[str, Optional[base.State]]:
        seen = systemd.look(machine, [one.name for one in batch])
        return {one.id: one.state_of(machine, seen[one.name]) for one in batch}

    def preflight(self, machine: machines.Machine, state: Optional[base.State]) -> None:
        if not base.delta(self.wanted(), state):
            return
        self._check_file(machine)
        if state is not None and state.get("load") == "masked":
            raise self._masked()
        if self._started:
            listeners.check_free(machine, self.id, self.ports, self.name, beside_ours=True)
            listeners.check_addresses(self.id, [readiness.address_of(self.ready_url)] if self.ports and self.ready_url else [])

    def fix(self, machine: machines.Machine, delta: base.Delta, tell: base.Tell) -> None:  # noqa: ARG002 - one surface for every type
        self._check_file(machine)
        seen = systemd.look_one(machine, self.name)
        if seen.masked:
            raise self._masked()
        if self._started:
            listeners.check_free(machine, self.id, self.ports, self.name, beside_ours=False)
        rewritten = self._write(machine)
        seen = self._load(machine, seen, rewritten=rewritten)
        self._enable(machine, seen, again=rewritten)
        if not self._started:
            if not self._rests(seen):
                self._stop(machine, seen, tell)
            machine.unlink(self._marker)
            return
        with self._held(machine, tell) as empty:
            seen = self._start(machine, seen, tell, empty, rewritten=rewritten)
            machine.unlink(self._marker)
            if self.ready_url:
                activation.await_ready(machine, seen, self.ready_url, self.ready_timeout_s, tell)
        if self.drain and self.ready_url:
            drain.await_served(machine, drain.read(self.id, self.drain))

    def step_aside(self, machine: machines.Machine, tell: base.Tell) -> None:
        """Give up its ports to another unit, for as long as it takes until it is started on its new ones."""
        seen = systemd.look_one(machine, self.name)
        if not seen.ended:
            self._stop(machine, seen, tell)

    def follows(self, machine: machines.Machine, replaced: AbstractSet[str]) -> base.Delta:
        if not replaced or not self._shows_inputs:
            return {}
        pid = systemd.look_one(machine, self.name).pid
        return {"inputs": (systemd.REPLACED, self._digest())} if systemd.runs_from(machine, pid, replaced) else {}

    def is_new(self, machine: machines.Machine, state: Optional[base.State]) -> bool:
        """A unit that a package brought is not new, but our file over it is."""
        return not machine.exists(self._path) if self.text else state is None

    def ours(self, machine: machines.Machine) -> bool:
        return bool(self.text) and f"{systemd.INPUTS}=" in machine.text(self._path)

    def gone(self, machine: machines.Machine) -> bool:
        return not machine.exists(self._path) if self.text else self.actual(machine) is None

    def remove(self, machine: machines.Machine, tell: base.Tell) -> None:
        if self.text and any(machine.exists(f"{folder}/{self.name}") for folder in _PACKAGED):
            tell(f"{self.name} is as its package brought it again")
            machine.unlink(self._path)
            machine.unlink(self._marker)
            machine.must(["systemctl", "daemon-reload"])
            machine.run(["systemctl", "try-restart", self.name])
            return
        seen = systemd.look_one(machine, self.name)
        if not seen.ended:
            self._stop(machine, seen, tell)
        machine.run(["systemctl", "disable", self.name])
        if systemd.setting(self.text, "CacheDirectory") or systemd.setting(self.text, "RuntimeDirectory"):
            # What it kept there is worth nothing without it. Its state, if it has any, is its owner's.
            machine.run(["systemctl", "clean", "--what=cache", "--what=runtime", self.name])
        if self.text:
            machine.unlink(self._path)
            machine.unlink(self._marker)
            machine.must(["systemctl", "daemon-reload"])
        machine.run(["systemctl", "reset-failed", self.name])

    def texts(self, machine: machines.Machine) -> Tuple[str, str]:
        if self.sensitive or not self.text:
            return "", ""
        return place.both_shown(self._file(machine), self._body())

    # -- what is wanted

    @property
    def _started(self) -> bool:
        return self.state == "started"

    @property
    def _path(self) -> str:
        return f"{systemd.UNITS}/{self.name}"

    @property
    def _marker(self) -> str:
        return f"{PENDING}/{self.name}"

    @property
    def _shows_inputs(self) -> bool:
        """Whether a main process runs that can be asked what it was started from."""
        if not self.text or not self._started or not self.name.endswith(".service"):
            return False
        return systemd.setting(self.text, "Type") != "oneshot" and systemd.setting(self.text, "RemainAfterExit") not in {
            "yes",
            "true",
            "1",
            "on",
        }

    def _digest(self) -> str:
        return hashlib.sha256(f"{self.text}\0{self.inputs}".encode()).hexdigest()

    def _body(self) -> bytes:
        """The text, and the digest of the inputs: as a setting where there is a process, as a comment where there is none."""
        service = self.name.endswith(".service")
        last = f"[Service]\nEnvironment={systemd.INPUTS}={self._digest()}\n" if service else f"# {systemd.INPUTS}={self._digest()}\n"
        return f"{self.text.rstrip()}\n\n{last}".encode()

    # -- what is there

    def state_of(self, machine: machines.Machine, seen: systemd.Seen) -> Optional[base.State]:
        body = self._file(machine) if self.text else None
        if body is None and not seen.found:
            return None
        pending = machine.exists(self._marker)
        state: base.State = {"load": seen.load, "loaded": not seen.stale and not pending and seen.load not in systemd.REJECTED}
        state.update(
            sha256=None if body is None else hashlib.sha256(body).hexdigest(), enabled=self._enabled(seen), active=self._activity(seen)
        )
        if self._shows_inputs:
            state["inputs"] = systemd.started_with(machine, seen.pid)
        if self._started and self.ready_url:
            state["ready"] = seen.running and readiness.ask(self.ready_url, root=machine.root)[0] == readiness.READY
        if self._started and self.drain:
            state["admitted"] = drain.admitted(machine, drain.read(self.id, self.drain))
        return state

    def _file(self, machine: machines.Machine) -> Optional[bytes]:
        found = machine.lstat(self._path)
        return machine.read(self._path) if found is not None and stat.S_ISREG(found.st_mode) else None

    def _enabled(self, seen: systemd.Seen) -> bool:
        return self.enabled if seen.file_state in _FIXED else seen.file_state == "enabled"

    def _activity(self, seen: systemd.Seen) -> str:
        if self._started:
            return "active" if seen.running or (seen.runs_once and seen.active == "inactive") else seen.active
        return "inactive" if self._rests(seen) else seen.active

    @staticmethod
    def _rests(seen: systemd.Seen) -> bool:
        """Nothing to stop: a failed unit does not run, and a oneshot on its way ends by itself."""
        return seen.ended or (seen.runs_once and seen.active == "activating")

    # -- the way there

    def _write(self, machine: machines.Machine) -> bool:
        """True when the file is new, or was written by a run that ended before it was taken into use."""
        if not self.text:
            return False
        before, body = self._file(machine), self._body()
        if before != body:
            place.sweep(machine, self._path)
            if not machine.exists(self._marker):
                machine.make_dirs(PENDING)
                machine.write(self._marker, before or b"", mode=0o600)
            machine.write(self._path, body, owner=(0, 0))
        return machine.exists(self._marker)

    def _load(self, machine: machines.Machine, seen: systemd.Seen, *, rewritten: bool) -> systemd.Seen:
        since_s = machine.now_s()
        if rewritten or seen.stale or not seen.found or seen.load in systemd.REJECTED:
            machine.must(["systemctl", "daemon-reload"])
            seen = systemd.look_one(machine, self.name)
        if not seen.found:
            raise errors.Problem(
                "unit-invalid", f"{self.id}: this node has no such unit", hint="the package that brings it must stand before it"
            )
        if seen.load in systemd.REJECTED:
            words = systemd.why_rejected(machine, self.name, since_s)
            restored = rewritten and self._put_back(machine)
            raise errors.Problem(
                "unit-invalid",
                f"{self.id}: systemd does not take the file: {words or seen.load}",
                hint="the file that was there before was put back"
                if restored
                else f"systemd-analyze verify {self.name} on the node tells more",
            )
        return seen

    def _put_back(self, machine: machines.Machine) -> bool:
        old = machine.read(self._marker)
        if old:
            machine.write(self._path, old, owner=(0, 0))
        else:
            machine.unlink(self._path)
        machine.must(["systemctl", "daemon-reload"])
        machine.unlink(self._marker)
        return bool(old)

    def _enable(self, machine: machines.Machine, seen: systemd.Seen, *, again: bool) -> None:
        """`reenable` after a change: the links follow the [Install] section as it is now."""
        if self.enabled and (again or not self._enabled(seen)):
            machine.must(["systemctl", "reenable" if again else "enable", self.name])
        elif not self.enabled and self._enabled(seen):
            machine.must(["systemctl", "disable", self.name])

    def _held(self, machine: machines.Machine, tell: base.Tell) -> ContextManager[Callable[[], None]]:
        """What keeps requests away from the process while it goes and comes; where no proxy stands before it, nothing."""
        return drain.held(machine, drain.read(self.id, self.drain), tell) if self.drain else contextlib.nullcontext(_nothing)

    def _stop(self, machine: machines.Machine, seen: systemd.Seen, tell: base.Tell) -> None:
        with self._held(machine, tell) as empty:
            if seen.running:
                empty()
            activation.stop(machine, self.name, tell, self.stop_limit_s)

    def _start(
        self, machine: machines.Machine, seen: systemd.Seen, tell: base.Tell, empty: Callable[[], None], *, rewritten: bool
    ) -> systemd.Seen:
        again = systemd.started_with(machine, seen.pid) != self._digest() if self._shows_inputs else rewritten
        if not again and (seen.running or (seen.runs_once and seen.active == "inactive")):
            return seen
        if not again and seen.active == "activating" and not seen.sub.startswith("auto-restart"):
            return activation.wait(machine, seen, limit_s=self.ready_timeout_s, tell=tell)
        if seen.running:
            empty()
        limits = {"limit_s": self.ready_timeout_s, "stop_limit_s": self.stop_limit_s}
        seen = activation.start(machine, seen, again=not seen.ended, tell=tell, **limits)
        if self._shows_inputs:
            activation.await_inputs(machine, seen, self._digest())
            if not self.ready_url and seen.type not in _TELLS_ITSELF:
                activation.settle(machine, seen)
        return seen

    # -- what can be in the way

    def _check_file(self, machine: machines.Machine) -> None:
        found = machine.lstat(self._path) if self.text else None
        if found is not None and stat.S_ISLNK(found.st_mode) and machine.readlink(self._path) == "/dev/null":
            raise self._masked()
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise place.conflict(self.id, self._path, found, "a file")

    def _masked(self) -> errors.Problem:
        return errors.Problem(
            "unit-invalid",
            f"{self.id} is masked on this node: somebody decided that it must not start",
            hint=f"systemctl unmask {self.name} undoes that",
        )


def _nothing() -> None:
    """Where no proxy stands before a process, nothing empties it."""
