"""What is said where hosts may draw more than feeds them, and limits that would fit, as YAML for host_vars. Pure.

The host's whole `power:` is written with other limits in it, because a dictionary of a host replaces its group's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from wattherd import errors
from wattherd.powering import budget, cards
from wattherd.wire import facts

if TYPE_CHECKING:
    from wattherd.inventory import settings


def over(
    host: str, setting: settings.Power, found: Sequence[facts.Gpu], fed: str, loads: Sequence[budget.Load], budget_w: float
) -> errors.Problem:
    """`over-budget` for one host of a sum: `fed` says what feeds them all and how much it bears."""
    whose = "its cards and the rest of it" if len(loads) == 1 else "its hosts"
    each = loads[0].parts_words if len(loads) == 1 else "; ".join(load.words for load in loads)
    words = f"{fed}, and {whose} may draw {budget.total_w(loads):g} W: {each}"
    fitting = budget.fitting(loads, budget_w)
    if fitting is None:
        least = f"it does not fit even at the least that the cards of this run take: {budget.least_w(loads):g} W"
        return errors.Problem("over-budget", f"{words}; {least}", hint="fewer cards there, or a larger budget", host=host)
    mine = {card.uuid: fitting[card.uuid] for card in found if card.uuid in fitting}
    if not mine:
        return errors.Problem("over-budget", words, hint="limits that would fit are named at the other hosts there", host=host)
    written = text(setting, found, mine)
    return errors.Problem(
        "over-budget",
        f"{words}\nThis would fit, in host_vars/{host}.yaml:\n{written.rstrip()}",
        hint="nothing was touched; take these limits, or raise the budget where it is less than what feeds them",
        host=host,
        proposal=written,
    )


def text(setting: settings.Power, found: Sequence[facts.Gpu], watts: Mapping[str, float]) -> str:
    """`watts` by UUID. One number for all cards stands at the top; else each card whose limit differs has an entry of its own."""
    import yaml

    whole = plain(setting)
    entries: dict[str, dict[str, object]] = {name: dict(plain(one)) for name, one in setting.cards.items()}
    moved = [card for card in found if card.uuid in watts]
    values = {watts[card.uuid] for card in moved}
    if len(values) == 1 and len(moved) == len(found):
        whole["limit"] = _number(values.pop())
        entries = {name: {key: value for key, value in row.items() if key != "limit"} for name, row in entries.items()}
    else:
        for card in moved:
            entry = entries.setdefault(_own_entry(setting, card) or _beginning(card, found), {})
            entry["limit"] = _number(watts[card.uuid])
    kept = {name: row for name, row in entries.items() if row}
    if kept:
        whole["cards"] = kept
    return str(yaml.safe_dump({"power": whole}, sort_keys=False, allow_unicode=True, width=120))


def plain(one: settings.CardPower) -> dict[str, object]:
    """The keys that were set, as a person writes them."""
    found: dict[str, object] = {}
    for key in type(one).model_fields:
        value = getattr(one, key)
        if key in one.model_fields_set and key != "cards":
            found[key] = _written(value)
    return found


def _written(value: object) -> object:
    from wattherd.inventory import settings

    if isinstance(value, settings.Limit):
        return _number(value.watts) if value.watts is not None else value.shown.replace(" ", "")
    if isinstance(value, tuple):
        return ",".join(str(one) for one in value)
    return _number(value) if isinstance(value, float) else value


def _number(watts: float) -> int | float:
    return int(watts) if watts == int(watts) else watts


def _own_entry(setting: settings.Power, card: facts.Gpu) -> str:
    """The entry that names this one card already, by UUID or bus; a second one for it would be refused."""
    return next((name for name in setting.cards if cards.names_one(name, card)), "")


def _beginning(card: facts.Gpu, found: Sequence[facts.Gpu]) -> str:
    """As much of the UUID as tells it from the other cards of the host."""
    others = [one.uuid for one in found if one.uuid != card.uuid]
    return next(
        (card.uuid[:length] for length in range(12, len(card.uuid)) if not any(one.startswith(card.uuid[:length]) for one in others)),
        card.uuid,
    )
