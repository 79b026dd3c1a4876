"""What of a policy does not hold now, and how that came about as far as the cards themselves show it."""

from __future__ import annotations

from typing import Dict, Iterable, List, Optional, Tuple

from wattherd import machine as machines
from wattherd import records
from wattherd.power import drift, memory, reading, settings, settle, wanted
from wattherd.power.drift import Difference
from wattherd.power.jetson import held


def of(machine: machines.Machine, policy: wanted.Policy, look: reading.Look) -> Tuple[Difference, ...]:
    """Every setting that differs and that could be set. A card that is lost, or cannot have the setting, has none: others say so.

    One that sleeps (runtime power management) draws nothing, and is looked at when it is awake.
    """
    found: List[Difference] = []
    for uuid, chosen in policy.cards.items():
        card = look.card(uuid)
        if card is None or card.fault or card.suspended:
            continue
        for setting, value in settings.of(chosen).items():
            was = settle.current(machine, look, card, setting)
            if settings.agrees(setting, value, was) or settle.obstacle(machine, look, card, setting):
                continue
            words = "not locked" if was is None and setting in settings.LOCKS else settings.shown(setting, was)
            found.append(Difference(uuid, setting, settings.shown(setting, value), words, card.shown, cause(card, setting, was)))
    if policy.board is not None and look.board is not None:
        found += held.differences(machine, policy.board, look.board)
    return tuple(found)


def cause(card: reading.Card, setting: str, was: Optional[settings.Value]) -> str:
    """Back on its default with persistence off: the driver let the card go, and forgot. Any other value was written by somebody."""
    if card.persistence is not False or setting not in settings.VOLATILE:
        return drift.WRITTEN
    if setting in settings.LOCKS:
        return drift.RELEASED
    default = settings.default(card, setting)
    return drift.RELEASED if default is not None and settings.agrees(setting, default, was) else drift.WRITTEN


def lost_locks(machine: machines.Machine, policy: wanted.Policy, look: reading.Look) -> Tuple[Tuple[str, str], ...]:
    """Clock locks of ours (UUID, setting) that are gone although nothing says so: a lock can be read nowhere.

    Known by a clock above the ceiling, or because the driver let the card go since.
    """
    found: List[Tuple[str, str]] = []
    for uuid, chosen in policy.cards.items():
        card = look.card(uuid)
        if card is None or card.fault or card.suspended:
            continue
        limit = settings.read(card, settings.LIMIT)
        wished = settings.of(chosen).get(settings.LIMIT)
        released = (
            wished is not None
            and not settings.agrees(settings.LIMIT, wished, limit)
            and cause(card, settings.LIMIT, limit) == drift.RELEASED
        )
        for setting in settings.LOCKS:
            ceiling = records.replace(wanted.CardPolicy(), **{setting: getattr(chosen, setting)})
            if settings.of(ceiling) and (released or settle.clock_suspect(card, ceiling)):
                found += [(uuid, setting)] if memory.last_set(machine, uuid, setting, look.epoch) is not None else []
    return tuple(found)


def only(policy: wanted.Policy, chosen: Iterable[Difference]) -> wanted.Policy:
    """The policy cut down to what is to be written now. A card that the driver let go gets persistence too, unless its policy says off."""
    cards: Dict[str, wanted.CardPolicy] = {}
    for one in chosen:
        whole = policy.cards.get(one.owner)
        if whole is not None:
            wished = {one.setting: getattr(whole, one.setting)}
            if one.cause == drift.RELEASED and whole.persistence is None:
                wished[settings.PERSISTENCE] = True
            cards[one.owner] = records.replace(cards.get(one.owner, wanted.CardPolicy()), **wished)
    return wanted.Policy(cards=cards)


def is_futile(machine: machines.Machine, policy: wanted.Policy, look: reading.Look, one: Difference) -> bool:
    """The driver would forget it in the same moment: nobody uses the card, and persistence is off and stays so."""
    card, chosen = look.card(one.owner), policy.cards.get(one.owner)
    if one.cause != drift.RELEASED or card is None or chosen is None or card.holders:
        return False
    return chosen.persistence is False or bool(settle.obstacle(machine, look, card, settings.PERSISTENCE))
