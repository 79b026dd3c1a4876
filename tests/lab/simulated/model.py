"""What a card draws: a pure step from one moment to the next.

The model: an empty card draws its empty idle; one that any process holds draws its loaded idle, busy or not; a busy one adds
`utilisation x (full load - loaded idle) x (clock / highest clock)^3`: dynamic power goes so with a clock that drags its voltage along.
The clock is the highest that the limit and the locks allow, so that a cap above the natural draw does nothing (the plateau) and one below
it costs clock by its cube root (the knee). Watts and temperature follow with inertia. All numbers that no field source gives are assumed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tests.lab.simulated import figures

AMBIENT_C = 27.0
FULL_LOAD_C = 74.0
#: NVML's bits of the reasons why a clock is not higher.
IDLE, POWER_CAP, THERMAL = 1, 4, 0x20
_RISE_S, _FALL_S, _WARM_S, _AVERAGE_S = 0.25, 0.5, 20.0, 1.0
#: A clock does not fall below this part of the highest one, whatever the limit says.
_FLOOR = 0.1
#: A held card that does nothing keeps this part of its highest clock, where its performance state is not the idle one.
_HELD_CLOCK = 0.3
_LOCKED_IDLE = 0.25
_FAN_FROM_C, _FAN_LEAST, _FAN_PER_C = 50.0, 30.0, 1.6
_IDLE_STATE = 8


@dataclass(frozen=True)
class Settings:
    """What was set and what else limits. A lock is (least, most) in MHz, (0, 0) for none; `limit_w` is inf where the card has no limit."""

    limit_w: float = math.inf
    gpu_lock_mhz: tuple[int, int] = (0, 0)
    memory_lock_mhz: tuple[int, int] = (0, 0)
    target_c: int = 0


@dataclass(frozen=True)
class Load:
    """`held`: some process has a context on the card; `busy` is how much of the time it computes, 0 to 1."""

    held: bool = False
    busy: float = 0.0


@dataclass(frozen=True)
class Moment:
    """A card at one instant. Energy in millijoules, violations in nanoseconds; `speed` is how fast it computes, 1 at full clock."""

    watts: float
    average_w: float
    sm_mhz: float
    memory_mhz: float
    pstate: int
    temperature_c: float
    fan_percent: float = 0.0
    reasons: int = IDLE
    speed: float = 1.0
    energy_mj: float = 0.0
    power_violation_ns: float = 0.0
    thermal_violation_ns: float = 0.0


def start(card: figures.Card) -> Moment:
    """An empty card that has been on for a while."""
    temperature = AMBIENT_C + card.empty_w * _resistance(card)
    return Moment(card.empty_w, card.empty_w, card.idle_mhz, card.memory_idle_mhz, card.pstate_empty, temperature)


def step(card: figures.Card, was: Moment, settings: Settings, load: Load, seconds: float) -> Moment:
    """The card `seconds` later, under these settings and this load."""
    now = settle(card, settings, load)
    watts = _follow(was.watts, now.watts, seconds, _RISE_S if now.watts > was.watts else _FALL_S)
    temperature = _follow(was.temperature_c, AMBIENT_C + watts * _resistance(card), seconds, _WARM_S)
    passed_ns = seconds * 1e9
    return replace(
        now,
        watts=watts,
        average_w=_follow(was.average_w, watts, seconds, _AVERAGE_S),
        temperature_c=temperature,
        fan_percent=max(0.0, min(100.0, _FAN_LEAST + (temperature - _FAN_FROM_C) * _FAN_PER_C)) if temperature > _FAN_FROM_C else 0.0,
        energy_mj=was.energy_mj + (was.watts + watts) / 2 * seconds * 1000,
        power_violation_ns=was.power_violation_ns + (passed_ns if now.reasons & POWER_CAP and load.busy else 0),
        thermal_violation_ns=was.thermal_violation_ns + (passed_ns if now.reasons & THERMAL else 0),
    )


def settle(card: figures.Card, settings: Settings, load: Load) -> Moment:
    """Where the card comes to rest under these settings and this load; its temperature, fan and counters are left at zero."""
    least, most = settings.gpu_lock_mhz
    if load.held and load.busy > 0:
        return _working(card, settings, load.busy)
    held = load.held
    pstate = card.pstate_loaded if held else card.pstate_empty
    asleep = pstate == _IDLE_STATE or not held
    clock = float(card.idle_mhz if asleep else max(card.idle_mhz, card.top_mhz * _HELD_CLOCK))
    clock = min(max(clock, float(least)), float(most or card.top_mhz))
    watts = card.loaded_w if held else card.empty_w
    if least > card.idle_mhz:
        # A least clock keeps the card awake for nothing (facts/power.md, b: above 100 W on a 3090 Ti at 1860 MHz).
        pstate = card.pstate_load
        watts = card.loaded_w + _LOCKED_IDLE * (card.full_w - card.loaded_w) * (clock / card.top_mhz) ** 3
    memory = _memory_clock(card.memory_idle_mhz if pstate == _IDLE_STATE else card.memory_load_mhz, card, settings)
    return Moment(watts, watts, clock, memory, pstate, 0.0, reasons=IDLE)


def _working(card: figures.Card, settings: Settings, busy: float) -> Moment:
    memory = _memory_clock(card.memory_load_mhz, card, settings)
    slower_memory = memory / card.memory_load_mhz if card.memory_load_mhz else 1.0
    dynamic_w = busy * (card.full_w - card.loaded_w) * (0.85 + 0.15 * slower_memory)
    cool_w = (settings.target_c - AMBIENT_C) / _resistance(card) if settings.target_c else math.inf
    lock = settings.gpu_lock_mhz[1] or card.top_mhz
    highest = min(1.0, max(_FLOOR, lock / card.top_mhz))
    by_limit = _part(settings.limit_w - card.loaded_w, dynamic_w)
    by_heat = _part(cool_w - card.loaded_w, dynamic_w)
    part = min(highest, by_limit, by_heat)
    reasons = (POWER_CAP if by_limit <= part and by_limit < highest else 0) | (THERMAL if by_heat <= part and by_heat < highest else 0)
    watts = card.loaded_w + dynamic_w * part**3
    clock = part * card.top_mhz
    speed = part * (0.4 + 0.6 * slower_memory)
    return Moment(watts, watts, clock, memory, card.pstate_load, 0.0, reasons=reasons, speed=speed)


def _part(watts: float, dynamic_w: float) -> float:
    """Which part of the highest clock these watts allow."""
    if watts >= dynamic_w:
        return math.inf
    return max(_FLOOR, math.cbrt(max(0.0, watts) / dynamic_w))


def _memory_clock(wanted: float, card: figures.Card, settings: Settings) -> float:
    least, most = settings.memory_lock_mhz
    return min(max(float(wanted), float(least)), float(most or card.memory_top_mhz)) if card.memory_top_mhz else float(wanted)


def _resistance(card: figures.Card) -> float:
    """Degrees per watt: at full load the card settles at FULL_LOAD_C."""
    return (FULL_LOAD_C - AMBIENT_C) / card.full_w


def _follow(value: float, target: float, seconds: float, constant_s: float) -> float:
    return target + (value - target) * math.exp(-seconds / constant_s)
