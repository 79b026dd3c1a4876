"""What there is to turn on a card, and over which range: its power limit, or its clocks where no limit can be set. Looks only."""

from __future__ import annotations

from typing import Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.node import tuning_job
from wattherd.power import memory, reading, sweep
from wattherd.records import dataclass


@dataclass(frozen=True)
class Range:
    """`kind` limit_w (watts) or clocks_mhz; `least` is 0 for clocks, whose lowest useful one is a share of the highest."""

    kind: str
    least: float
    most: float
    notes: Tuple[str, ...] = ()


def of(machine: machines.Machine, seen: reading.Look, job: tuning_job.Job, cards: Tuple[reading.Card, ...]) -> Range:
    """Raises `tune-unfit` when nothing can be turned, `power-range` when the user's own beginning does not fit."""
    card = cards[0]
    why = _no_limit(machine, seen, card)
    if not why:
        least, most = card.limits.min_w or 0.0, _most(job, card)
        outside = [one for one in cards if _capped_outside(one)]
        notes = [
            f"{one.shown}: something besides software caps it at {one.limits.enforced_w:g} W (its BMC, or another agent)" for one in outside
        ]
        most = min([most, *(one.limits.enforced_w for one in outside if one.limits.enforced_w is not None)])
        return Range(sweep.LIMIT, least, most, tuple(notes))
    no_lock = memory.unsupported(machine, card.uuid, sweep.CLOCKS, seen.driver)
    if no_lock or card.clocks.sm_max_mhz is None:
        raise errors.Problem(
            "tune-unfit",
            f"neither its power limit ({why}) nor its clocks ({no_lock or 'their highest is not known'}) can be set",
            hint="there is nothing to tune on this card",
        )
    words = f"its power limit cannot be set ({why}): clock ceilings instead"
    return Range(sweep.CLOCKS, 0.0, float(card.clocks.sm_max_mhz), (words,))


def _no_limit(machine: machines.Machine, seen: reading.Look, card: reading.Card) -> str:
    limits = card.limits
    if limits.min_w is None or limits.max_w is None or limits.requested_w is None:
        return card.unknown.get("limits", "the card does not tell its range")
    if limits.max_w - limits.min_w < 1:
        return f"its only limit is {limits.max_w:g} W"
    return memory.unsupported(machine, card.uuid, sweep.LIMIT, seen.driver)


def _most(job: tuning_job.Job, card: reading.Card) -> float:
    """Where the sweep begins: at the user's word; else at the card's default, or what it is set to now where that is more."""
    limits = card.limits
    known = [one for one in (limits.default_w, limits.requested_w) if one is not None]
    most = job.most_w or max(known) if known else job.most_w or limits.max_w or 0.0
    least, highest = limits.min_w or 0.0, limits.max_w or 0.0
    if job.most_w and not least < job.most_w <= highest:
        raise errors.Problem("power-range", f"--highest {job.most_w:g}: this card takes {least:g} to {highest:g} W")
    return min(most, highest)


def _capped_outside(card: reading.Card) -> bool:
    enforced, asked = card.limits.enforced_w, card.limits.requested_w
    return enforced is not None and asked is not None and enforced < asked - 1
