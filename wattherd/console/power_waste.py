"""The last part of `power-status`: what idle cards cost in a year because something holds them, as lines of text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from wattherd import units
from wattherd.console import money, power_cells, power_table, screen
from wattherd.policy import idle
from wattherd.verbs import idle_waste, power_rows

Line = power_table.Line
#: The costliest are shown, the others summed up.
_ROWS = 8
_NAMES = 4


def lines(waste: idle_waste.Waste, rows: Sequence[power_rows.Row], width: int, *, verbose: bool = False) -> list[Line]:
    """`rows` are all that was seen: a card that could not be read may waste nobody knows what. Nothing where there is no card."""
    if not any(row.uuid != power_rows.BOARD for row in rows):
        return []
    made: list[Line] = []
    for total in waste.totals:
        counted = [line for line in waste.counted if (line.row.simulated, line.currency) == (total.simulated, total.currency)]
        made += _total(total, counted, width, verbose=verbose)
    if not waste.totals:
        made.append(_nothing(waste, rows))
    return [*made, *_asleep(waste.counted, width), *_uncounted(waste.uncounted, width)]


def _nothing(waste: idle_waste.Waste, rows: Sequence[power_rows.Row]) -> Line:
    if any(not line.row.rest.busy for line in waste.uncounted):
        return "idle waste: not known yet", "bold"
    unread = sum(row.status == power_rows.FAILED and row.draw is None for row in rows)
    if unread:
        return f"idle waste: not known: {units.plural(unread, 'card')} could not be read", "bold"
    return "idle waste: none: no process holds an idle card", ""


def _total(total: idle_waste.Total, counted: Sequence[idle_waste.Line], width: int, *, verbose: bool) -> list[Line]:
    mark = " (simulated)" if total.simulated else ""
    dear = sorted((line for line in counted if line.kwh), key=lambda line: -(line.kwh or Decimal(0)))
    if not dear:
        held = units.plural(total.cards, "idle card")
        return [(f"idle waste{mark}: none: {held} that something holds draw no more than empty", "")]
    places = money.digits(total.currency)
    cost = f" and {money.rounded(total.cost, places)} {total.currency}" if total.cost is not None else ""
    made: list[Line] = [(f"idle waste{mark}: {money.rounded(total.kwh, 1)} kWh{cost} a year", "bold")]
    kwh = money.shares([line.kwh or Decimal(0) for line in dear], 1)
    costs = money.shares([line.cost or Decimal(0) for line in dear], places)
    titles = ["host", "card", "held W", "empty W", "waste W", "kWh/year"]
    titles += [f"{total.currency}/year"] if total.currency else []
    cells = []
    for at, line in enumerate(dear):
        figures = [power_cells.watts(line.held_w), power_cells.watts(line.row.empty_w), str(money.rounded(line.waste_w or Decimal(0), 1))]
        figures += [str(kwh[at]), *([str(costs[at])] if total.currency else [])]
        cells.append([line.row.host, power_cells.name(line.row), *figures, power_cells.held(line.row)])
    shown = len(cells) if verbose else _ROWS
    made += _aligned([*titles, "held by"], cells[:shown], width)
    if cells[shown:]:
        also = f" and {sum(costs[shown:], Decimal(0))} {total.currency}" if total.currency else ""
        words = (
            f"  and {units.plural(len(cells) - shown, 'card')} more with {sum(kwh[shown:], Decimal(0))} kWh{also} (--verbose shows each)"
        )
        made.append((words, ""))
    return [*made, *((words, "dim") for words in power_table.wrapped(_terms(counted, priced=total.cost is not None), width, "  "))]


def _terms(counted: Sequence[idle_waste.Line], *, priced: bool) -> str:
    """What the figure rests on."""
    basis = f"if these cards idle on as now for {idle.HOURS_PER_YEAR} h; held and empty are both measured on that very host"
    if not priced:
        return f"{basis}; price_per_kwh in the inventory makes money of it"
    prices = {(line.per_kwh, line.currency) for line in counted if line.per_kwh is not None}
    told = [f"{money.plain(price)} {currency} a kWh" for price, currency in sorted(prices)]
    return f"{basis}; {' to '.join(dict.fromkeys((told[0], told[-1])))}" if told else basis


def _aligned(titles: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> list[Line]:
    """Figures to the right, the first two and the last column to the left; what does not fit is cropped at the end."""
    widths = [max(len(row[at]) for row in [titles, *cells]) for at in range(len(titles))]
    left = {0, 1, len(titles) - 1}

    def joined(row: Sequence[str]) -> str:
        parts = [cell.ljust(widths[at]) if at in left else cell.rjust(widths[at]) for at, cell in enumerate(row)]
        whole = screen.safe("  " + "  ".join(parts).rstrip())
        return whole if len(whole) <= width else whole[: width - 1] + "…"

    return [(joined(titles), "dim"), *((joined(row), "") for row in cells)]


def _asleep(counted: Sequence[idle_waste.Line], width: int) -> list[Line]:
    """A model that sleeps and saves nothing, said of each card where that was measured."""
    told = [line for line in counted if line.row.note and line.kwh]
    made = [f"{line.row.host} {power_cells.name(line.row)}: {line.row.note}" for line in told[:_NAMES]]
    made += [f"and {units.plural(len(told) - _NAMES, 'card')} more with a model that sleeps"] if len(told) > _NAMES else []
    return [(words, "cyan") for each in made for words in power_table.wrapped(each, width, "")]


def _uncounted(lines_: Sequence[idle_waste.Line], width: int) -> list[Line]:
    """By reason, with names; a card at work is no waste and is not spoken of."""
    by_reason: dict[str, list[idle_waste.Line]] = {}
    for line in lines_:
        if not line.row.rest.busy:
            by_reason.setdefault(line.why, []).append(line)
    made: list[str] = []
    for why, found in by_reason.items():
        names = [f"{line.row.host} {power_cells.name(line.row)}" for line in found]
        shown = ", ".join(names[:_NAMES]) + (f" and {len(names) - _NAMES} more" if len(names) > _NAMES else "")
        made.append(f"not counted: {shown}: {why}")
        if why == idle_waste.NOT_MEASURED:
            made.append("  it is measured when nothing holds the card: by the keeper (role power), or by a power-status just then")
        made += [_estimated(line) for line in found[:_NAMES] if line.estimate_w is not None]
    return [(words, "") for each in made for words in power_table.wrapped(each, width, "")]


def _estimated(line: idle_waste.Line) -> str:
    span = "-".join(dict.fromkeys(f"{one:.0f}" for one in line.estimate_w or ()))
    return f"  {line.row.host} {power_cells.name(line.row)}: estimate {span} W, from reports of other people's machines; it is in no sum"
