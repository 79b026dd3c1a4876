"""How models and what is left of them are shown: `invoke models` and `invoke models-gc`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattherd import errors, fleet, units
from wattherd.console.screen import Screen
from wattherd.verbs import garbage, models


def catalogue(screen: Screen, rows: Sequence[models.Row]) -> int:
    """Exit code 1 when an entry cannot be read; one that was only never fetched is no fault."""
    if screen.as_json:
        screen.document({"models": {row.name: _document(row) for row in rows}})
    else:
        titles = ("model", "architecture", "parameters", "quantisation", "context", "size", "parts", "licence", "kind")
        screen.table(titles, [_words(row) for row in rows], right=(2, 4, 5, 6))
    for row in rows:
        for note in row.notes:
            screen.warn(f"{row.name}: {note}")
        if row.problem is not None and not _unfetched(row):
            screen.problem(row.problem, row.name)
    if any(_unfetched(row) for row in rows):
        screen.say("(not fetched): a deploy brings it to this controller, or add --fetch", "dim")
    return int(any(row.problem is not None and not _unfetched(row) for row in rows))


def collected(screen: Screen, done: Mapping[str, fleet.Done[tuple[garbage.Left, ...]]], *, delete: bool) -> int:
    statuses = [fleet.status_of(one.problem) for one in done.values()]
    if screen.as_json:
        hosts = {name: _host_document(one) for name, one in done.items()}
        screen.document({"hosts": hosts, "left_bytes": _sum(done, removed=False), "removed_bytes": _sum(done, removed=True)})
    else:
        rows = [
            (name, left.kind, left.name, units.size(left.size_bytes), "removed" if left.removed else "busy" if delete else "", left.path)
            for name, one in done.items()
            for left in one.value or ()
        ]
        screen.table(("host", "kind", "name", "size", "", "path"), rows, right=(3,))
        for name, one in done.items():
            mine = {name: one}
            if one.value is not None:
                screen.say(f"{name}: {_total(units.size(_sum(mine, removed=False)), units.size(_sum(mine, removed=True)), delete=delete)}")
        if len(done) > 1:
            screen.say(f"in all: {_total(units.size(_sum(done, removed=False)), units.size(_sum(done, removed=True)), delete=delete)}")
        if rows and not delete:
            screen.say("nothing was removed; --delete removes it", "dim")
    for name, one in done.items():
        if one.problem is not None:
            screen.problem(one.problem, name)
    return fleet.exit_code(statuses)


def _total(left: str, removed: str, *, delete: bool) -> str:
    return f"{removed} removed, {left} left" if delete else f"{left} that nothing refers to"


def _sum(done: Mapping[str, fleet.Done[tuple[garbage.Left, ...]]], *, removed: bool) -> int:
    return sum(left.size_bytes for one in done.values() for left in one.value or () if left.removed == removed)


def _host_document(one: fleet.Done[tuple[garbage.Left, ...]]) -> dict[str, object]:
    if one.value is None:
        return {"problem": (one.problem or errors.Problem("internal", "no answer")).to_dict()}
    rows = [
        {"kind": left.kind, "path": left.path, "size_bytes": left.size_bytes, "name": left.name, "removed": left.removed}
        for left in one.value
    ]
    return {"left": rows, "left_bytes": _sum({"": one}, removed=False), "removed_bytes": _sum({"": one}, removed=True), "problem": None}


def _unfetched(row: models.Row) -> bool:
    return row.problem is not None and row.problem.code == "source-not-fetched"


def _words(row: models.Row) -> tuple[str, ...]:
    return (
        row.name,
        row.architecture or "?",
        _count(row.parameters),
        row.quantisation or "?",
        str(row.context or "?"),
        units.size(row.size_bytes) if row.size_bytes else "?",
        str(row.parts or "?"),
        row.license or "?",
        row.kind or ("(not fetched)" if _unfetched(row) else "(cannot be read)" if row.problem else "(on the node)"),
    )


def _count(parameters: int) -> str:
    """135M, 7.2B: as models are called."""
    if not parameters:
        return "?"
    billions = parameters / 1e9
    return f"{billions:.1f}B" if billions >= 1 else f"{parameters / 1e6:.0f}M"


def _document(row: models.Row) -> dict[str, object]:
    """Unknown is null."""
    return {
        "source": row.source.partition("?")[0],
        "name": row.title or None,
        "architecture": row.architecture or None,
        "parameters": row.parameters or None,
        "quantisation": row.quantisation or None,
        "context": row.context or None,
        "size_bytes": row.size_bytes or None,
        "license": row.license or None,
        "kind": row.kind or None,
        "draft": row.draft or None,
        "sha256": list(row.sha256),
        "tensor_types": dict(row.tensor_types) or None,
        "notes": list(row.notes),
        "problem": row.problem.to_dict() if row.problem else None,
    }
