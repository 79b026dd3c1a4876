"""The table of cards and boards as lines of text for a terminal of some width: good ones first, trouble last, where the prompt is. Pure.

Cells are cropped, never folded; reasons stand below their row, in full. 80 columns have what a person needs at night, from WIDE on all.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wattherd.console import power_cells as cells
from wattherd.console import power_details, screen
from wattherd.verbs import power_rows

#: A line and its style.
Line = tuple[str, str]
STYLES = {power_rows.OK: "", power_rows.SKIPPED: "cyan", power_rows.DRIFT: "yellow", power_rows.FAILED: "red"}
WIDE = 150
#: More rows than this are told by kind: a screen full of good ones would push away what is wrong.
MANY = 20
_GAP = 2
_NAMES = 12


@dataclass(frozen=True)
class Column:
    """`least` is how far it may be cropped; 0 is never."""

    title: str
    cell: Callable[[power_rows.Row], str]
    right: bool = False
    least: int = 0


def lines(rows: Sequence[power_rows.Row], width: int, *, verbose: bool = False, brief: bool = False) -> list[Line]:
    """The whole table; nothing for no rows. `verbose` shows every card with its details, `brief` the good ones as one line."""
    ordered = sorted(rows, key=lambda row: power_rows.STATUSES.index(row.status))
    good = [row for row in ordered if row.status == power_rows.OK]
    columns = _columns(width, simulated=any(row.simulated for row in rows))
    left = ordered[len(good) :] if brief else ordered
    groups = _groups(left, all_kinds=len(left) > MANY and not verbose)
    made: list[Line] = [(summary(good), "")] if brief and good else []
    if not groups:
        return made
    texts = [[_cell(column, group) for column in columns] for group in groups]
    widths = _widths(columns, texts, width)
    made.append((_joined(columns, widths, [column.title for column in columns]), "bold"))
    for group, row_texts in zip(groups, texts, strict=True):
        style = STYLES[group[0].status]
        made.append((_joined(columns, widths, row_texts), style))
        made += [(line, style) for line in below(group, width, verbose=verbose)]
    return made


def summary(rows: Sequence[power_rows.Row]) -> str:
    """`48 cards on 24 hosts are as they should be: 2 914 W drawn`."""
    hosts = len({row.host for row in rows})
    what = f"{len(rows)} card{'' if len(rows) == 1 else 's'} on {hosts} host{'' if hosts == 1 else 's'}"
    return f"{what} {'is as it' if len(rows) == 1 else 'are as they'} should be: {cells.drawn(rows)}"


def below(group: Sequence[power_rows.Row], width: int, *, verbose: bool) -> list[str]:
    """The reason that they share, on which hosts, and what else is worth a word; when asked for, everything."""
    row = group[0]
    told = [words for words in (row.reason, cells.heat(row) if len(group) == 1 else "", row.note) if words]
    names = list(dict.fromkeys(one.host for one in group))
    if len(names) > 1 and row.status != power_rows.OK:
        told.append(
            f"on {', '.join(names[:_NAMES])}" + (f" and {len(names) - _NAMES} more (--verbose names all)" if len(names) > _NAMES else "")
        )
    told += power_details.details(row) if verbose else []
    return [line for words in told for line in wrapped(words, width)]


def wrapped(words: str, width: int, indent: str = "    ") -> list[str]:
    """Words as lines of at most `width` columns, those after the first a little further in."""
    room = max(40, min(width, 160))
    return textwrap.wrap(screen.safe(words), room, initial_indent=indent, subsequent_indent=f"{indent}  ", break_long_words=False)


# -- columns


def _columns(width: int, *, simulated: bool) -> list[Column]:
    source = [Column("figures", lambda row: "simulated" if row.simulated else "real")] if simulated else []
    status = Column("status", lambda row: row.status)
    first = [Column("host", lambda row: row.host, least=6), Column("card", cells.name, least=8)]
    if width < WIDE:
        return [
            *first,
            Column("draw W", cells.draw, right=True),
            Column("limit W", cells.limit, right=True),
            Column("°C", lambda row: cells.whole(cells.temperature(row)), right=True),
            Column("P", cells.pstate),
            Column("held by", cells.held_short, least=8),
            *source,
            status,
        ]
    return [
        *first,
        Column("desired W", cells.desired, right=True),
        Column("requested", cells.requested, right=True),
        Column("enforced", cells.limit, right=True),
        Column("draw W", cells.draw, right=True),
        Column("sensor", cells.sensor, least=8),
        Column("MHz sm/mem", cells.clocks, right=True),
        Column("°C now/high", cells.heat_of_today, right=True),
        Column("held back by", cells.held_back, least=8),
        Column("P", cells.pstate),
        Column("held by", cells.held, least=12),
        Column("drift", cells.drift, least=6),
        *source,
        status,
    ]


# -- many good ones


def _groups(rows: Sequence[power_rows.Row], *, all_kinds: bool) -> list[list[power_rows.Row]]:
    """Rows that say the same of what was chosen, is kept to and is wrong, in the order of their first. One that failed stands alone.

    Cards of a host that could not be read at all are told together in any case: there is nothing to say of one that is not said of all.
    """
    found: dict[tuple[object, ...], list[power_rows.Row]] = {}
    for row in rows:
        if not all_kinds:
            is_unread = row.card is None and row.board is None
            found.setdefault((row.host, row.name, row.reason) if is_unread else (row.host, row.uuid), []).append(row)
            continue
        limits = row.card.limits if row.card is not None else None
        kept = (limits.requested_w, limits.enforced_w) if limits is not None else (row.board.mode if row.board is not None else "",)
        alone = (row.host, row.uuid) if row.status == power_rows.FAILED and row.card is not None else ()
        said = (row.status, row.reason, row.note, cells.heat(row), *alone)
        found.setdefault((cells.kind(row), tuple(row.desired.items()), row.desired_board, kept, row.simulated, said), []).append(row)
    return list(found.values())


def _cell(column: Column, group: Sequence[power_rows.Row]) -> str:
    """One row's own cell; of several what they have in common, or what they come to."""
    if len(group) == 1:
        return screen.safe(column.cell(group[0]))
    common = _COMMON.get(column.title)
    return screen.safe(common(group) if common is not None else column.cell(group[0]))


