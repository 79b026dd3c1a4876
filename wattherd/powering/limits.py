"""What one card's wish comes to: watts out of per cent, clock ranges, and why a wish cannot be had. Pure.

Watts are what the card itself says of its least, most and default; no table of products stands in for them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wattherd.powering import cards
from wattherd.wire import facts

if TYPE_CHECKING:
    from wattherd.inventory import settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One setting of one card, as resources/power.py takes it; `unfit` is why it cannot be had here, and then the value may be empty."""

    setting: str
    value: tuple[float, ...] = ()
    unfit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPlan:
    """All that is chosen for one card. `refusal` is a limit outside what it takes, in words; `doubts` are worth a warning."""

    card: facts.Gpu
    rows: tuple[Row, ...] = ()
    refusal: str = ""
    doubts: tuple[str, ...] = ()

    @property
    def limit_w(self) -> float | None:
        return next((row.value[0] for row in self.rows if row.setting == "limit_w" and row.value and not row.unfit), None)

    @property
    def counted_w(self) -> float | None:
        """What it may draw for a budget: its chosen limit, else its default or its most. None where the card tells none of them."""
        return next((watts for watts in (self.limit_w, self.card.power_default_w, self.card.power_max_w) if watts is not None), None)


def plan(host: str, wish: cards.Wish, tuned: Mapping[str, settings.Tuned]) -> CardPlan:
    """Rows in the order in which they are set: persistence first, since without it the driver forgets the others as soon as it may."""
    keys, card = wish.keys, wish.card
    found = tuned.get(card.uuid) if keys.limit is not None and keys.limit.is_efficient else None
    limit, refusal, doubts = _limit(host, wish, found)
    clocks = keys.clocks or (found.clocks_mhz if found is not None else None)
    rows = [limit] if limit is not None else []
    if clocks is not None:
        rows.append(Row(setting="clocks_mhz", value=clocks))
    if keys.memory_clocks is not None:
        rows.append(Row(setting="memory_clocks_mhz", value=keys.memory_clocks))
    doubts += tuple(
        _awake(card, what, asked) for what, asked in (("clocks", clocks), ("memory_clocks", keys.memory_clocks)) if asked and asked[0]
    )
    if keys.temperature_c is not None:
        rows.append(Row(setting="temperature_c", value=(keys.temperature_c,)))
    holds = any(row.setting != "temperature_c" and not row.unfit for row in rows)
    persistence = keys.persistence if "persistence" in keys.model_fields_set else True if holds else None
    if persistence is not None:
        rows.insert(0, Row(setting="persistence", value=(int(persistence),)))
    if not card.uuid:
        rows = [Row(setting=row.setting, unfit=_NO_UUID) for row in rows]
    return CardPlan(card=card, rows=tuple(rows), refusal=refusal, doubts=doubts)


_NO_UUID = "the card does not tell its UUID (it is lost, or its driver is not loaded), so nothing can be set on it"


def _limit(host: str, wish: cards.Wish, found: settings.Tuned | None) -> tuple[Row | None, str, tuple[str, ...]]:
    """The row, a refusal, and doubts."""
    asked = wish.keys.limit
    if asked is None:
        return None, "", ()
    if asked.percent is not None:
        return _share(wish.card, asked.percent)
    watts = asked.watts if asked.watts is not None else found.limit_w if found is not None else None
    if watts is not None:
        return _watts(wish, watts)
    if found is not None:
        return None, "", ()  # where no limit could be set, power-tune found a ceiling for the clocks instead
    return Row(setting="limit_w", unfit=f"not measured yet: invoke power-tune --hosts {host} --write"), "", ()


def _share(card: facts.Gpu, percent: float) -> tuple[Row, str, tuple[str, ...]]:
    """Per cent of the card's own default, in whole watts, never outside what it takes (field case: 83 % of 180 W with a least of 150 W)."""
    if card.power_default_w is None:
        why = f"{cards.kind(card)} tells no default power limit, so {percent:g} % of it is unknown: write watts, or clocks: '0,MOST'"
        return Row(setting="limit_w", unfit=why), "", ()
    exact = card.power_default_w * percent / 100
    fitting = clamp(card, exact)
    row = Row(setting="limit_w", value=(fitting,))
    words = f"{cards.kind(card)}: {percent:g} % of {card.power_default_w:g} W is {exact:g} W"
    if exact < fitting - 1:
        return row, "", (f"{words}, below what this card takes: {fitting:g} W",)
    if exact > fitting + 1:
        return row, "", (f"{words}, above what this card takes: {fitting:g} W",)
    return row, "", ()


def _watts(wish: cards.Wish, watts: float) -> tuple[Row | None, str, tuple[str, ...]]:
    """A number of watts is meant as it stands: outside the range it is refused, not bent."""
    card = wish.card
    low, high = card.power_min_w, card.power_max_w
    if (low is not None and watts < low) or (high is not None and watts > high):
        return None, f"{wish.shown} takes {span(card)}, not {watts:g} W", ()
    return Row(setting="limit_w", value=(clamp(card, watts),)), "", ()


def clamp(card: facts.Gpu, watts: float) -> float:
    """Whole watts within what the card takes; a bound that it does not tell is none."""
    whole = float(math.floor(watts + 0.5))
    if card.power_max_w is not None:
        whole = min(whole, float(math.floor(card.power_max_w)))
    if card.power_min_w is not None:
        whole = max(whole, float(math.ceil(card.power_min_w)))
    return whole


def span(card: facts.Gpu) -> str:
    low, high = card.power_min_w, card.power_max_w
    if low is None or high is None:
        return f"at least {low:g} W" if low is not None else f"at most {high:g} W"
    return f"{low:g} to {high:g} W"


def _awake(card: facts.Gpu, key: str, asked: tuple[int, int]) -> str:
    """Field case: 1860,1860 on a 3090 Ti idles above 100 W, which drew 8 W without."""
    return (
        f"{cards.kind(card)}: {key} '{asked[0]},{asked[1]}' raises the least clock to {asked[0]} MHz, so the card never sleeps: "
        f"that can cost 100 W for as long as it idles. '0,{asked[1]}' caps it all the same"
    )
