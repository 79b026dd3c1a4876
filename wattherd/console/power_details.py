"""Everything else that is known of one card or board, for --verbose: where each figure is from, what is not told and why. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wattherd.power import reading, settings
from wattherd.verbs import power_chosen, power_rows, power_told


def details(row: power_rows.Row) -> list[str]:
    """Short lines, each of one thing."""
    made = list(_card(row, row.card)) if row.card is not None else list(_board(row.board)) if row.board is not None else []
    return [*made, *_drifts(row)]


def _card(row: power_rows.Row, card: reading.Card) -> Iterator[str]:
    yield f"{row.uuid}, bus {card.bus or 'unknown'}"
    if card.fault:
        return
    limits = card.limits
    yield (
        f"power limit: takes {_plain(limits.min_w, '')} to {_plain(limits.max_w, ' W')}, default {_plain(limits.default_w, ' W')}, "
        f"requested {_plain(limits.requested_w, ' W')}, enforced {_plain(limits.enforced_w, ' W')}{_before(row)}"
    )
    if row.desired:
        wishes = ", ".join(f"{settings.NAMES[setting]} {settings.shown(setting, value)}" for setting, value in row.desired.items())
        yield f"wanted by the {'inventory' if row.chosen_by == power_chosen.INVENTORY else 'policy on the node'}: {wishes}"
    yield _draw(card.draw)
    clocks = card.clocks
    yield f"clocks: {_of(clocks.sm_mhz, clocks.sm_max_mhz, 'MHz')}, memory {_of(clocks.memory_mhz, clocks.memory_max_mhz, 'MHz')}"
    fan, busy = _plain(card.fan_percent, " %"), _plain(card.utilization_percent, " %")
    yield f"persistence {_switch(card.persistence)}, MIG {_switch(card.mig)}, fan {fan}, busy {busy}"
    target = _plain(card.temperature_target_c, " °C")
    yield f"memory {_of(card.memory_used_mib, card.memory_total_mib, 'MiB')}, temperature target {target}"
    idle_flags = [flag for flag in card.throttle if flag not in card.binding]
    if idle_flags:
        yield f"flags that hold nothing back: {', '.join(idle_flags)}"
    for one in card.holders:
        what = f"{one.name or 'unknown'}, user {one.user or 'unknown'}, unit {one.unit or 'none'}, model {one.model or 'none'}"
        yield f"process {one.pid}: {what}, {_plain(one.memory_mib, ' MiB')}"
    held = f"held and idle: {_plain(row.rest.watts, ' W') if row.rest.watts is not None else row.rest.why}; " if card.holders else ""
    yield f"{held}empty on this host: {_plain(row.empty_w, ' W')}"
    yield from _unknown(card.unknown)


def _board(board: reading.Board | None) -> Iterator[str]:
    if board is None:
        return
    yield f"modes of this board: {', '.join(board.modes) or 'unknown'}; default {board.default_mode or 'unknown'}"
    yield f"clocks {'unknown' if board.pinned is None else 'pinned' if board.pinned else 'free'}, fan {board.fan or 'unknown'}"
    yield _draw(board.draw)
    if board.rails_w:
        yield "rails: " + ", ".join(f"{rail} {watts:g} W" for rail, watts in board.rails_w.items())
    yield f"GPU {_of(board.gpu_mhz, board.gpu_max_mhz, 'MHz')}, busy {_plain(board.gpu_load_percent, ' %')}"
    yield from board.notes
    yield from _unknown(board.unknown)


def _draw(draw: reading.Draw | None) -> str:
    if draw is None:
        return "draw: unknown"
    window = "an instant" if draw.window_s == 0 else f"over {draw.window_s:g} s" if draw.window_s else "over a time that is not told"
    return f"draw: {draw.watts:g} W, {draw.sensor} {window}, told by {draw.source}{f'; {draw.basis}' if draw.basis else ''}"


def _before(row: power_rows.Row) -> str:
    """What power-apply --restore goes back to."""
    told = row.before.get(settings.LIMIT)
    value = tuple(told) if isinstance(told, list) else None
    return f"; before Wattherd {settings.shown(settings.LIMIT, value)}" if settings.LIMIT in row.before else ""


def _drifts(row: power_rows.Row) -> Iterator[str]:
    for one in row.drifts:
        if one.count:
            state = "in conflict" if one.in_conflict else "still so" if one.is_open else "put right"
            yield (
                f"drift: {settings.NAMES.get(one.setting, one.setting)} was {one.found or 'unknown'}, not {one.wanted or 'unknown'}: "
                f"{_often(one)}, {state}{_by(one.writers)}"
            )


def _often(one: power_told.Drifted) -> str:
    if one.count == 1:
        return "once" if one.last_day else "once, not in the last day"
    return f"{one.count} times, {one.last_day} in the last day"


def _by(writers: tuple[str, ...]) -> str:
    return f"; likely by {', '.join(writers[:3])}" if writers else ""


def _unknown(unknown: Mapping[str, str]) -> Iterator[str]:
    if unknown:
        yield "not told: " + ", ".join(f"{field} ({why})" for field, why in unknown.items())


def _plain(value: float | None, unit: str) -> str:
    return "unknown" if value is None else f"{value:g}{unit}"


def _of(value: float | None, most: float | None, unit: str) -> str:
    return f"{_plain(value, '')} of {_plain(most, f' {unit}')}"


def _switch(value: bool | None) -> str:
    return "unknown" if value is None else "on" if value else "off"
