"""Whether what hosts may draw fits what feeds them, and which limits would fit. Pure; watts throughout.

A card counts with its chosen limit, else with its default, else with its most. What is not known is named and not counted: no guess
stands in for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wattherd.powering import cards, limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One card in a sum. `min_w` None: it tells none, so its limit is not lowered in a proposal."""

    uuid: str
    shown: str
    watts: float | None = None
    min_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One host in a sum. `movable`: it is in this run, so its limits could be others. `unknown`: nothing is known of it at all."""

    host: str
    parts: tuple[Part, ...] = ()
    base_w: float | None = None
    movable: bool = True
    unknown: str = ""

    @property
    def total_w(self) -> float:
        return sum(part.watts or 0.0 for part in self.parts) + (self.base_w or 0.0)

    @property
    def words(self) -> str:
        """`titan 780 W (350 + 350 + 80 W for the rest)`"""
        if self.unknown:
            return f"{self.host} unknown ({self.unknown})"
        return f"{self.host} {self.total_w:g} W" + (f" ({self.parts_words})" if " + " in self.parts_words else "")

    @property
    def parts_words(self) -> str:
        """`350 + 350 + 80 W for the rest`"""
        each = [f"{part.watts:g}" for part in self.parts if part.watts is not None]
        return " + ".join([*each, f"{self.base_w:g} W for the rest"] if self.base_w else [*each[:-1], *(f"{one} W" for one in each[-1:])])

    @property
    def gaps(self) -> tuple[str, ...]:
        """What is missing in its sum, in words."""
        found = [f"{part.shown} tells no power limit" for part in self.parts if part.watts is None]
        if self.base_w is None and not self.unknown:
            found.append("power.base_load_w is not set")
        return tuple(found)


def load(host: str, made: Sequence[limits.CardPlan], base_w: float | None, *, movable: bool = True) -> Load:
    parts = [Part(uuid=one.card.uuid, shown=cards.shown(one.card), watts=one.counted_w, min_w=one.card.power_min_w) for one in made]
    return Load(host=host, parts=tuple(parts), base_w=base_w, movable=movable)


def total_w(loads: Sequence[Load]) -> float:
    return sum(one.total_w for one in loads)


def fitting(loads: Sequence[Load], budget_w: float) -> Mapping[str, float] | None:
    """UUID -> watts for every card that can be moved, so that all of it fits; None when it does not even at the least that the cards take.

    Water-filling: the largest limits come down to one level first, none below its card's least, whole watts.
    """
    free = [part for one in loads if one.movable for part in one.parts if part.watts is not None and part.min_w is not None and part.uuid]
    fixed_w = total_w(loads) - sum(part.watts or 0.0 for part in free)
    left_w = budget_w - fixed_w
    if sum(_at(part, 0) for part in free) > left_w or not free:
        return None
    low, high = 0, math.ceil(max(part.watts or 0.0 for part in free))
    while low < high:
        middle = (low + high + 1) // 2
        if sum(_at(part, middle) for part in free) <= left_w:
            low = middle
        else:
            high = middle - 1
    return {part.uuid: _at(part, low) for part in free}


def least_w(loads: Sequence[Load]) -> float:
    """The sum with every card that can be moved at the least that it takes."""
    return sum(
        (one.base_w or 0.0) + sum(_at(part, 0) if one.movable and part.min_w is not None else part.watts or 0.0 for part in one.parts)
        for one in loads
    )


def _at(part: Part, level_w: int) -> float:
    least_w = math.ceil(part.min_w or 0.0)
    return float(min(max(level_w, least_w), part.watts or 0.0)) if (part.watts or 0.0) >= least_w else part.watts or 0.0
