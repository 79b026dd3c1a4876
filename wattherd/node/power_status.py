"""`power` on the node: what its cards and its board are, what was chosen for them, what the keeper remembers. Changes and wakes nothing.

Works where nothing of ours is installed: then there is no policy, no memory and no keeper, and that is what it says. Judges nothing.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, Mapping, Optional, Tuple

from wattherd import errors, records
from wattherd import machine as machines
from wattherd.node import putting_back, sleepers
from wattherd.node.findings import keeper
from wattherd.policy import idle
from wattherd.power import drift, empty, memory, pending, reading, settings, settle, tuning_record, wanted
from wattherd.power import look as looking
from wattherd.wire import fields

KEEPER = keeper.UNIT
_LOOKS_LIMIT = 6
_SHORT_S = 10.0
_CLOSED = "read without root, which alone knows drift, clock ranges and what was there before: ansible_become would tell"


def look(machine: machines.Machine, order: fields.Document) -> Mapping[str, Any]:
    """One look, or up to `looks` of them REST_PAUSE_S apart while the idle draw of a card is still to be told.

    `servers`: unit and key_file of served instances, so that one that can sleep can be asked whether it does. `known`: by UUID the watts
    that the controller has seen cards draw empty. `samples` are, by UUID, watts and per cent of each look, oldest first; either may be
    null.
    """
    key_files = {fields.text(one, "unit"): fields.text(one, "key_file", "") for one in fields.objects(order, "servers")}
    measured = empty.load(machine)
    told = fields.document(order.get("known", {}), "known")
    known = {**{uuid: fields.number(told, uuid) for uuid in told}, **{uuid: one.watts for uuid, one in measured.items()}}
    seen, samples = _looks(machine, min(max(1, fields.integer(order, "looks", 1)), _LOOKS_LIMIT), known)
    sleeping = sleepers.Sleepers(machine, key_files)
    cards = [sleeping.told(card) for card in seen.cards]
    policy, damaged = _policy(machine)
    if wanted.is_closed(machine):
        seen = records.replace(seen, notes=(*seen.notes, _CLOSED))
    return {
        "look": {**fields.plain(seen), "cards": [fields.plain(card) for card in cards]},
        "samples": {uuid: [[one.watts, one.busy_percent] for one in rows] for uuid, rows in samples.items()},
        "empty": {uuid: fields.plain(one) for uuid, one in measured.items()},
        "policy": None if policy is None else fields.plain(policy),
        "policy_fault": damaged,
        "before": memory.before(machine),
        "locks": {card.uuid: _locks(machine, seen, card) for card in cards if card.uuid},
        "unsupported": {card.uuid: _unsupported(machine, card.uuid, seen.driver) for card in cards if card.uuid},
        **_kept(machine, installed=policy is not None),
    }


def _looks(machine: machines.Machine, most: int, known: Mapping[str, float]) -> Tuple[reading.Look, Dict[str, List[idle.Sample]]]:
    """The last look, and the samples of all of them."""
    samples: Dict[str, List[idle.Sample]] = {}
    held: Dict[str, bool] = {}
    seen: Optional[reading.Look] = None
    while True:
        seen = looking.look(machine, before=seen)
        for card in seen.cards:
            if card.uuid and not card.fault and not card.suspended:
                if held.get(card.uuid) is not bool(card.holders):
                    samples.pop(card.uuid, None)  # what it drew before it was taken or let go is another thing
                held[card.uuid] = bool(card.holders)
                samples.setdefault(card.uuid, []).append(empty.sample(card))
        most -= 1
        asked = [card for card in seen.cards if card.uuid in samples and (card.holders or not _is_known(card, known))]
        if most <= 0 or seen.fault or not any(_settling(samples[card.uuid]) for card in asked):
            return seen, samples
        machine.wait(idle.REST_PAUSE_S)


def _is_known(card: reading.Card, known: Mapping[str, float]) -> bool:
    """It was seen empty before, and draws about that now."""
    empty_w = known.get(card.uuid)
    return empty_w is not None and (card.draw is None or card.draw.watts - empty_w <= idle.slack_w(empty_w))


def _settling(rows: List[idle.Sample]) -> bool:
    """Nothing works on it, and what it draws at rest is not known yet: another look may tell."""
    told = idle.rest(rows)
    return told.busy is False and told.watts is None


def _policy(machine: machines.Machine) -> Tuple[Optional[wanted.Policy], str]:
    """The node's own policy, and why it cannot be read."""
    body = wanted.small(machine, wanted.POLICY)
    if body is None:
        return None, ""
    try:
        return wanted.decode(body.decode("utf-8", "replace")), ""
    except errors.Problem as problem:
        return None, problem.message


def _kept(machine: machines.Machine, *, installed: bool) -> Dict[str, Any]:
    """What the keeper knows. Temperatures of today only: yesterday's are nobody's question."""
    record, now_s = drift.load(machine), machine.now_s()
    today = time.strftime("%Y-%m-%d", time.localtime(now_s))
    waiting, back = pending.waiting(machine), putting_back.standing(machine, record)
    return {
        "keeper": machine.run(["systemctl", "is-active", KEEPER], timeout_s=_SHORT_S).text.strip()[:40] if installed else "",
        "drifts": [
            {
                "owner": one.owner,
                "setting": one.setting,
                "wanted": one.wanted,
                "found": one.found,
                "count": one.total,
                "last_day": one.last_day(now_s),
                "last_s": one.last_s,
                "is_open": one.is_open,
                "in_conflict": bool(one.conflict_s),
                "writers": list(one.writers),
                "words": one.words,
            }
            for one in record.drifts
        ],
        "highest": {owner: one.celsius for owner, one in record.highest.items() if one.day == today},
        "put_back": None if back is None else fields.plain(back),
        # One that is on its way back is told of as such, and nobody can confirm it any more.
        "unconfirmed_s": None if waiting is None or waiting.why else pending.left_s(machine, waiting),
        "tuned": sorted(tuning_record.live(machine)),
        "now_s": now_s,
    }


def _locks(machine: machines.Machine, seen: reading.Look, card: reading.Card) -> Dict[str, List[float]]:
    """The clock ranges (MHz) that hold as far as our own record goes: they can be read back nowhere. Empty is clocks that are free."""
    held = {setting: settle.current(machine, seen, card, setting) for setting in settings.LOCKS}
    return {setting: list(value) for setting, value in held.items() if value is not None}


def _unsupported(machine: machines.Machine, uuid: str, driver: str) -> Dict[str, str]:
    reasons = {setting: memory.unsupported(machine, uuid, setting, driver) for setting in settings.COUNTS}
    return {setting: reason for setting, reason in reasons.items() if reason}
