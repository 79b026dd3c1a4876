"""What the samples of a card and the runs of its load say together: whether the watts lie still, and the figures of a window.

Seconds of the machine's steady clock, watts, millijoules. Pure.
"""

from __future__ import annotations

import math
import statistics
from typing import List, Optional, Sequence, Tuple

from wattherd.policy import knee
from wattherd.power import load, reading, throttle
from wattherd.records import dataclass

#: Watts lie still when samples over this time are all within so many watts or so much of their mean.
_STILL_S = 2.0
_STILL_SAMPLES = 3
_STILL_W = 3.0
_STILL_SHARE = 0.03
_FEWEST_RUNS = 3
#: A window grows up to this many times its seconds while runs differ by more than this share, or are too few.
_LONGEST = 2.0
LONGEST_FOR_RUNS = 12.0
_GOOD_SPREAD = 0.015
_LEAST_SPREAD = 0.002
#: Of normally distributed values: deviation by their median distance, and the error of a median by that of a mean.
_NORMAL = 1.4826
_MEDIAN = 1.2533


@dataclass(frozen=True)
class Sample:
    """The cards of a sweep at one instant, as one: watts and energy summed, the lowest clock, the highest temperature."""

    at_s: float
    watts: Optional[float]
    energy_mj: Optional[int]
    clock_mhz: Optional[int]
    temperature_c: Optional[int]
    capped: bool
    capped_ns: Optional[int]
    requested_w: Optional[float]
    enforced_w: Optional[float]


def lies_still(samples: Sequence[Sample]) -> bool:
    """The newest samples, over some seconds, differ little. Unknown watts never lie still."""
    recent = [one for one in samples if samples[-1].at_s - one.at_s <= _STILL_S]
    if len(recent) == len(samples) or len(recent) < _STILL_SAMPLES:
        return False
    watts = [one.watts for one in recent if one.watts is not None]
    if len(watts) < len(recent):
        return False
    return max(watts) - min(watts) <= max(_STILL_W, _STILL_SHARE * sum(watts) / len(watts))


def is_enough(runs: Sequence[load.Run], lasted_s: float, seconds_s: float) -> bool:
    if lasted_s < seconds_s:
        return False
    if len(runs) < _FEWEST_RUNS:
        return lasted_s > LONGEST_FOR_RUNS * seconds_s and len(runs) > 0
    return spread(runs) <= _GOOD_SPREAD or lasted_s >= _LONGEST * seconds_s


def figure_of(samples: Sequence[Sample], runs: Sequence[load.Run], *, settled: bool) -> Optional[knee.Figure]:
    """The figures of a window; None without a known draw or a whole run. The speed is the median of its runs.

    Watts are the energy counter's difference over the time between its two looks, where every card has one that moved; else the samples'
    trapezoid over that time.
    """
    begun, ended = samples[0], samples[-1]
    lasted_s = ended.at_s - begun.at_s
    watts, method = _watts(samples)
    if watts is None or not runs or lasted_s <= 0:
        return None
    clocks = [one.clock_mhz for one in samples if one.clock_mhz is not None]
    warm = [one.temperature_c for one in samples if one.temperature_c is not None]
    return knee.Figure(
        tok_s=round(statistics.median(_rates(runs)), 3),
        watts=round(watts, 2),
        seconds_s=round(lasted_s, 2),
        spread=round(spread(runs), 4),
        method=method,
        clock_mhz=round(sum(clocks) / len(clocks)) if clocks else None,
        throttled_percent=_throttled(samples, lasted_s),
        temperature_c=max(warm) if warm else None,
        settled=settled,
    )


def spread(runs: Sequence[load.Run]) -> float:
    """How far the median of the runs may be off, as a share: twice its error, or half of what its two halves differ by, whichever is more.

    By medians, so that one run which a timer of the host held up tells nothing of the card.
    """
    rates = _rates(runs)
    middle = statistics.median(rates)
    if len(rates) < 2 or middle <= 0:
        return 1.0
    deviation = _NORMAL * statistics.median(abs(one - middle) for one in rates)
    half = len(rates) // 2
    apart = abs(statistics.median(rates[:half]) - statistics.median(rates[-half:])) / 2
    return max(_LEAST_SPREAD, 2 * _MEDIAN * deviation / math.sqrt(len(rates)) / middle, apart / middle)


def _rates(runs: Sequence[load.Run]) -> List[float]:
    return [one.tokens / max(one.ended_s - one.begun_s, 1e-6) for one in runs]


def _watts(samples: Sequence[Sample]) -> Tuple[Optional[float], str]:
    begun, ended = samples[0], samples[-1]
    lasted_s = ended.at_s - begun.at_s
    if begun.energy_mj is not None and ended.energy_mj is not None and ended.energy_mj > begun.energy_mj and lasted_s > 0:
        return (ended.energy_mj - begun.energy_mj) / 1000.0 / lasted_s, "energy counter"
    drawn = [(one.at_s, one.watts) for one in samples if one.watts is not None]
    if len(drawn) < 2:
        return None, ""
    area = sum((after_s - before_s) * (one + other) / 2 for (before_s, one), (after_s, other) in zip(drawn, drawn[1:]))
    return area / (drawn[-1][0] - drawn[0][0]), "power samples"


def _throttled(samples: Sequence[Sample], lasted_s: float) -> Optional[float]:
    """Per cent of the time: by the driver's own counter where it has one, else the share of samples that were at the limit."""
    begun, ended = samples[0].capped_ns, samples[-1].capped_ns
    if begun is not None and ended is not None and ended >= begun:
        return round(min(100.0, (ended - begun) / 1e9 / lasted_s * 100.0), 1)
    return round(100.0 * sum(one.capped for one in samples) / len(samples), 1)


def as_one(cards: Sequence[reading.Card], at_s: float) -> Sample:
    watts = [one.draw.watts for one in cards if one.draw is not None]
    energy = [one.energy_mj for one in cards if one.energy_mj is not None]
    clock = [one.clocks.sm_mhz for one in cards if one.clocks.sm_mhz is not None]
    warm = [one.temperature_c for one in cards if one.temperature_c is not None]
    capped = [one.violations_ns[throttle.SW_POWER_CAP] for one in cards if throttle.SW_POWER_CAP in one.violations_ns]
    return Sample(
        at_s,
        sum(watts) if len(watts) == len(cards) else None,
        sum(energy) if len(energy) == len(cards) else None,
        min(clock) if clock else None,
        max(warm) if warm else None,
        any(throttle.SW_POWER_CAP in one.binding for one in cards),
        max(capped) if capped else None,
        _same([one.limits.requested_w for one in cards]),
        _same([one.limits.enforced_w for one in cards]),
    )


def _same(values: Sequence[Optional[float]]) -> Optional[float]:
    """The one value that all have; where they differ the one that is furthest from being set, the greatest."""
    known = [one for one in values if one is not None]
    return max(known) if len(known) == len(values) and known else None
