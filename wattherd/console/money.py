"""Exact decimals as they are printed: the total rounded once, half up, and its rows so that they add up to it."""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from decimal import Decimal

#: ISO 4217: currencies whose smallest unit is not a hundredth.
_DIGITS = {
    **dict.fromkeys(("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "VND", "VUV", "XAF", "XOF", "XPF"), 0),
    **dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3),
}


def digits(currency: str) -> int:
    """Decimals of a currency's smallest unit, by its three letters."""
    return _DIGITS.get(currency, 2)


def rounded(value: Decimal, places: int) -> Decimal:
    """Half up: 0.125 with two places is 0.13, and -0.125 is -0.13."""
    return value.quantize(Decimal(1).scaleb(-places), rounding=decimal.ROUND_HALF_UP)


def shares(values: Sequence[Decimal], places: int) -> list[Decimal]:
    """The values, rounded so that they add up to their rounded sum: by largest remainder, the earlier of two equal ones first."""
    unit = Decimal(1).scaleb(-places)
    floors = [value.quantize(unit, rounding=decimal.ROUND_FLOOR) for value in values]
    left = int((rounded(sum(values, Decimal(0)), places) - sum(floors, Decimal(0))) / unit)
    order = sorted(range(len(values)), key=lambda at: (floors[at] - values[at], at))
    chosen = set(order[:left])
    return [floor + unit if at in chosen else floor for at, floor in enumerate(floors)]


def plain(value: Decimal) -> str:
    """Exact, without an exponent and without zeros that say nothing: 352.152, 0.31, 12."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
