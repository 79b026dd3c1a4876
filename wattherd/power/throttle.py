"""Why a card runs slower than it could: NVIDIA's reasons by one name each, and which of them really hold the card back.

A flag alone proves little: drivers show `sw_power_cap` on cards that idle at a sixth of their limit. Pure.
"""

from __future__ import annotations

from typing import Dict, Mapping, Optional, Tuple

from wattherd.power import reading

SW_POWER_CAP = "sw_power_cap"
IDLE = "gpu_idle"
#: nvml.h, nvmlClocksEventReason*: the bits of the mask that NVML and nvidia-smi's `clocks_event_reasons.active` give.
BITS: Tuple[Tuple[int, str], ...] = (
    (0x001, IDLE),
    (0x002, "applications_clocks_setting"),
    (0x004, SW_POWER_CAP),
    (0x008, "hw_slowdown"),
    (0x010, "sync_boost"),
    (0x020, "sw_thermal_slowdown"),
    (0x040, "hw_thermal_slowdown"),
    (0x080, "hw_power_brake_slowdown"),
    (0x100, "display_clocks_setting"),
)
#: Heat, and what the board itself pulls down: they hold a card back whenever they are active.
THERMAL = frozenset({"sw_thermal_slowdown", "hw_thermal_slowdown"})
HARDWARE = frozenset({"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"})
#: A power cap holds a card back that works and draws at least this share of its limit: the sensors are good to 5 W and lag by a second.
NEAR_LIMIT = 0.93
#: In plain words, for people.
WORDS: Mapping[str, str] = {
    "applications_clocks_setting": "clocks set by somebody",
    SW_POWER_CAP: "power limit",
    "hw_slowdown": "hardware slowdown",
    "sync_boost": "waits for a slower card (sync boost)",
    "sw_thermal_slowdown": "heat (driver)",
    "hw_thermal_slowdown": "heat (hardware)",
    "hw_power_brake_slowdown": "power brake (the power supply asks for less)",
    "display_clocks_setting": "display clocks",
}
_OTHER_NAMES: Mapping[str, str] = {
    "idle": IDLE,
    "clocks_setting": "applications_clocks_setting",
    "sw_power_capping": SW_POWER_CAP,
    "sw_thermal": "sw_thermal_slowdown",
    "sw_therm_slowdown": "sw_thermal_slowdown",
    "hw_thermal": "hw_thermal_slowdown",
    "hw_therm_slowdown": "hw_thermal_slowdown",
    "hw_power_brake": "hw_power_brake_slowdown",
    "hw_power_braking": "hw_power_brake_slowdown",
    "power_brake_slowdown": "hw_power_brake_slowdown",
    "display_clock_setting": "display_clocks_setting",
}


def named(mask: int) -> Tuple[str, ...]:
    """The active reasons of a bit mask; idling is none. A bit that nobody has named yet is told by its number."""
    names = [name for bit, name in BITS if mask & bit]
    known = sum(bit for bit, _ in BITS)
    rest = mask & ~known
    return tuple(name for name in names if name != IDLE) + ((f"reason_0x{rest:x}",) if rest else ())


def spelled(words: str) -> str:
    """One name for the many spellings: a column (clocks_throttle_reasons.x, clocks_event_reasons.x), an XML tag, a label of `-q`."""
    short = words.strip().lower().rpartition(".")[2].replace(" ", "_").replace("-", "_")
    for front in ("clocks_event_reasons_counters_", "clocks_throttle_reason_", "clocks_event_reason_"):
        short = short[len(front) :] if short.startswith(front) else short
    return _OTHER_NAMES.get(short, short)


def binding(card: reading.Card, before: Optional[reading.Card] = None) -> Tuple[str, ...]:
    """Those of the active reasons that hold the card back now. `before` is the same card some time ago, for its counters."""
    held: Dict[str, None] = {}
    for reason in card.throttle:
        if reason in THERMAL or reason in HARDWARE or (reason == SW_POWER_CAP and is_at_limit(card)):
            held[reason] = None
    if before is not None:
        held.update(dict.fromkeys(grown(card, before)))
    return tuple(held)


def grown(card: reading.Card, before: reading.Card) -> Tuple[str, ...]:
    """The reasons whose own counter (nanoseconds) ran on since `before`; a counter that went back started anew with the driver."""
    ran = ((name, after - before.violations_ns.get(name, after)) for name, after in card.violations_ns.items())
    return tuple(name for name, ns in ran if ns > 0 and name in (SW_POWER_CAP, *THERMAL, *HARDWARE))


def is_at_limit(card: reading.Card) -> bool:
    """True when it works and draws what its enforced limit allows; an unknown draw, limit or load proves nothing."""
    limit_w = card.limits.enforced_w or card.limits.requested_w
    if card.draw is None or not limit_w or not card.utilization_percent:
        return False
    return card.draw.watts >= NEAR_LIMIT * limit_w
