"""What a better setting saves in a year, exact in decimals: for the load that was seen, or for one that is plainly assumed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

_DAYS = Decimal(365)
_HOURS = Decimal(24)
#: A server that began less than this ago has not seen a day's load.
LEAST_SEEN_S = 3600


@dataclass(frozen=True, kw_only=True)
class Use:
    """What a running server says of itself: how long it runs and computed, in seconds, and its tokens since then."""

    since_s: int
    busy_s: float
    prefill_tokens: int = 0
    decode_tokens: int = 0

    @property
    def is_enough(self) -> bool:
        return self.since_s >= LEAST_SEEN_S

    @property
    def hours_per_day(self) -> Decimal:
        """Hours of computing in a day like the days seen. Slots that compute at once count apart, so never more than there are."""
        share = Decimal(str(round(self.busy_s, 1))) / Decimal(max(self.since_s, 1))
        return min(_HOURS, (share * _HOURS).quantize(Decimal("0.01")))


@dataclass(frozen=True, kw_only=True)
class Saving:
    """`basis` says where the hours are from: observed, given, or assumed (around the clock: the most that it can be)."""

    kwh: Decimal
    hours_per_day: Decimal
    basis: str
    cost: Decimal | None = None
    currency: str = ""


def saving(reference_watts: float, share: float, use: Use | None, given_hours: Decimal | None) -> Saving:
    """A year of the same tokens. `reference_watts` is the mean draw under this load without the setting, `share` what of it is saved.

    Energy for the same tokens, so a slower card is not credited for the longer it then works.
    """
    hours, basis = _hours(use, given_hours)
    watts = Decimal(str(round(reference_watts, 1)))
    kwh = watts * Decimal(str(round(share, 4))) * hours * _DAYS / Decimal(1000)
    return Saving(kwh=kwh, hours_per_day=hours, basis=basis)


def _hours(use: Use | None, given: Decimal | None) -> tuple[Decimal, str]:
    if given is not None:
        return given, "given"
    if use is not None and use.is_enough:
        return use.hours_per_day, "observed"
    return _HOURS, "assumed"