def _hosts(rows: Sequence[power_rows.Row]) -> str:
    names = list(dict.fromkeys(row.host for row in rows))
    return names[0] if len(names) == 1 else f"{len(names)} hosts"


def _kind(rows: Sequence[power_rows.Row]) -> str:
    return f"{len(rows)} x {cells.kind(rows[0])}"


def _sum(rows: Sequence[power_rows.Row]) -> str:
    told = [row.draw.watts for row in rows if row.draw is not None]
    return f"{sum(told):.0f}{'' if len(told) == len(rows) else '+?'}" if told else cells.UNKNOWN


def _hottest(rows: Sequence[power_rows.Row]) -> str:
    return cells.whole(max((one for one in map(cells.temperature, rows) if one is not None), default=None))


def _holding(rows: Sequence[power_rows.Row]) -> str:
    count = sum(row.card is not None and bool(row.card.holders) for row in rows)
    return f"{count} held" if count else ""


def _backed(rows: Sequence[power_rows.Row]) -> str:
    count = sum(row.card is not None and bool(row.card.binding) for row in rows)
    return f"{count} of them" if count else ""


def _drifts(rows: Sequence[power_rows.Row]) -> str:
    count = sum(row.drift_count for row in rows)
    return str(count) if count else ""


def _now_and_high(rows: Sequence[power_rows.Row]) -> str:
    highest = max((row.highest_c for row in rows if row.highest_c is not None), default=None)
    return f"{_hottest(rows)}/{cells.whole(highest)}"


def _nothing(_rows: Sequence[power_rows.Row]) -> str:
    return ""


_COMMON: dict[str, Callable[[Sequence[power_rows.Row]], str]] = {
    "host": _hosts,
    "card": _kind,
    "draw W": _sum,
    "sensor": _nothing,
    "MHz sm/mem": _nothing,
    "°C": _hottest,
    "°C now/high": _now_and_high,
    "P": _nothing,
    "held by": _holding,
    "held back by": _backed,
    "drift": _drifts,
}


# -- layout


def _widths(columns: Sequence[Column], texts: Sequence[Sequence[str]], width: int) -> list[int]:
    """Natural widths; where they do not fit, the columns that may be cropped give way, the widest first."""
    widths = [max(len(column.title), *(len(row[at]) for row in texts)) for at, column in enumerate(columns)]
    over = sum(widths) + _GAP * (len(columns) - 1) - width
    while over > 0:
        room = [(widths[at] - max(column.least, len(column.title)), at) for at, column in enumerate(columns) if column.least]
        most, at = max(room, default=(0, 0))
        if most <= 0:
            break
        widths[at] -= 1
        over -= 1
    return widths


def _joined(columns: Sequence[Column], widths: Sequence[int], texts: Sequence[str]) -> str:
    parts = []
    for column, width, cell in zip(columns, widths, texts, strict=True):
        short = cell if len(cell) <= width else cell[: width - 1] + "…"
        parts.append(short.rjust(width) if column.right else short.ljust(width))
    return (" " * _GAP).join(parts).rstrip()
