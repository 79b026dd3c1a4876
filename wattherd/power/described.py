"""A card from nvidia-smi's words, whichever of its forms they came in: cells by one set of names, the card's own fields.

A cell that holds no number is unknown, with the words that stand there; it is never 0. Pure.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional, Tuple

from wattherd.power import cell, reading, sensor, throttle

SOURCE = "nvidia-smi"
#: In front of a reason's name: whether it is active, and for how long it has been (a number with its unit).
REASON, COUNTER = "reason.", "counter."
#: The rest of the names: fields of reading.Card and its parts, and these.
AVERAGE, INSTANT, PLAIN = "draw.average", "draw.instant", "draw.plain"
MASK, CAPABILITY, FAMILY, DRIVER = "throttle.mask", "capability", "family", "driver"

_DEVICE = re.compile(
    r"Unable to determine the device handle for GPU\s*\d*:?\s*((?:[0-9A-Fa-f]+:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f.]{4}):\s*([^\n]+)"
)
_LIMITS = ("min_w", "max_w", "default_w", "requested_w", "enforced_w")
_CLOCKS = ("sm_mhz", "memory_mhz", "sm_max_mhz", "memory_max_mhz")
_UNTOLD = "not told by this driver"
_NANOSECONDS = {"us": 1000, "ns": 1}


class Cells:
    """One card's cells. What is asked for and is no value is remembered as unknown."""

    def __init__(self, cells: Mapping[str, str]) -> None:
        self.cells = cells
        self.unknown: Dict[str, str] = {}

    def number(self, name: str, field: str = "") -> Optional[float]:
        """`field` is where its absence is remembered, its own name by default; "-" where nobody misses it."""
        value = cell.number(self.cells.get(name, ""))
        if value is None and field != "-":
            self.unknown[field or name] = cell.printable(cell.words(self.cells.get(name, ""))) or _UNTOLD
        return value

    def whole(self, name: str, field: str = "") -> Optional[int]:
        value = self.number(name, field)
        return None if value is None else int(value)

    def text(self, name: str) -> str:
        told = self.cells.get(name, "")
        return cell.printable(told.strip()) if cell.is_value(told) else ""


def card(cells: Mapping[str, str]) -> reading.Card:
    told = Cells(cells)
    draw, instant_w = _draw(told)
    pstate = re.match(r"P(\d{1,2})\Z", cells.get("pstate", "").strip())
    if not pstate:
        told.unknown["pstate"] = cell.printable(cell.words(cells.get("pstate", ""))) or _UNTOLD
    index = told.whole("index", "-")
    uuid = told.text("uuid")
    return reading.Card(
        uuid if uuid.startswith("GPU-") else "",
        bus=cell.bus(cells.get("bus", "")),
        index=-1 if index is None else index,
        name=told.text("name"),
        fault=_fault(cells),
        limits=reading.Limits(**{name: told.number(f"limits.{name}") for name in _LIMITS}),
        draw=draw,
        draw_instant_w=instant_w,
        clocks=reading.Clocks(**{name: told.whole(f"clocks.{name}") for name in _CLOCKS}),
        pstate=int(pstate.group(1)) if pstate else None,
        utilization_percent=told.whole("utilization_percent"),
        temperature_c=told.whole("temperature_c"),
        temperature_target_c=told.whole("temperature_target_c", "-"),
        temperature_target_min_c=told.whole("temperature_target_min_c", "-"),
        temperature_target_max_c=told.whole("temperature_target_max_c", "-"),
        fan_percent=told.whole("fan_percent"),
        memory_used_mib=told.whole("memory_used_mib", "memory"),
        memory_total_mib=told.whole("memory_total_mib", "memory"),
        persistence=cell.switch(cells.get("persistence", "")),
        mig=cell.switch(cells.get("mig", "")),
        throttle=active(cells),
        violations_ns=counters(cells),
        capability=sensor.capability(cells.get(CAPABILITY, "")) or (),
        unknown={"energy_mj": "nvidia-smi does not tell it", **dict(sorted(told.unknown.items()))},
    )


def _draw(told: Cells) -> Tuple[Optional[reading.Draw], Optional[float]]:
    average_w, instant_w, plain_w = (told.number(name, "-") for name in (AVERAGE, INSTANT, PLAIN))
    family = sensor.FAMILIES.get(told.cells.get(FAMILY, "").strip().lower())
    averages = sensor.is_averaging(family, sensor.capability(told.cells.get(CAPABILITY, "")))
    if averages is False and instant_w is None:
        instant_w = plain_w
    draw = sensor.draw(average_w, instant_w, plain_w, averages=averages, source=SOURCE)
    if draw is None:
        words = [cell.printable(cell.words(told.cells.get(name, ""))) for name in (PLAIN, AVERAGE, INSTANT)]
        told.unknown["draw"] = next((one for one in words if one), _UNTOLD)
    return draw, instant_w


def active(cells: Mapping[str, str]) -> Tuple[str, ...]:
    """The active reasons, from the mask or from the reasons one by one; idling is none."""
    mask = cell.mask(cells.get(MASK, ""))
    if mask is not None:
        return throttle.named(mask)
    names = {throttle.spelled(name[len(REASON) :]) for name, value in cells.items() if name.startswith(REASON) and cell.switch(value)}
    known = [name for _, name in throttle.BITS if name in names and name != throttle.IDLE]
    return tuple(known + sorted(names - {name for _, name in throttle.BITS}))


def counters(cells: Mapping[str, str]) -> Dict[str, int]:
    """How long each reason has held the card back, in nanoseconds."""
    found: Dict[str, int] = {}
    for name, value in cells.items():
        told = re.match(r"(\d+)\s*(us|ns)\Z", value.strip())
        if name.startswith(COUNTER) and told:
            found[throttle.spelled(name[len(COUNTER) :])] = int(told.group(1)) * _NANOSECONDS[told.group(2)]
    return found


def _fault(cells: Mapping[str, str]) -> str:
    """A card that needs a reset, or is lost, has that written in cell after cell."""
    said = {cell.words(cells.get(name, "")).lower() for name in ("pstate", PLAIN, "limits.requested_w", "temperature_c")}
    return next((words for words in ("GPU is lost", "GPU requires reset") if words.lower() in said), "")


def lost(words: str) -> List[reading.Card]:
    """The cards that nvidia-smi could not even open, from its words. One of them ends its whole answer."""
    found: Dict[str, reading.Card] = {}
    for match in _DEVICE.finditer(words):
        bus = match.group(1) if match.group(1).count(":") == 2 else f"0000:{match.group(1)}"
        short = cell.bus(bus) or bus.lower()
        found[short] = reading.Card("", short, fault=cell.printable(match.group(2).partition(".")[0].strip(), 80))
    return list(found.values())
