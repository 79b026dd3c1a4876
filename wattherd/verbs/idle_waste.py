"""What idle cards cost in a year because something holds them: measured on each card, exact, never from a table. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from wattherd.policy import idle
from wattherd.verbs import power_rows

#: What such cards draw empty elsewhere, from and to watts (facts/power.md, c: reports of other people's machines). For an estimate beside
#: a card that was never seen empty on its own host; it enters no sum.
_ELSEWHERE_W: tuple[tuple[str, float, float], ...] = (
    (r"\bP40\b", 9.0, 11.0),
    (r"\bRTX 3060\b(?! Ti)", 6.0, 6.0),
    (r"\bRTX 3090\b(?! Ti)", 8.0, 27.0),
    (r"\bV100\b", 27.0, 33.0),
    (r"\bA40\b", 1.0, 30.0),
)
NOT_MEASURED = "not measured on this host yet"


@dataclass(frozen=True, kw_only=True)
class Price:
    """Of one kWh, as it stands in the inventory."""

    per_kwh: Decimal
    currency: str


@dataclass(frozen=True, kw_only=True)
class Line:
    """One card that idles held. `waste_w` None: `why` says why it is not counted; `estimate_w` is then a span, from other machines."""

    row: power_rows.Row
    held_w: float | None = None
    waste_w: Decimal | None = None
    kwh: Decimal | None = None
    cost: Decimal | None = None
    per_kwh: Decimal | None = None
    currency: str = ""
    why: str = ""
    estimate_w: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Total:
    """The exact sum over one kind of card: real or simulated, of one currency (empty: no price). `cost` None: no price is given."""

    simulated: bool
    currency: str
    cards: int
    kwh: Decimal
    cost: Decimal | None


@dataclass(frozen=True, kw_only=True)
class Waste:
    """`counted` in the order of the rows, with those whose waste is 0; `uncounted` hold a card too, and why they have no figure."""

    counted: tuple[Line, ...] = ()
    uncounted: tuple[Line, ...] = ()
    totals: tuple[Total, ...] = ()


def waste(rows: Iterable[power_rows.Row], prices: Mapping[str, Price | None]) -> Waste:
    """`prices` by host."""
    lines = [_line(row, prices.get(row.host)) for row in rows if row.card is not None and row.card.holders and not row.card.fault]
    counted = tuple(line for line in lines if line.waste_w is not None)
    return Waste(counted=counted, uncounted=tuple(line for line in lines if line.waste_w is None), totals=_totals(counted))


def _line(row: power_rows.Row, price: Price | None) -> Line:
    held_w = row.rest.watts
    if held_w is None:
        return Line(row=row, why=row.rest.why)
    if row.empty_w is None:
        return Line(row=row, held_w=held_w, why=NOT_MEASURED, estimate_w=_estimate(row.name, held_w))
    wasted_w = idle.waste_w(held_w, row.empty_w)
    kwh = idle.kwh_per_year(wasted_w)
    if price is None:
        return Line(row=row, held_w=held_w, waste_w=wasted_w, kwh=kwh)
    cost = kwh * price.per_kwh
    return Line(row=row, held_w=held_w, waste_w=wasted_w, kwh=kwh, cost=cost, per_kwh=price.per_kwh, currency=price.currency)


def _estimate(name: str, held_w: float) -> tuple[float, float] | None:
    for pattern, low_w, high_w in _ELSEWHERE_W:
        if re.search(pattern, name):
            return max(0.0, held_w - high_w), max(0.0, held_w - low_w)
    return None


def _totals(lines: Sequence[Line]) -> tuple[Total, ...]:
    """Real cards first. Simulated watts are never added to real ones, nor one currency to another."""
    kinds = sorted({(line.row.simulated, line.currency) for line in lines})
    return tuple(_total(kind, [line for line in lines if (line.row.simulated, line.currency) == kind]) for kind in kinds)


def _total(kind: tuple[bool, str], lines: Sequence[Line]) -> Total:
    simulated, currency = kind
    cost = sum((line.cost or Decimal(0) for line in lines), Decimal(0)) if currency else None
    kwh = sum((line.kwh or Decimal(0) for line in lines), Decimal(0))
    return Total(simulated=simulated, currency=currency, cards=len(lines), kwh=kwh, cost=cost)
