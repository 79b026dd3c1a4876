"""Cards in memory that answer as the field's do: the reading child's one line, and nvidia-smi's setters with its real words and exit codes.

For tests on `strict.Bench`: what is set is read back by the next look, unless a fault says otherwise.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.node import strict
from wattherd import machine as machines
from wattherd.power import look, reading, tool
from wattherd.wire import fields

BOOT_ID = "/proc/sys/kernel/random/boot_id"
MODULE = "/sys/module/nvidia"
SILENT = machines.Result(124, b"", b"nvidia-smi: no end after 20 s")
_DONE = "All done.\n"
_WARNED = "Treating as warning and moving on.\n" + _DONE
_EARLY = "Terminating early due to previous errors.\n"
_LOST = "GPU is lost.  Reboot the system to recover this GPU"

#: What a card can have wrong with it, or cannot do.
FAULTS = frozenset(
    {
        "lost",  # fell off the bus: neither read nor set
        "reset-required",  # [GPU requires reset]
        "no-limit",  # its power limit cannot be set, nor read (GB10): exit 0, "Treating as warning"
        "limit-unsupported",  # readable, not settable (laptops): exit 0, "Treating as warning"
        "clocks-unsupported",  # Pascal
        "memory-clocks-unsupported",  # before Ampere
        "temperature-unsupported",
        "persistence-unsupported",
        "no-permission",  # container, rented pod: exit 4
        "deaf",  # says that it was done, and keeps the old value
        "limit-reset",  # takes the limit, and another agent puts it back to the default before anybody looks
        "default-unknown",  # [Unknown Error] in that one column
        "draw-unknown",  # ERR! for the draw
        "silent",  # nvidia-smi never ends while it touches this card
    }
)


@dataclass
class Card:
    """One card as a test wants it. Watts, MHz, degrees Celsius, MiB. `outside_cap_w` is a limiter that software cannot see (a BMC)."""

    uuid: str = "GPU-11111111-1111-1111-1111-111111111111"
    name: str = "NVIDIA GeForce RTX 3090"
    bus: str = "0000:01:00.0"
    min_w: float | None = 100.0
    max_w: float | None = 350.0
    default_w: float | None = 350.0
    requested_w: float | None = None
    outside_cap_w: float | None = None
    draw_w: float | None = 25.0
    energy_mj: int | None = 1_000_000
    sm_mhz: int = 210
    memory_mhz: int = 405
    sm_max_mhz: int = 2100
    memory_max_mhz: int = 9751
    #: (least, most) as locked; no reader can see it.
    locked_mhz: tuple[int, int] | None = None
    memory_locked_mhz: tuple[int, int] | None = None
    pstate: int | None = 8
    utilization_percent: int | None = 0
    temperature_c: int | None = 40
    temperature_target_c: int | None = 83
    temperature_target_min_c: int | None = 65
    temperature_target_max_c: int | None = 91
    fan_percent: int | None = 30
    memory_used_mib: int | None = 1
    memory_total_mib: int | None = 24576
    persistence: bool | None = True
    mig: bool | None = None
    throttle: tuple[str, ...] = ()
    violations_ns: dict[str, int] = field(default_factory=dict)
    holders: list[reading.Holder] = field(default_factory=list)
    faults: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        assert self.faults <= FAULTS, f"no such fault: {self.faults - FAULTS}"
        if self.requested_w is None:
            self.requested_w = self.default_w

    @property
    def enforced_w(self) -> float | None:
        caps = [watts for watts in (self.requested_w, self.outside_cap_w) if watts is not None]
        return min(caps, default=None)

    @property
    def long_bus(self) -> str:
        """As NVML and nvidia-smi write it: a domain of eight digits, in capitals."""
        return f"0000{self.bus}".upper()

    def shown(self, index: int) -> reading.Card:
        """What the reading child prints of it."""
        if "lost" in self.faults:
            return reading.Card("", index=index, fault="GPU is lost")
        if "reset-required" in self.faults:
            return reading.Card(self.uuid, self.bus, index, self.name, fault="GPU requires reset")
        unknown = {}
        limits = reading.Limits(self.min_w, self.max_w, self.default_w, self.requested_w, self.enforced_w)
        if "no-limit" in self.faults:
            limits = reading.Limits()
            unknown.update({f"limits.{name}": "Not Supported" for name in ("min_w", "max_w", "default_w", "requested_w", "enforced_w")})
        elif "default-unknown" in self.faults:
            limits = reading.Limits(self.min_w, self.max_w, None, self.requested_w, self.enforced_w)
            unknown["limits.default_w"] = "Unknown Error"
        draw = None if self.draw_w is None else reading.Draw(self.draw_w, "average", "nvml", 1.0)
        if draw is None or "draw-unknown" in self.faults:
            draw, unknown["draw"] = None, "Unknown Error" if "draw-unknown" in self.faults else "Not Supported"
        if self.energy_mj is None:
            unknown["energy_mj"] = "Not Supported"
        return reading.Card(
            self.uuid,
            bus=self.bus,
            index=index,
            name=self.name,
            limits=limits,
            draw=draw,
            energy_mj=self.energy_mj,
            clocks=reading.Clocks(self.sm_mhz, self.memory_mhz, self.sm_max_mhz, self.memory_max_mhz),
            pstate=self.pstate,
            utilization_percent=self.utilization_percent,
            temperature_c=self.temperature_c,
            temperature_target_c=self.temperature_target_c,
            temperature_target_min_c=self.temperature_target_min_c,
            temperature_target_max_c=self.temperature_target_max_c,
            fan_percent=self.fan_percent,
            memory_used_mib=self.memory_used_mib,
            memory_total_mib=self.memory_total_mib,
            persistence=self.persistence,
            mig=self.mig,
            throttle=self.throttle,
            violations_ns=dict(self.violations_ns),
            holders=tuple(self.holders),
            unknown=unknown,
        )


class Cards:
    """The cards of one node, planned on its runner for as long as the test lasts.

    `silent`: everything that touches the driver never ends. `mismatch`: driver and library of two versions. `missing`: no nvidia-smi here.
    `set_calls` are the arguments of every call that would change a card.
    """

    def __init__(self, bench: strict.Bench, cards: Iterable[Card] = (), *, driver: str = "580.95.05") -> None:
        self.bench = bench
        self.cards = list(cards)
        self.driver = driver
        self.silent = False
        self.mismatch = False
        self.missing = False
        self.looks = 0
        self.set_calls: list[tuple[str, ...]] = []
        #: Called before every answer: where a test lets the world move on (another agent, a lost card).
        self.before_answer: Callable[[], None] | None = None
        self._prepare()
        bench.runner.plan(sys.executable, "-I", "-S", "-c", look.CHILD, strict.REST, effect=self._read, times=None)
        bench.runner.plan("nvidia-smi", strict.REST, effect=self._smi, times=None)

    def card(self, uuid: str) -> Card:
        return next(one for one in self.cards if one.uuid == uuid)

    # -- the world around

    def _prepare(self) -> None:
        bench = self.bench
        bench.put(tool.LOCK)
        bench.put(BOOT_ID, "11111111-2222-3333-4444-555555555555\n")
        bench.put("/proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {self.driver}  Tue Sep 23 2025\n")
        for at, card in enumerate(self.cards):
            text = f"Model: \t\t {card.name}\nGPU UUID: \t {card.uuid}\nBus Location: \t {card.bus}\nDevice Minor: \t {at}\n"
            bench.put(f"/proc/driver/nvidia/gpus/{card.bus}/information", text)
        bench.folder(MODULE)

    def reboot(self) -> None:
        """Another boot: every card is as it comes from the factory."""
        self.bench.put(BOOT_ID, f"{int(self.bench.machine.text(BOOT_ID).partition('-')[0]) + 1:08d}-2222-3333-4444-555555555555\n")
        self.reload()

    def reload(self) -> None:
        """The driver is loaded anew: limits, clocks, persistence and counters are gone."""
        module = Path(self.bench.machine.path(MODULE))
        later = module.with_name("nvidia.later")  # made before the old one goes, so that it is another one for certain
        later.mkdir()
        shutil.rmtree(module)
        later.rename(module)
        for card in self.cards:
            self.release(card)
            card.energy_mj = None if card.energy_mj is None else 0
            card.violations_ns = dict.fromkeys(card.violations_ns, 0)

    @staticmethod
    def release(card: Card) -> None:
        """The driver lets one card go (persistence off, no client): what was set is forgotten."""
        card.requested_w, card.locked_mhz, card.memory_locked_mhz, card.persistence = card.default_w, None, None, False

    def hold(self, card: Card, pid: int, name: str, unit: str = "", *, memory_mib: int = 500) -> None:
        """A process takes the card. It is in /proc of the bench, with this name and this unit."""
        self.bench.put(f"/proc/{pid}/comm", f"{name}\n")
        self.bench.put(f"/proc/{pid}/cgroup", f"0::/system.slice/{unit}\n" if unit else "0::/\n")
        card.holders.append(reading.Holder(pid, memory_mib=memory_mib))

    # -- answers

    def _read(self, _argv: Sequence[str]) -> machines.Result:
        self._moved()
        self.looks += 1
        if self.silent or any("silent" in card.faults for card in self.cards):
            return machines.Result(124, b"", b"python3: no end after 15 s")
        if self.mismatch:
            found = reading.Look(source="nvml", fault="Driver/library version mismatch", fault_kind="mismatch")
        else:
            found = reading.Look(tuple(card.shown(at) for at, card in enumerate(self.cards)), driver=self.driver, source="nvml")
        return machines.Result(0, json.dumps(fields.plain(found)).encode() + b"\n", b"")

    def _smi(self, argv: Sequence[str]) -> machines.Result:
        self._moved()
        if self.missing:
            return machines.Result(127, b"", b"nvidia-smi: not found")
        if self.silent:
            return SILENT
        if self.mismatch:
            return _said(18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.178\n")
        words = list(argv[1:])
        if any(word.startswith("--query-gpu") for word in words):
            return self._query(words)
        wanted = _option(words, "-i", "--id")
        chosen = [(at, card) for at, card in enumerate(self.cards) if wanted in ("", card.uuid, str(at), card.bus, card.long_bus.lower())]
        if not chosen:
            return machines.Result(6, b"No devices were found\n", b"")
        assert len(chosen) == 1, "one card per call: a setter without -i stops at the first bad card and leaves the rest half done"
        self.set_calls.append(tuple(words))
        return self._set(chosen[0][1], words)

    def _moved(self) -> None:
        if self.before_answer is not None:
            self.before_answer()

    def _set(self, card: Card, words: list[str]) -> machines.Result:
        if "silent" in card.faults:
            return SILENT
        if "lost" in card.faults:
            return _said(15, f"Unable to determine the device handle for GPU {card.bus}: {_LOST}\n")
        if "reset-required" in card.faults:
            return _said(16, f"Unable to determine the device handle for GPU {card.bus}: GPU requires reset\n")
        setters: tuple[tuple[tuple[str, str], Callable[[Card, str], machines.Result]], ...] = (
            (("-pl", "--power-limit"), self._set_limit),
            (("-lgc", "--lock-gpu-clocks"), self._lock),
            (("-lmc", "--lock-memory-clocks"), self._lock_memory),
            (("-pm", "--persistence-mode"), self._persist),
            (("-gtt", "--gpu-target-temp"), self._target),
        )
        for names, setter in setters:
            value = _option(words, *names)
            if value:
                return setter(card, value)
        if {"-rgc", "--reset-gpu-clocks"} & set(words):
            return self._unlock(card)
        if {"-rmc", "--reset-memory-clocks"} & set(words):
            return self._unlock_memory(card)
        raise AssertionError(f"the fake knows no such call: nvidia-smi {' '.join(words)}")

    @staticmethod
    def _set_limit(card: Card, value: str) -> machines.Result:
        if card.faults & {"no-limit", "limit-unsupported"}:
            return _said(0, f"Changing power management limit is not supported for GPU: {card.long_bus}.\n{_WARNED}")
        if "no-permission" in card.faults:
            return _said(4, f"Failed to set power management limit for GPU {card.long_bus}: Insufficient Permissions\n")
        watts = float(value)
        assert card.min_w is not None
        assert card.max_w is not None
        if not card.min_w <= watts <= card.max_w:
            words = (
                f"Provided power limit {watts:.2f} W is not a valid power limit which should be between {card.min_w:.2f} W and "
                f"{card.max_w:.2f} W for GPU {card.long_bus}\n{_EARLY}"
            )
            return _said(2, words)
        if "limit-reset" not in card.faults and "deaf" not in card.faults:
            card.requested_w = watts
        # The "from" is the default, whatever the limit was: nobody may take it for the value before.
        return _said(0, f"Power limit for GPU {card.long_bus} was set to {watts:.2f} W from {card.default_w or 0:.2f} W.\n{_DONE}")

    def _lock(self, card: Card, value: str) -> machines.Result:
        if "clocks-unsupported" in card.faults:
            return _said(0, f"Setting locked GPU clocks is not supported for GPU {card.long_bus}.\n{_WARNED}")
        if "no-permission" in card.faults:
            return _said(4, f"Failed to set GPU clocks for GPU {card.long_bus}: Insufficient Permissions\n")
        least, most = _pair(value)
        if "deaf" not in card.faults:
            card.locked_mhz = (least, most)
        said = f'GPU clocks set to "(gpuClkMin {least}, gpuClkMax {most})" for GPU {card.long_bus}\n{_loose(card)}'
        return _said(0, said + _DONE)

    def _lock_memory(self, card: Card, value: str) -> machines.Result:
        if "memory-clocks-unsupported" in card.faults:
            return _said(0, f"Setting locked Memory clocks is not supported for GPU {card.long_bus}.\n{_WARNED}")
        if "no-permission" in card.faults:
            return _said(4, f"Failed to set memory clocks for GPU {card.long_bus}: Insufficient Permissions\n")
        least, most = _pair(value)
        if "deaf" not in card.faults:
            card.memory_locked_mhz = (least, most)
        return _said(0, f'Memory clocks set to "(memClkMin {least}, memClkMax {most})" for GPU {card.long_bus}\n{_loose(card)}{_DONE}')

    @staticmethod
    def _unlock(card: Card) -> machines.Result:
        if "clocks-unsupported" in card.faults:
            return _said(0, f"Resetting locked GPU clocks is not supported for GPU {card.long_bus}.\n{_WARNED}")
        if "deaf" not in card.faults:
            card.locked_mhz = None
        return _said(0, _DONE)

    @staticmethod
    def _unlock_memory(card: Card) -> machines.Result:
        if "memory-clocks-unsupported" in card.faults:
            return _said(0, f"Resetting locked memory clocks is not supported for GPU {card.long_bus}.\n{_WARNED}")
        if "deaf" not in card.faults:
            card.memory_locked_mhz = None
        return _said(0, _DONE)

    @staticmethod
    def _persist(card: Card, value: str) -> machines.Result:
        on = value.upper() in ("1", "ENABLED")
        word = "Enabled" if on else "Disabled"
        if "persistence-unsupported" in card.faults:
            return _said(0, f"Setting persistence mode is not supported for GPU {card.long_bus}.\n{_WARNED}")
        if "no-permission" in card.faults:
            # A transcript of the field: refused, and claimed all the same.
            words = f"Unable to set persistence mode for GPU {card.long_bus}: Insufficient Permissions\n"
            return _said(0, f"{words}{word} Legacy persistence mode for GPU {card.long_bus}.\n{_DONE}")
        if card.persistence is on:
            return _said(0, f"Persistence mode is already {word} for GPU {card.long_bus}.\n{_DONE}")
        if "deaf" not in card.faults:
            card.persistence = on
        return _said(0, f"{word} Legacy persistence mode for GPU {card.long_bus}.\n{_DONE}")

    @staticmethod
    def _target(card: Card, value: str) -> machines.Result:
        if "temperature-unsupported" in card.faults or card.temperature_target_min_c is None or card.temperature_target_max_c is None:
            return _said(3, f"Changing GPU target temperature is not supported for GPU {card.long_bus}.\n{_WARNED}")
        if "no-permission" in card.faults:
            return _said(4, f"Failed to set GPU target temperature for GPU {card.long_bus}: Insufficient Permissions\n")
        degrees = int(value)
        if not card.temperature_target_min_c <= degrees <= card.temperature_target_max_c:
            between = f"between {card.temperature_target_min_c} C and {card.temperature_target_max_c} C for GPU {card.long_bus}"
            return _said(2, f"{degrees} C is not a valid target temperature which should be {between}\n{_EARLY}")
        if "deaf" not in card.faults:
            card.temperature_target_c = degrees
        return _said(0, f"GPU target temperature for GPU {card.long_bus} was set to {degrees} C.\n{_DONE}")

    def _query(self, words: list[str]) -> machines.Result:
        """`--query-gpu`, for the facts: those columns alone. One card that is lost ends the answer for all."""
        columns = _option(words, "--query-gpu").split(",")
        wanted = _option(words, "-i", "--id")
        rows = [] if "noheader" in words[-1] else [", ".join(columns)]
        for card in self.cards:
            if wanted not in ("", card.uuid, card.bus):
                continue
            if "lost" in card.faults:
                return _said(15, f"Unable to determine the device handle for GPU {card.bus}: {_LOST}\n")
            cells = {
                "pci.bus_id": card.long_bus,
                "uuid": card.uuid,
                "compute_cap": "8.6",
                "memory.total": _cell(card.memory_total_mib),
                "power.min_limit": _cell(card.min_w),
                "power.max_limit": _cell(card.max_w),
                "power.default_limit": "[Unknown Error]" if "default-unknown" in card.faults else _cell(card.default_w),
            }
            rows.append(", ".join(cells[name] for name in columns))
        return _said(0, "".join(f"{row}\n" for row in rows))


def _said(code: int, words: str) -> machines.Result:
    return machines.Result(code, words.encode(), b"")


def _option(words: Sequence[str], *names: str) -> str:
    """The value of an option in any of the forms that nvidia-smi takes: `-pl 200`, `--power-limit=200`."""
    for at, word in enumerate(words):
        head, mark, tail = word.partition("=")
        if head in names:
            return tail if mark else (words[at + 1] if at + 1 < len(words) else "")
    return ""


def _pair(value: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)(?:,(\d+))?", value)
    assert found, f"no clocks: {value}"
    return int(found[1]), int(found[2] or found[1])


def _loose(card: Card) -> str:
    if card.persistence:
        return ""
    return f"\nWarning: persistence mode is disabled on device {card.long_bus}. See the Known Issues section.\n"


def _cell(value: float | None) -> str:
    return "[N/A]" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)
