"""`power-status` as one JSON document (DESIGN section 7): unknown is null, never 0; energy and money are exact decimal strings."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping
from decimal import Decimal

from wattherd import fleet
from wattherd.console import money, reports
from wattherd.policy import idle
from wattherd.power import reading, settings
from wattherd.verbs import idle_waste, power_rows, power_status
from wattherd.wire import fields


def document(picture: power_status.Picture) -> dict[str, object]:
    """All of a picture; a watch prints one such a line."""
    return {
        "cards": [row_document(row) for row in picture.rows],
        "hosts": {
            **{name: _host_document(done) for name, done in picture.hosts.items()},
            **{name: {"status": "waiting", "problem": None} for name in picture.waiting},
        },
        "idle_waste": waste_document(picture.waste),
    }


def _host_document(done: fleet.Done[power_status.Seen]) -> dict[str, object]:
    if done.value is None:
        return {"status": fleet.status_of(done.problem), "problem": reports.problem_document(done.problem)}
    one = done.value
    return {
        "status": one.status,
        "problem": reports.problem_document(one.fault),
        "driver": one.driver or None,
        "source": one.source or None,
        "simulated": one.simulated,
        "cards": len(one.rows),
        "notes": list(one.notes),
        "age_s": round(max(0.0, time.monotonic() - one.seen_s), 1),
    }


def row_document(row: power_rows.Row) -> dict[str, object]:
    draw, limits = row.draw, row.card.limits if row.card is not None else reading.Limits()
    return {
        "host": row.host,
        "uuid": row.uuid,
        "name": row.name,
        "desired_w": row.desired_w,
        "requested_w": limits.requested_w,
        "enforced_w": limits.enforced_w,
        "drawn_w": draw.watts if draw is not None else None,
        "source": draw.source if draw is not None else None,
        "sensor": draw.sensor if draw is not None else None,
        "averaging_s": draw.window_s if draw is not None else None,
        "basis": (draw.basis or None) if draw is not None else None,
        "status": row.status,
        "reason": row.reason,
        "note": row.note or None,
        "simulated": row.simulated,
        "desired": _desired(row),
        "desired_from": row.chosen_by or None,
        "applied": row.applied,
        "min_w": limits.min_w,
        "max_w": limits.max_w,
        "default_w": limits.default_w,
        "before": dict(row.before),
        "drift": _drift_document(row),
        "temperature_highest_today_c": row.highest_c,
        "at_rest_w": row.rest.watts,
        "empty_w": row.empty_w,
        **(_card_document(row.card) if row.card is not None else _board_document(row.board) if row.board is not None else {}),
    }


def _desired(row: power_rows.Row) -> Mapping[str, object] | None:
    if row.desired_board is not None:
        return fields.document(fields.plain(row.desired_board), "desired")
    if not row.desired:
        return None
    return {setting: list(value) if setting in settings.LOCKS else value[0] for setting, value in row.desired.items()}


def _card_document(card: reading.Card) -> dict[str, object]:
    return {
        "bus": card.bus or None,
        "index": card.index if card.index >= 0 else None,
        "sm_mhz": card.clocks.sm_mhz,
        "memory_mhz": card.clocks.memory_mhz,
        "sm_max_mhz": card.clocks.sm_max_mhz,
        "temperature_c": card.temperature_c,
        "temperature_target_c": card.temperature_target_c,
        "throttle": list(card.binding),
        "throttle_flags": list(card.throttle),
        "pstate": card.pstate,
        "utilization_percent": card.utilization_percent,
        "memory_used_mib": card.memory_used_mib,
        "memory_total_mib": card.memory_total_mib,
        "persistence": card.persistence,
        "mig": card.mig,
        "fan_percent": card.fan_percent,
        "energy_mj": card.energy_mj,
        "drawn_instant_w": card.draw_instant_w,
        "holders": [
            {
                "pid": one.pid,
                "name": one.name or None,
                "user": one.user or None,
                "unit": one.unit or None,
                "model": one.model or None,
                "memory_mib": one.memory_mib,
                "asleep": one.asleep,
            }
            for one in card.holders
        ],
        "unknown": dict(card.unknown),
    }


def _board_document(board: reading.Board) -> dict[str, object]:
    return {
        "mode": board.mode or None,
        "mode_id": board.mode_id,
        "modes": list(board.modes),
        "pending_mode": board.pending_mode or None,
        "pinned": board.pinned,
        "fan": board.fan or None,
        "rails_w": dict(board.rails_w),
        "sm_mhz": board.gpu_mhz,
        "sm_max_mhz": board.gpu_max_mhz,
        "utilization_percent": board.gpu_load_percent,
        "temperature_c": board.temperature_c,
        "unknown": dict(board.unknown),
    }


def _drift_document(row: power_rows.Row) -> dict[str, object]:
    return {
        "count": row.drift_count,
        "last_at": _instant(row.drift_last_s),
        "settings": [
            {
                "setting": one.setting,
                "wanted": one.wanted or None,
                "found": one.found or None,
                "count": one.count,
                "last_day": one.last_day,
                "last_at": _instant(one.last_s or None),
                "is_open": one.is_open,
                "in_conflict": one.in_conflict,
                "writers": list(one.writers),
            }
            for one in row.drifts
        ],
    }


def _instant(seconds_s: float | None) -> str | None:
    """UTC, as ISO 8601 writes it; the node's own clock said when."""
    if seconds_s is None:
        return None
    try:
        return dt.datetime.fromtimestamp(seconds_s, dt.UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return None


def waste_document(waste: idle_waste.Waste) -> dict[str, object]:
    """The totals of real cards; where there are only simulated ones, of those, and `simulated` says so."""
    simulated = bool(waste.totals) and all(total.simulated for total in waste.totals)
    main = [total for total in waste.totals if total.simulated is simulated]
    kwh = sum((total.kwh for total in main), Decimal(0)) if main else None
    one = main[0] if len(main) == 1 else None
    return {
        "kwh_per_year": money.plain(kwh) if kwh is not None else None,
        "cost_per_year": money.plain(one.cost) if one is not None and one.cost is not None else None,
        "currency": (one.currency or None) if one is not None else None,
        "simulated": simulated,
        "hours_per_year": idle.HOURS_PER_YEAR,
        "totals": [
            {
                "simulated": total.simulated,
                "currency": total.currency or None,
                "cards": total.cards,
                "kwh_per_year": money.plain(total.kwh),
                "cost_per_year": None if total.cost is None else money.plain(total.cost),
            }
            for total in waste.totals
        ],
        "cards": [_line_document(line) for line in waste.counted],
        "not_counted": [_line_document(line) for line in waste.uncounted],
    }


def _line_document(line: idle_waste.Line) -> dict[str, object]:
    return {
        "host": line.row.host,
        "uuid": line.row.uuid,
        "simulated": line.row.simulated,
        "held_w": line.held_w,
        "empty_w": line.row.empty_w,
        "waste_w": None if line.waste_w is None else money.plain(line.waste_w),
        "kwh_per_year": None if line.kwh is None else money.plain(line.kwh),
        "cost_per_year": None if line.cost is None else money.plain(line.cost),
        "price_per_kwh": None if line.per_kwh is None else money.plain(line.per_kwh),
        "currency": line.currency or None,
        "why": line.why or None,
        "estimate_w": None if line.estimate_w is None else list(line.estimate_w),
    }
