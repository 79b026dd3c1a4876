"""The energy of a card between two looks: from its own counter where it has one, else integrated from power readings. The method is named.

A counter that is not supported is not zero energy. It counts since the driver was loaded: one that fell has begun anew, and what it then
says was used since. Pure.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

from wattherd.records import dataclass

COUNTER = "counter"
INTEGRATED = "integrated power (no counter on this GPU)"
#: Further apart than this two readings of power say nothing about the time between them.
GAP_S = 3600.0
_ROW = re.compile(r"^(?P<name>\w+)\{(?P<labels>[^}]*)\}\s+(?P<value>[-+0-9.eE]+)\s*$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
DCGM_ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"


@dataclass(frozen=True)
class Sample:
    """One look at one card: seconds of any steady clock, its counter (millijoules since the driver was loaded), its power now."""

    at_s: float
    counter_mj: Optional[int] = None
    watts: Optional[float] = None


@dataclass(frozen=True)
class Used:
    """Joules in `seconds_s`, and how that is known. `is_least`: the counter began anew in between, so that at least this much was used.

    `gap_s` are seconds of it that nobody saw; they are in `seconds_s` and not in `joules`.
    """

    joules: float
    seconds_s: float
    method: str
    is_least: bool = False
    gap_s: float = 0.0


def used(samples: Sequence[Sample]) -> Optional[Used]:
    """Between the first and the last sample, which come in the order of their time. None where nothing is known, never 0.

    The counter counts only where all samples have it: a card that answers now and then is integrated, and says so.
    """
    ordered = sorted(samples, key=lambda one: one.at_s)
    if len(ordered) < 2:
        return None
    if all(one.counter_mj is not None for one in ordered):
        return _counted(ordered)
    return _integrated([one for one in ordered if one.watts is not None])


def warning(told: Set[str], card: str, found: Used) -> str:
    """What to say of a card that is integrated: once for each card, since it is so every time. `told` are those said already; it grows."""
    if found.method == COUNTER or card in told:
        return ""
    told.add(card)
    return f"{card} has no energy counter: its energy is {INTEGRATED}, good to a per cent or so where it is read often"


def _counted(samples: Sequence[Sample]) -> Used:
    """It is 64 bits of millijoules: a decrease is a driver loaded anew, never a wrap."""
    total_mj, least = 0, False
    for before, after in zip(samples, samples[1:]):
        old, new = before.counter_mj or 0, after.counter_mj or 0
        least = least or new < old
        total_mj += new - old if new >= old else new
    return Used(total_mj / 1000, samples[-1].at_s - samples[0].at_s, COUNTER, least)


def _integrated(samples: Sequence[Sample]) -> Optional[Used]:
    """The trapezoid between each two readings: they come unevenly, and a mean over the readings would weigh them alike."""
    if len(samples) < 2:
        return None
    joules, gap_s = 0.0, 0.0
    for before, after in zip(samples, samples[1:]):
        seconds_s = after.at_s - before.at_s
        if seconds_s > GAP_S:
            gap_s += seconds_s
        else:
            joules += ((before.watts or 0.0) + (after.watts or 0.0)) / 2 * seconds_s
    whole_s = samples[-1].at_s - samples[0].at_s
    return Used(joules, whole_s, INTEGRATED, gap_s=gap_s) if gap_s < whole_s else None


def dcgm(text: str) -> Mapping[str, int]:
    """UUID -> millijoules, from dcgm-exporter's page. MIG instances repeat the counter of the whole card, so each card counts once.

    The rows of one card differ by the moments at which they were read: the largest is the latest. What an instance used is not to be had.
    """
    found: Dict[str, int] = {}
    for uuid, value in _rows(text):
        found[uuid] = max(found.get(uuid, 0), value)
    return found


def _rows(text: str) -> List[Tuple[str, int]]:
    rows: List[Tuple[str, int]] = []
    for row in _ROW.finditer(text):
        labels = dict(_LABEL.findall(row.group("labels")))
        uuid = labels.get("UUID", "")
        if row.group("name") == DCGM_ENERGY and uuid:
            try:
                rows.append((uuid, int(float(row.group("value")))))
            except (ValueError, OverflowError):
                continue
    return rows
