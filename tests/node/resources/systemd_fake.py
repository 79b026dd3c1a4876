"""A systemd small enough to read: units over a root's /etc/systemd/system, answering `systemctl show` in the recorded form.

What a unit's process will do is said by the test (`fate`). Knows only the verbs that Wattherd uses; another ends the test.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.node import strict
from wattherd import machine as machines

UNITS = "/etc/systemd/system"


@dataclass
class Loaded:
    """One unit as this systemd has it in memory."""

    body: bytes | None = None
    active: str = "inactive"
    sub: str = "dead"
    pid: int = 0
    restarts: int = 0
    invocation: str = ""
    waiting: bool = False
    enabled: bool = False
    masked: bool = False
    packaged: bool = False
    result: str = "success"
    exit_code: int = 0
    exit_status: int = 0


@dataclass
class Systemd:
    """`fate(unit)` runs at every start: it may leave the unit in another state than running."""

    bench: strict.Bench
    units: dict[str, Loaded] = field(default_factory=dict)
    did: list[str] = field(default_factory=list)
    journal: str = ""
    complaint: str = ""
    fate: Callable[[Loaded], None] | None = None
    keeps_environment: bool = True
    starts: int = 0

    def __post_init__(self) -> None:
        self.bench.folder(UNITS)
        self.bench.folder("/proc")
        self.bench.runner.plan("systemctl", strict.REST, effect=self.systemctl, times=None)
        self.bench.runner.plan("journalctl", strict.REST, effect=self.journalctl, times=None)

    # -- what a test arranges

    def running(self, name: str, body: bytes, environment: str = "") -> Loaded:
        """A unit that has been running for a while from this file."""
        self.bench.put(f"{UNITS}/{name}", body)
        unit = self._unit(name)
        unit.body, unit.enabled = body, b"[Install]" in body
        self._run(unit, name)
        if environment:
            self.bench.put(f"/proc/{unit.pid}/environ", environment)
        return unit

    def packaged(self, name: str, **state: object) -> Loaded:
        self.units[name] = dataclasses.replace(Loaded(body=b"", packaged=True), **state)  # type: ignore[arg-type]
        return self.units[name]

    # -- the programs

    def systemctl(self, argv: Sequence[str]) -> machines.Result | None:
        verb, words = argv[1], [word for word in argv[2:] if not word.startswith("-")]
        if verb == "show":
            names = argv[list(argv).index("--") + 1 :]
            return machines.Result(0, "\n".join(self._show(name) for name in names).encode(), b"")
        self.did.append(" ".join([verb, *words]))
        if verb == "daemon-reload":
            for name in {*self.units, *(path.name for path in self._folder.glob("*.*"))}:
                self._unit(name).body = self._file(name)
            gone = [name for name, unit in self.units.items() if unit.body is None and unit.active == "inactive" and not unit.packaged]
            for name in gone:
                del self.units[name]
            return None
        return self._act(verb, words[0])

    def journalctl(self, argv: Sequence[str]) -> machines.Result:
        if list(argv[1:]) == ["--sync"]:
            return machines.Result(0, b"", b"")
        return machines.Result(0, (self.complaint if "_PID=1" in argv else self.journal).encode(), b"")

    def _act(self, verb: str, name: str) -> machines.Result | None:
        unit = self._unit(name)
        if unit.body is None:
            unit.body = self._file(name)
        if verb in {"enable", "reenable", "disable"}:
            unit.enabled = verb != "disable"
        elif verb == "reset-failed":
            unit.active, unit.restarts = "inactive" if unit.active == "failed" else unit.active, 0
        elif verb == "clean":
            assert not unit.pid, "systemd refuses to clean what runs"
        elif verb in {"start", "restart"}:
            if unit.body is None and not unit.packaged:
                return machines.Result(5, b"", f"Failed to start {name}: Unit {name} not found.\n".encode())
            if verb == "restart" or not unit.pid:
                self._run(unit, name)
        elif verb in {"stop", "kill"}:
            unit.active, unit.sub, unit.pid = "inactive", "dead", 0
        else:
            raise AssertionError(f"this systemd does not know {verb}")
        return None

    # -- inside

    @property
    def _folder(self) -> Path:
        return Path(self.bench.machine.path(UNITS))

    def _file(self, name: str) -> bytes | None:
        path = self._folder / name
        return path.read_bytes() if path.is_file() else None

    def _unit(self, name: str) -> Loaded:
        return self.units.setdefault(name, Loaded())

    def _run(self, unit: Loaded, name: str) -> None:
        self.starts += 1
        unit.invocation, unit.restarts, unit.result = f"{self.starts:032x}", 0, "success"
        kind = self._setting(unit, "Type")
        if not name.endswith(".service"):
            unit.active, unit.sub = "active", "waiting"
        elif kind == "oneshot":
            remains = self._setting(unit, "RemainAfterExit") == "yes"
            unit.active, unit.sub, unit.invocation = ("active", "exited", unit.invocation) if remains else ("inactive", "dead", "")
        else:
            unit.active, unit.sub, unit.pid = "active", "running", 4000 + self.starts
            given = f"WATTHERD_INPUTS={self._setting(unit, 'Environment=WATTHERD_INPUTS')}" if self.keeps_environment else "HOME=/"
            self.bench.put(f"/proc/{unit.pid}/environ", f"LANG=C.UTF-8\0{given}\0")
            self.bench.put(f"/proc/{unit.pid}/cgroup", f"0::/system.slice/{name}\n")
        if self.fate:
            self.fate(unit)

    @staticmethod
    def _setting(unit: Loaded, key: str) -> str:
        found = re.findall(rf"^{key}=(.*)$", (unit.body or b"").decode(), re.MULTILINE)
        return found[-1] if found else ""

    def _load_state(self, unit: Loaded, name: str) -> str:
        if unit.masked:
            return "masked"
        if unit.body is None and unit.invocation == "" and (self._file(name) is None):
            return "not-found"
        return "bad-setting" if b"BROKEN" in (unit.body or b"") else "loaded"

    def _show(self, name: str) -> str:
        unit = self._unit(name)
        if unit.body is None and not unit.pid:
            unit.body = self._file(name)
        load = self._load_state(unit, name)
        static = unit.packaged or b"[Install]" in (unit.body or b"")
        file_state = {"masked": "masked", "not-found": ""}.get(load, "enabled" if unit.enabled else "disabled" if static else "static")
        stale = not unit.packaged and unit.body is not None and unit.body != self._file(name)
        service = {
            "Type": self._setting(unit, "Type") or "simple",
            "RemainAfterExit": self._setting(unit, "RemainAfterExit") or "no",
            "MainPID": unit.pid,
            "Result": unit.result,
            "NRestarts": unit.restarts,
            "ExecMainCode": unit.exit_code,
            "ExecMainStatus": unit.exit_status,
            "ControlGroup": f"/system.slice/{name}" if unit.pid else "",
        }
        rows = {
            **(service if name.endswith(".service") else {"Result": unit.result}),
            "Id": name,
            "LoadState": load,
            "ActiveState": unit.active,
            "SubState": unit.sub,
            "FragmentPath": f"{UNITS}/{name}" if load != "not-found" else "",
            "UnitFileState": file_state,
            "Job": "17" if unit.waiting else "",
            "NeedDaemonReload": "yes" if stale else "no",
            "InvocationID": unit.invocation,
        }
        return "".join(f"{key}={value}\n" for key, value in rows.items())
