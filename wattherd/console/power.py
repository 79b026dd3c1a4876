"""`power-status` for people: the table, what idling wastes, and in the last lines what is wrong. A watch shows it again and again."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wattherd import fleet, units
from wattherd.console import power_cells as cells
from wattherd.console import power_document, power_table, power_waste, screen
from wattherd.verbs import power_rows, power_status

if TYPE_CHECKING:
    from wattherd.verbs import power_watch

Line = power_table.Line
#: So many are named in the last line.
_NAMES = 8
#: A host that is watched and has not answered for so many looks is behind.
_BEHIND_LOOKS = 3
_BEHIND_S = 10.0


def shown(out: screen.Screen, picture: power_status.Picture, *, brief: bool = False) -> int:
    if out.as_json:
        out.document(power_document.document(picture))
    for words, style in _body(out, picture, brief=brief):
        out.say(words, style)
    for words, style in wrong(picture):
        out.say(words, style)
    return picture.exit_code


def watched(out: screen.Screen, following: power_watch.Following, *, every_s: float, brief: bool = False) -> int:
    """Until Ctrl-C, which is its proper end. On a terminal a table in place, elsewhere one after the other; under --json a line each."""
    picture = following.picture()
    try:
        while True:
            picture = following.picture()
            if out.as_json:
                out.text(json.dumps(power_document.document(picture), ensure_ascii=False) + "\n")
            else:
                out.picture(_watched(out, picture, every_s, brief=brief))
            following.wait(every_s)
    except KeyboardInterrupt:
        out.picture([])
        if out.is_live and not out.as_json:
            shown(out, picture, brief=brief)
    return picture.exit_code


def _watched(out: screen.Screen, picture: power_status.Picture, every_s: float, *, brief: bool) -> list[Line]:
    now = dt.datetime.now().astimezone()
    head = f"{now:%H:%M:%S}, every {units.duration(every_s)}; Ctrl-C ends"
    made: list[Line] = [(head, "dim"), *_body(out, picture, brief=brief)]
    if picture.waiting:
        made.append((f"not answered yet: {', '.join(picture.waiting)}", "dim"))
    behind_s = max(_BEHIND_S, _BEHIND_LOOKS * every_s)
    for name, done in picture.hosts.items():
        age_s = time.monotonic() - done.value.seen_s if done.value is not None else 0.0
        if age_s > behind_s:
            made.append((f"{name}: these are figures of {units.duration(age_s)} ago; it has not answered since", "yellow"))
    return [*made, *wrong(picture)]


def _body(out: screen.Screen, picture: power_status.Picture, *, brief: bool) -> list[Line]:
    return [*_table(out, picture, brief=brief), *power_waste.lines(picture.waste, picture.rows, out.width, verbose=out.verbose)]


def _table(out: screen.Screen, picture: power_status.Picture, *, brief: bool) -> list[Line]:
    made = power_table.lines(picture.rows, out.width, verbose=out.verbose, brief=brief)
    bare = [name for name, done in picture.hosts.items() if done.value is not None and not done.value.rows and done.value.fault is None]
    if bare:
        made = [(f"no NVIDIA card and no Jetson: {', '.join(bare)}", "dim"), *made]
    for name, done in picture.hosts.items():
        for words in done.value.notes if done.value is not None else ():
            made.append((screen.safe(f"{name}: {words}"), "cyan"))
    made += [(line, "dim") for words in _bases(picture.rows) for line in power_table.wrapped(words, out.width, "")]
    return [*made, counts(picture)] if picture.rows else made


def _bases(rows: Sequence[power_rows.Row]) -> list[str]:
    """What a draw covers where that is not the whole card or board."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.draw is not None and row.draw.basis:
            found.setdefault(row.draw.basis, []).append(row.host)
    told = {basis: list(dict.fromkeys(hosts)) for basis, hosts in found.items()}
    return [
        f"draw of {', '.join(hosts[:_NAMES])}{f' and {len(hosts) - _NAMES} more' if len(hosts) > _NAMES else ''}: {basis}"
        for basis, hosts in told.items()
    ]


def counts(picture: power_status.Picture) -> Line:
    """All of it in one line."""
    found = {status: sum(row.status == status for row in picture.rows) for status in power_rows.STATUSES}
    told = ", ".join(f"{count} {status}" for status, count in found.items() if count)
    boards = sum(row.uuid == power_rows.BOARD for row in picture.rows)
    kinds = [(len(picture.rows) - boards, "card"), (boards, "board")]
    what = " and ".join(units.plural(count, kind) for count, kind in kinds if count)
    return f"{what}: {told}; {cells.drawn(picture.rows)}", "bold"


def wrong(picture: power_status.Picture) -> list[Line]:
    """What needs somebody, in the last lines: each host that could not be asked or read, then every name. Nothing when all is well."""
    made: list[Line] = []
    names: list[str] = []
    for name, done in picture.hosts.items():
        problem = done.problem if done.value is None else done.value.fault
        if problem is not None:
            state = fleet.status_of(problem)
            names.append(f"{name} ({state})")
            made.append((screen.safe(f"{name}  {state}: {problem.message}  [{problem.code}]"), "red"))
            made += [(screen.safe(f"    -> {problem.hint}"), "bold")] if problem.hint else []
    bad = [row for row in picture.rows if row.status in {power_rows.DRIFT, power_rows.FAILED} and f"{row.host} (failed)" not in names]
    names = [*(f"{row.host} {cells.name(row)} ({row.status})" for row in bad), *names]
    if names:
        shown_names = ", ".join(names[-_NAMES:]) + (f" and {len(names) - _NAMES} more above" if len(names) > _NAMES else "")
        made.append((screen.safe(f"wrong: {shown_names}"), "bold red"))
    return made
