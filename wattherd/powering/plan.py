"""The power plan of one host: every card's settings, the board's, the policy that its keeper holds, and what a person should hear. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wattherd import errors
from wattherd.power import wanted
from wattherd.powering import board, budget, cards, limits, proposal
from wattherd.serving.cards import is_tegra
from wattherd.wire import facts

if TYPE_CHECKING:
    from wattherd.inventory import settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`policy` has only what can be had. `apart` are keys for the other kind of box; `unmatched` product names that no card here has."""

    cards: tuple[limits.CardPlan, ...] = ()
    policy: wanted.Policy
    apart: tuple[board.Apart, ...] = ()
    doubts: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    jetson: bool = False

    @property
    def is_empty(self) -> bool:
        """Neither a card nor a board: there is nothing to hold."""
        return not self.cards and not self.jetson


def plan(host: str, setting: settings.Power, tuned: Mapping[str, settings.Tuned], told: facts.Facts) -> Plan:
    """Raises `card-unknown`, `mode-unknown`, `power-range` with every limit of the host that its cards do not take, or `over-budget`."""
    if is_tegra(told):
        return _of_board(host, setting, told)
    found = [card for card in told.gpus if card.vendor == "nvidia"]
    made = tuple(limits.plan(host, wish, tuned) for wish in cards.wishes(host, setting, found))
    refusals = [one.refusal for one in made if one.refusal]
    if refusals:
        raise errors.Problem(
            "power-range", f"{host}: {'; '.join(refusals)}", hint="write watts within that range, or per cent: power: {limit: '80%'}"
        )
    gaps = _check_budget(host, setting, found, made)
    return Plan(
        cards=made,
        policy=wanted.Policy(cards={one.card.uuid: _policy(one) for one in made if one.card.uuid}, confirm_s=setting.confirm_s),
        apart=board.apart(setting, jetson=False) if made else (),
        doubts=tuple(dict.fromkeys([*(words for one in made for words in one.doubts), *gaps])),
        unmatched=cards.unmatched(setting, found),
    )


def _of_board(host: str, setting: settings.Power, told: facts.Facts) -> Plan:
    cards.refuse_all(host, setting)
    mode = board.mode(host, setting.mode, told) if setting.mode is not None else ""
    chosen = wanted.BoardPolicy(mode=mode, pinned=setting.pin_clocks, fan=setting.fan or "")
    return Plan(
        policy=wanted.Policy(board=chosen if chosen != wanted.BoardPolicy() else None, confirm_s=setting.confirm_s),
        apart=board.apart(setting, jetson=True),
        doubts=_check_budget(host, setting, (), ()),
        unmatched=cards.unmatched(setting, ()),
        jetson=True,
    )


def _check_budget(host: str, setting: settings.Power, found: Sequence[facts.Gpu], made: Sequence[limits.CardPlan]) -> tuple[str, ...]:
    """What is missing in the sum, in words."""
    if setting.budget_w is None:
        return ()
    load = budget.load(host, made, setting.base_load_w)
    if load.total_w > setting.budget_w:
        raise proposal.over(host, setting, found, f"{host} is fed {setting.budget_w:g} W (power.budget_w)", [load], setting.budget_w)
    return tuple(f"power.budget_w: {gap}, so that is not in the sum" for gap in load.gaps)


def of(name: str, found: settings.Settings, told: facts.Facts) -> Plan:
    return plan(name, found.power, found.power_tuned, told)


def _policy(one: limits.CardPlan) -> wanted.CardPolicy:
    values = {row.setting: row.value for row in one.rows if row.value and not row.unfit}
    return wanted.CardPolicy(
        limit_w=values["limit_w"][0] if "limit_w" in values else None,
        clocks_mhz=tuple(int(value) for value in values.get("clocks_mhz", ())),
        memory_clocks_mhz=tuple(int(value) for value in values.get("memory_clocks_mhz", ())),
        persistence=bool(values["persistence"][0]) if "persistence" in values else None,
        temperature_c=int(values["temperature_c"][0]) if "temperature_c" in values else None,
    )
