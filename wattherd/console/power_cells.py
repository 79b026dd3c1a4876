"""What stands in one cell of the table: each figure of a card or board in as few characters as say it. Unknown is `?`, never 0. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wattherd.power import reading, throttle
from wattherd.verbs import power_rows

UNKNOWN = "?"


def name(row: power_rows.Row) -> str:
    """`0 RTX 3090`: the number that nvidia-smi gives it now, and its product's name without its maker's."""
    number = f"{row.card.index} " if row.card is not None and row.card.index >= 0 else ""
    return number + kind(row)


def kind(row: power_rows.Row) -> str:
    return row.name.removeprefix("NVIDIA ").removeprefix("GeForce ").removeprefix("Tesla ").removeprefix("Jetson ")


def watts(value: float | None, *, absent: str = UNKNOWN) -> str:
    """Whole watts from 100 on, a tenth below."""
    if value is None:
        return absent
    return f"{value:.0f}" if abs(value) >= 99.95 or float(value).is_integer() else f"{value:.1f}"


def draw(row: power_rows.Row) -> str:
    return watts(row.draw.watts if row.draw is not None else None)


def limit(row: power_rows.Row) -> str:
    """What the card keeps to; of a board its mode, which is what it has instead."""
    if row.board is not None:
        return row.board.mode or UNKNOWN
    return of(row, lambda card: watts(card.limits.enforced_w if card.limits.enforced_w is not None else card.limits.requested_w))


def desired(row: power_rows.Row) -> str:
    """Watts, of a board its mode; `-` where nothing was chosen."""
    if row.board is not None:
        return row.desired_board.mode if row.desired_board is not None and row.desired_board.mode else "-"
    return watts(row.desired_w, absent="-")


def requested(row: power_rows.Row) -> str:
    return of(row, lambda card: watts(card.limits.requested_w))


def of(row: power_rows.Row, told: Callable[[reading.Card], str]) -> str:
    return told(row.card) if row.card is not None else "-" if row.board is not None else UNKNOWN


def sensor(row: power_rows.Row) -> str:
    """`average 1 s, nvml`: which sensor, how long it averages, and who told."""
    told = row.draw
    if told is None:
        return UNKNOWN
    window = f" {told.window_s:g} s" if told.window_s else ""
    return f"{told.sensor}{window}, {told.source}"


def clocks(row: power_rows.Row) -> str:
    if row.board is not None:
        return f"{whole(row.board.gpu_mhz)}/-"
    return of(row, lambda card: f"{whole(card.clocks.sm_mhz)}/{whole(card.clocks.memory_mhz)}")


def heat_of_today(row: power_rows.Row) -> str:
    """Now, and the highest that the keeper has seen today."""
    return f"{whole(temperature(row))}/{whole(row.highest_c)}"


def temperature(row: power_rows.Row) -> float | None:
    return row.card.temperature_c if row.card is not None else row.board.temperature_c if row.board is not None else None


def pstate(row: power_rows.Row) -> str:
    return of(row, lambda card: "asleep" if card.suspended else UNKNOWN if card.pstate is None else f"P{card.pstate}")


def held_back(row: power_rows.Row) -> str:
    """The reasons that really bind; a flag alone is none."""
    return ", ".join(throttle.WORDS.get(one, one) for one in row.card.binding) if row.card is not None else ""


def held_short(row: power_rows.Row) -> str:
    holders = row.card.holders if row.card is not None else ()
    if not holders:
        return ""
    one = holders[0]
    more = f" +{len(holders) - 1}" if len(holders) > 1 else ""
    return f"{one.model or f'{one.name} ({one.user or UNKNOWN})'}{' asleep' if one.asleep else ''}{more}"


def held(row: power_rows.Row) -> str:
    return ", ".join(holder(one) for one in row.card.holders) if row.card is not None else ""


def holder(one: reading.Holder) -> str:
    """`llama-server smollm2, asleep (llama)`."""
    what = " ".join(part for part in (one.name or f"process {one.pid}", one.model) if part)
    return f"{what}{', asleep' if one.asleep else ''} ({one.user or UNKNOWN})"


def drift(row: power_rows.Row) -> str:
    if not row.drift_count:
        return ""
    return f"{row.drift_count}, {ago(row.now_s - row.drift_last_s)}" if row.drift_last_s is not None else str(row.drift_count)


def ago(seconds_s: float) -> str:
    """`12 min ago`; a clock that ran backwards is `just now`."""
    for size_s, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds_s >= size_s:
            return f"{seconds_s // size_s:.0f} {unit} ago"
    return "just now"


def whole(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}"


def heat(row: power_rows.Row) -> str:
    """What holds the card back beside its power limit, which is there to do so."""
    binding = [one for one in row.card.binding if one != throttle.SW_POWER_CAP] if row.card is not None else []
    return f"held back by {', '.join(throttle.WORDS.get(one, one) for one in binding)}" if binding else ""


def drawn(rows: Sequence[power_rows.Row]) -> str:
    """What is drawn in all, real and simulated apart; what does not say stays out of the sum and is counted beside it."""
    parts = []
    for simulated in (False, True):
        told = [row.draw.watts for row in rows if row.draw is not None and row.simulated is simulated]
        if told:
            parts.append(f"{watts(sum(told))} W drawn{' (simulated)' if simulated else ''}")
    silent = sum(row.draw is None for row in rows)
    return ", ".join([*parts, *([f"{silent} without a figure"] if silent else [])]) or "nothing drawn"
