"""Wall power as a BMC tells it: the words of ipmitool (DCMI and sensor list) and of FreeIPMI, made into watts.

Many boards answer with zeros, the year 1970 and "deactivated": that is no reading, and never 0 W.
"""

from __future__ import annotations

import re
from typing import Optional

from wattherd import machine as machines
from wattherd.records import dataclass

IPMITOOL = ("ipmitool", "dcmi", "power", "reading")
FREEIPMI = ("ipmi-dcmi", "--get-system-power-statistics")
#: A BMC may take seconds, and some never answer.
_LIMIT_S = 20.0
_NOW = re.compile(r"(?im)^\s*(?:Instantaneous power reading|Current Power)\s*:\s*(\d+(?:\.\d+)?)\s*Watts?\b")
_STATE = re.compile(r"(?im)^\s*(?:Power reading state is|Power Measurement)\s*:\s*(.+?)\s*$")
_ACTIVE = frozenset(("activated", "active"))
#: Dell before DCMI: only a sensor. `System Level | 189.000 | Watts | ok`
_SENSOR = re.compile(
    r"(?im)^\s*(System Level|Pwr Consumption|Power Meter|Total[_ ]Power|PW Consumption)\s*\|\s*([\d.]+|na)\s*\|\s*Watts\s*\|\s*(\w+)"
)


@dataclass(frozen=True)
class Reading:
    """Watts at the wall, or None and why: `reason` is for a person."""

    watts: Optional[float] = None
    reason: str = ""


def parse(text: str) -> Reading:
    """What `dcmi power reading`, `ipmi-dcmi` or `sensor list` printed."""
    now, state = _NOW.search(text), _STATE.search(text)
    if now is not None:
        return _judged(float(now.group(1)), state.group(1).lower() if state else "")
    sensor = _SENSOR.search(text)
    if sensor is not None:
        well = sensor.group(3).lower() == "ok" and sensor.group(2) != "na" and float(sensor.group(2)) > 0
        return Reading(float(sensor.group(2))) if well else Reading(reason=f"its sensor {sensor.group(1)} gives no reading")
    if re.search(r"(?i)invalid or unsupported|bad completion code|invalid command|not supported", text):
        return Reading(reason="this BMC has no power reading (DCMI)")
    return Reading(reason="nothing in its answer is a power reading")


def read(machine: machines.Machine) -> Reading:
    """Ask with whichever tool is there. Read only."""
    found = Reading(reason="neither ipmitool nor FreeIPMI is installed")
    for argv in (IPMITOOL, FREEIPMI):
        answer = machine.run(argv, timeout_s=_LIMIT_S)
        if answer.code == 127:
            continue
        if answer.code == 124:
            return Reading(reason=f"the BMC gave no answer within {_LIMIT_S:.0f} s")
        found = parse(answer.text + "\n" + answer.err.decode("utf-8", "replace"))
        if found.watts is not None:
            return found
    return found


def _judged(watts: float, state: str) -> Reading:
    """A state of "deactivated" beside a figure is a broken BMC (one said 360 W so): its figure is from another time."""
    if state and state not in _ACTIVE:
        return Reading(reason=f"the BMC's power reading is {state}")
    if watts <= 0:
        return Reading(reason="the BMC reads 0 W, which no running host draws")
    return Reading(watts)
