"""Whether a card is at rest, what it costs that something holds it so, and which of a server's pages may be read without waking a model.

Watts are those of this very card on this very host: no table of other people's cards enters a figure. Pure.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Optional, Sequence

from wattherd.records import dataclass

#: A year of 365 days. What a card wastes in it is worked out as if it went on idling as it does now.
HOURS_PER_YEAR = 8760
#: So many looks in a row must agree before a draw is idle power: after work, or woken by the look itself, a card falls for seconds
#: (an L40S: 242, 145, then a second apart 66, 65, 65, 51, 37 W; facts/power.md, "settling artefact").
REST_LOOKS = 3
REST_PAUSE_S = 2.0
#: Looks agree within this share of the lowest, or these watts where that is less: sensors of small draws step by a watt.
FLAT_SHARE = 0.10
FLAT_LEAST_W = 2.0
#: Drivers count a desktop's blinking cursor as 1 or 2 per cent.
BUSY_PERCENT = 3
#: The first build on which reading /metrics of a sleeping model was tried and neither woke it nor kept it awake (facts/llama-cpp.md
#: 2b; upstream ggml-org/llama.cpp#27376). Earlier ones may be safe too: not known, so they count as if they woke it.
METRICS_SAFE_FROM = 11434
_NEVER_WAKE = ("/health", "/v1/health", "/models", "/v1/models", "/props")


@dataclass(frozen=True)
class Sample:
    """One reading of one card: watts, and how busy it calls itself in per cent. None is unknown."""

    watts: Optional[float]
    busy_percent: Optional[int]


@dataclass(frozen=True)
class Rest:
    """`watts` is what the card draws at rest, None with the reason in `why`. `busy` None: the card does not say."""

    watts: Optional[float] = None
    busy: Optional[bool] = None
    why: str = ""


def rest(samples: Sequence[Sample]) -> Rest:
    """What the newest looks come to, oldest first: the lowest of the last REST_LOOKS where they agree and none found the card at work."""
    newest = samples[-REST_LOOKS:]
    if not newest or newest[-1].watts is None:
        return Rest(why="this card does not say what it draws")
    if any(one.busy_percent is None for one in newest):
        return Rest(why="this card does not say how busy it is")
    if any(one.busy_percent is not None and one.busy_percent >= BUSY_PERCENT for one in newest):
        return Rest(busy=True, why="at work")
    watts = [one.watts for one in newest if one.watts is not None]
    if len(watts) < REST_LOOKS:
        return Rest(busy=False, why="looked at too few times to call it idle power")
    if not flat(watts):
        shown = ", ".join(f"{one:.0f}" for one in watts)
        return Rest(busy=False, why=f"its draw has not settled yet ({shown} W)")
    return Rest(watts=min(watts), busy=False)


def flat(watts: Sequence[float]) -> bool:
    """Whether readings in watts agree as well as two readings of a card at rest do."""
    return max(watts) - min(watts) <= slack_w(min(watts))


def slack_w(watts: float) -> float:
    """How far two readings of the same rest may lie apart, in watts: less than this between loaded and empty is no saving."""
    return max(FLAT_LEAST_W, FLAT_SHARE * watts)


def lowest(known: Optional[float], seen: Optional[float]) -> Optional[float]:
    """What a card draws empty, in watts, after one more rest without a holder: the lowest ever seen. None is never seen."""
    told = [one for one in (known, seen) if one is not None]
    return min(told) if told else None


def waste_w(held_w: float, empty_w: float) -> Decimal:
    """Watts that go only because something holds the card: held at rest less empty at rest, exact to the milliwatt, 0 within the slack."""
    if held_w - empty_w <= slack_w(empty_w):
        return Decimal(0)
    return exact(held_w) - exact(empty_w)


def exact(watts: float) -> Decimal:
    """A sensor's watts as an exact decimal; no sensor tells less than a milliwatt."""
    return Decimal(f"{watts:.3f}")


def kwh(watts: Decimal, hours: Decimal) -> Decimal:
    """Watts for so many hours, in kWh, exact."""
    return watts * hours / 1000


def kwh_per_year(watts: Decimal) -> Decimal:
    return kwh(watts, Decimal(HOURS_PER_YEAR))


def wakes(path: str, *, build: int = 0, router: bool = False) -> bool:
    """Whether a GET of `path` may load a model, wake it, or keep it awake. `build` 0 is unknown: then /metrics counts as if it did.

    Of a router, everything that names a model is handed to that model's process, which is started for it unless the request forbids it.
    """
    page, _, query = path.partition("?")
    if page in _NEVER_WAKE:
        # `?reload=1` ends models whose section changed, `?model=` is passed on to the model.
        return bool(query)
    if page != "/metrics" or build < METRICS_SAFE_FROM:
        return True
    return router and "autoload=false" not in query.split("&")
