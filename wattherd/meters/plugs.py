"""Wall plugs that measure: Shelly of both generations and Tasmota, from the JSON that they answer with. Pure; who fetches it is another.

The same word is another unit from one to the next: a Gen1 Shelly counts watt-minutes, a Gen2 watt-hours, a Tasmota kilowatt-hours. All
become watts and watt-hours here.
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Mapping, Optional, Tuple

from wattherd.records import dataclass

#: Where each answers, on the plug's own address.
SHELLY_GEN1, SHELLY_GEN2, TASMOTA = "/status", "/rpc/Shelly.GetStatus", "/cm?cmnd=Status%208"
#: Gen2 components that measure, and what each calls its power.
_GEN2 = (("switch:", "apower"), ("pm1:", "apower"), ("cover:", "apower"), ("em1:", "act_power"))


@dataclass(frozen=True)
class Reading:
    """One channel. `watts` below zero is fed back (solar); None is not measured. `counter_wh` only grows while the plug keeps it."""

    channel: str
    watts: Optional[float] = None
    counter_wh: Optional[float] = None


def shelly_gen1(document: object) -> Tuple[Reading, ...]:
    """`/status`: meters of relays (watt-minutes), or emeters of an EM (watt-hours). A meter that calls itself invalid tells nothing."""
    root = _mapping(document)
    found: List[Reading] = []
    for number, meter in enumerate(_list(root.get("meters"))):
        if meter.get("is_valid") is not False:
            total = _number(meter.get("total"))
            found.append(Reading(f"meter {number}", _number(meter.get("power")), None if total is None else total / 60))
    for number, meter in enumerate(_list(root.get("emeters"))):
        if meter.get("is_valid") is not False:
            found.append(Reading(f"emeter {number}", _number(meter.get("power")), _number(meter.get("total"))))
    return tuple(one for one in found if one.watts is not None or one.counter_wh is not None)


def shelly_gen2(document: object) -> Tuple[Reading, ...]:
    """`/rpc/Shelly.GetStatus`, with or without an RPC frame. A plug without a meter has no apower, and is in none of these."""
    root = _mapping(document)
    root = _mapping(root.get("result")) or root
    found: List[Reading] = []
    for key in sorted(root):
        power = next((name for prefix, name in _GEN2 if key.startswith(prefix)), "")
        part = _mapping(root[key])
        watts = _number(part.get(power)) if power else None
        if watts is None:
            continue
        counter = _number(_mapping(part.get("aenergy")).get("total"))
        if counter is None:
            counter = _number(_mapping(root.get(key.replace("em1:", "em1data:"))).get("total_act_energy"))
        found.append(Reading(key, watts, counter))
    return tuple(found)


def tasmota(document: object) -> Tuple[Reading, ...]:
    """`Status 8`, or the bare sensor message of MQTT. Power is a number, or one for each phase: then their sum is the plug's.

    Apparent power (VA) is no power. `Total` is kWh, and may be a list too.
    """
    root = _mapping(document)
    energy = _mapping((_mapping(root.get("StatusSNS")) or _mapping(root.get("StatusSNS8")) or root).get("ENERGY"))
    if not energy:
        return ()
    watts, total_kwh = _sum(energy.get("Power")), _sum(energy.get("Total"))
    if watts is None and total_kwh is None:
        return ()
    return (Reading("ENERGY", watts, None if total_kwh is None else round(total_kwh * 1000, 6)),)


def _sum(value: object) -> Optional[float]:
    """A number, or a list of numbers; None as soon as one of them is none."""
    parts = [_number(one) for one in value] if isinstance(value, list) else [_number(value)]
    if not parts or any(one is None for one in parts):
        return None
    return sum(one for one in parts if one is not None)


def _number(value: object) -> Optional[float]:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def _mapping(value: object) -> Mapping[str, Any]:
    return {str(key): held for key, held in value.items()} if isinstance(value, dict) else {}


def _list(value: object) -> List[Dict[str, Any]]:
    return [dict(_mapping(one)) for one in value] if isinstance(value, list) else []
