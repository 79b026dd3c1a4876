"""What the owner chose for a Jetson: its power mode by name, whether its clocks are pinned, and the fan's profile.

Each is set through the board's own tools and counts only when they then say so. A mode that can be set only while the board boots is
skipped with "reboot required" and waits (wattherd.power.jetson.pending). What was before the first change is remembered and returned to.
"""

from __future__ import annotations

from typing import ClassVar, Mapping, Optional, Sequence, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.power import memory
from wattherd.power.jetson import change, clocks, conf, fan, nvpmodel, pending, tools, verdict
from wattherd.records import dataclass
from wattherd.resources import base

MODE, PINNED, FAN = "mode", "pinned", "fan"
_YES, _NO = "yes", "no"
_HOW = "; invoke power-apply --reboot with this host in --hosts does it, drained and one host at a time"


@dataclass(frozen=True)
class Jetson(base.Resource):
    """`setting` is mode (value: a name of the board's nvpmodel.conf, or `fastest`), pinned (yes or no), or fan (a profile's name)."""

    TYPE: ClassVar[str] = "jetson"
    INDEPENDENT: ClassVar[bool] = True

    setting: str
    value: str

    def __post_init__(self) -> None:
        if self.setting not in {MODE, PINNED, FAN}:
            raise errors.Problem("manifest-invalid", f"{self.id}: a Jetson has mode, pinned and fan, not '{self.setting}'")
        if not self.value or (self.setting == PINNED and self.value not in {_YES, _NO}):
            raise errors.Problem("manifest-invalid", f"{self.id}: pinned is yes or no, and every setting has a value")

    @property
    def id(self) -> str:
        return f"jetson:{self.setting}"

    def wanted(self) -> base.State:
        return {self.setting: self.value}

    def actual(self, machine: machines.Machine) -> Optional[base.State]:
        return self.observe(machine, [self])[self.id]

    @classmethod
    def observe(cls, machine: machines.Machine, batch: Sequence[Jetson]) -> Mapping[str, Optional[base.State]]:
        """One question to nvpmodel serves all."""
        if not tools.is_jetson(machine):
            return {one.id: None for one in batch}
        current = nvpmodel.query(machine)
        shown = {one.id: (one.setting, one.seen(machine, current)) for one in batch}
        return {name: {setting: value} if value else None for name, (setting, value) in shown.items()}

    def seen(self, machine: machines.Machine, current: nvpmodel.Current) -> str:
        """The setting as it is now, in the words of `value` where they mean the same; empty is unknown."""
        if self.setting == MODE:
            return self._mode(machine, current)
        if self.setting == PINNED:
            return {True: _YES, False: _NO, None: ""}[clocks.pinned(machine)]
        return fan.profile(machine, current)

    def unsupported(self, machine: machines.Machine, state: Optional[base.State]) -> str:
        if not tools.is_jetson(machine):
            return "this is no Jetson: it has no power modes"
        if state == self.wanted():
            return ""
        known = memory.unsupported(machine, memory.BOARD, self.setting, tools.release(machine))
        return known or {MODE: self._no_mode, PINNED: self._no_clocks, FAN: self._no_fan}[self.setting](machine)

    def preflight(self, machine: machines.Machine, state: Optional[base.State]) -> None:  # noqa: ARG002 - one surface for every type
        """`mode-unknown` for a mode or a profile that this very board does not have; it names the nearest and all."""
        if self.setting == MODE:
            conf.find(conf.read(machine), self.value)
        elif self.setting == FAN:
            fan.check(fan.profiles(machine, nvpmodel.query(machine)), self.value)

    def notes(self, machine: machines.Machine) -> Tuple[str, ...]:
        if self.setting != MODE:
            return ()
        modes, current = conf.read(machine), nvpmodel.query(machine)
        mode, before = modes.named(self.value), modes.numbered(current.number)
        if mode is None or not modes.regates(before, mode):
            return ()
        now = before.name if before else current.name
        return (f"{mode.name} gates the GPU otherwise than {now}: the board may ask for a reboot first",)

    def is_new(self, machine: machines.Machine, state: Optional[base.State]) -> bool:  # noqa: ARG002 - as above
        """What is made here is the change, and a removal takes it back."""
        return True

    def ours(self, machine: machines.Machine) -> bool:
        return self.setting in memory.before(machine).get(memory.BOARD, {})

    def takes(self) -> Tuple[str, ...]:
        return ()

    def fix(self, machine: machines.Machine, delta: base.Delta, tell: base.Tell) -> None:  # noqa: ARG002 - as above
        """Raises Deferred for what needs a reboot or cannot be had here, `mode-failed` for what went wrong."""
        with memory.alone(machine):
            if self.setting == MODE:
                done = change.mode(machine, self.value)
            elif self.setting == PINNED:
                done = change.pinned(machine, self.value == _YES)
            else:
                done = change.profile(machine, self.value)
            if done.kind == "unsupported":
                memory.keep_unsupported(machine, memory.BOARD, self.setting, tools.release(machine), done.words)
        self._judge(done)

    def remove(self, machine: machines.Machine, tell: base.Tell) -> None:  # noqa: ARG002 - as above
        """Back to what was before the first change. A mode that takes a reboot for it is left to the next boot: Deferred says so."""
        with memory.alone(machine):
            done = change.back(machine, self.setting)
            if done is None:
                return
            if self.setting == MODE and done.kind in change.WAITS:
                raise base.Deferred(f"{verdict.REBOOT}{change.at_next_boot(machine)} comes back with the next boot of this board")
        self._judge(done)

    def gone(self, machine: machines.Machine) -> bool:
        return not self.ours(machine)

    # -- what is there, and what cannot be

    def _mode(self, machine: machines.Machine, current: nvpmodel.Current) -> str:
        modes = conf.read(machine)
        mode = modes.numbered(current.number)
        if mode is None:
            return current.name
        if nvpmodel.loose(machine, modes, mode):
            return f"{mode.name}, but its clocks are not capped"
        return self.value if modes.named(self.value) == mode else mode.name

    def _no_mode(self, machine: machines.Machine) -> str:
        if not tools.has(machine, "nvpmodel"):
            return "nvpmodel is not installed (package nvidia-l4t-nvpmodel), so no power mode can be set"
        modes = conf.read(machine)
        if not modes.modes:
            return f"{conf.CONF} is missing or names no mode"
        waiting = pending.mode(machine)
        wanted = modes.named(self.value)
        if waiting and wanted is not None and waiting == wanted.name:
            return f"{verdict.REBOOT}{waiting} can be set only while the board boots{_HOW}"
        return ""

    def _no_clocks(self, machine: machines.Machine) -> str:
        if not tools.has(machine, "jetson_clocks"):
            return "jetson_clocks is not installed (package nvidia-l4t-tools), so the clocks cannot be pinned"
        return "" if clocks.pinned(machine) is not None else "this board's clocks can be read neither in sysfs nor by jetson_clocks"

    @staticmethod
    def _no_fan(machine: machines.Machine) -> str:
        return "" if fan.profiles(machine, nvpmodel.query(machine)) else fan.NONE

    def _judge(self, done: verdict.Verdict) -> None:
        if done.done:
            return
        if done.kind == "unsupported":
            raise base.Deferred(done.words)
        if done.kind == "reboot":
            raise base.Deferred(f"{verdict.REBOOT}{done.words}{_HOW}")
        raise change.problem(self.setting, done)
