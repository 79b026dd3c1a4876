"""What a look at the cards of one node found. Plain values that travel; every None is unknown, and `unknown` says why.

Watts, MHz, MiB, degrees Celsius, per cent. A value that a card does not have, or that nobody may read, is never 0.
"""

from __future__ import annotations

from typing import Mapping, Optional, Tuple

from wattherd.records import dataclass, field


@dataclass(frozen=True)
class Limits:
    """Power limits of one card in watts.

    `enforced_w` is what the card keeps to (the least of all limiters), `requested_w` what software last asked for; they differ where
    something else limits too (a BMC, another tool's out-of-band cap).
    """

    min_w: Optional[float] = None
    max_w: Optional[float] = None
    default_w: Optional[float] = None
    requested_w: Optional[float] = None
    enforced_w: Optional[float] = None


@dataclass(frozen=True)
class Draw:
    """What a card drew. `sensor` is average, instant, or total (it does not say); `source` names who told: nvml, nvidia-smi, ina3221.

    `window_s` is how long the sensor averages, 0 for an instant, None where that is not known. `basis` says what the figure covers
    where that is not the whole card: "module, not board input".
    """

    watts: float
    sensor: str = "total"
    source: str = "nvml"
    window_s: Optional[float] = None
    basis: str = ""


@dataclass(frozen=True)
class Clocks:
    """MHz. `sm_max` is the hardware's; a lock on the clocks can be read nowhere."""

    sm_mhz: Optional[int] = None
    memory_mhz: Optional[int] = None
    sm_max_mhz: Optional[int] = None
    memory_max_mhz: Optional[int] = None


@dataclass(frozen=True)
class Holder:
    """A process that holds a card: its context alone keeps many cards awake. `unit` is its systemd unit, `model` what it serves.

    `asleep`: a llama-server that has put its model down and keeps its context; None is unknown, or no server of a model.
    """

    pid: int
    name: str = ""
    memory_mib: Optional[int] = None
    user: str = ""
    unit: str = ""
    model: str = ""
    asleep: Optional[bool] = None


@dataclass(frozen=True)
class Card:
    """One card as it is now. `fault` says why it cannot be read or set at all (lost, needs a reset); the other fields are then unknown.

    `throttle` names the reasons that are active (`wattherd.power.throttle`), `binding` those of them that really hold the card back;
    `violations_ns` are the driver's own counters of how long each has. `unknown` maps a field to why it has no value.
    `draw_instant_w` is the other sensor, where `draw` averages. `unified`: its memory is the host's. `suspended`: it sleeps (runtime power
    management) and was not woken for this look. `capability` is NVIDIA's compute capability, (8, 6); empty is unknown.
    """

    uuid: str
    bus: str = ""
    index: int = -1
    name: str = ""
    limits: Limits = field(default_factory=Limits)
    draw: Optional[Draw] = None
    draw_instant_w: Optional[float] = None
    energy_mj: Optional[int] = None
    clocks: Clocks = field(default_factory=Clocks)
    pstate: Optional[int] = None
    utilization_percent: Optional[int] = None
    temperature_c: Optional[int] = None
    temperature_target_c: Optional[int] = None
    temperature_target_min_c: Optional[int] = None
    temperature_target_max_c: Optional[int] = None
    fan_percent: Optional[int] = None
    memory_used_mib: Optional[int] = None
    memory_total_mib: Optional[int] = None
    unified: bool = False
    suspended: bool = False
    capability: Tuple[int, ...] = ()
    persistence: Optional[bool] = None
    mig: Optional[bool] = None
    throttle: Tuple[str, ...] = ()
    binding: Tuple[str, ...] = ()
    violations_ns: Mapping[str, int] = field(default_factory=dict)
    holders: Tuple[Holder, ...] = ()
    fault: str = ""
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """What to call it in a sentence: its name and the part of its UUID that tells it from its neighbours."""
        return f"{self.name or 'card'} {self.uuid[:12] or self.bus}".strip()


@dataclass(frozen=True)
class Board:
    """A Jetson: the power mode that is set, those that its own nvpmodel.conf has, and what its rails draw.

    `mode_id` is None while no mode is set. `pinned` says that jetson_clocks holds the clocks at their maximum.
    """

    name: str = ""
    mode: str = ""
    mode_id: Optional[int] = None
    modes: Mapping[str, int] = field(default_factory=dict)
    default_mode: str = ""
    pending_mode: str = ""
    pinned: Optional[bool] = None
    fan: str = ""
    draw: Optional[Draw] = None
    rails_w: Mapping[str, float] = field(default_factory=dict)
    gpu_load_percent: Optional[int] = None
    gpu_mhz: Optional[int] = None
    gpu_max_mhz: Optional[int] = None
    temperature_c: Optional[float] = None
    unknown: Mapping[str, str] = field(default_factory=dict)
    notes: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Look:
    """All of one node, read once. `source` is nvml or nvidia-smi; `epoch` changes with every boot and every reload of the driver.

    `fault` says why no card could be read at all, `fault_kind` in one word: silent, mismatch, no-driver, no-library, no-permission, failed.
    """

    cards: Tuple[Card, ...] = ()
    board: Optional[Board] = None
    driver: str = ""
    source: str = ""
    epoch: str = ""
    fault: str = ""
    fault_hint: str = ""
    fault_kind: str = ""
    notes: Tuple[str, ...] = ()

    def card(self, uuid: str) -> Optional[Card]:
        return next((one for one in self.cards if one.uuid == uuid), None)
