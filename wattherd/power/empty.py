"""What each card of this node draws at rest when nothing holds it: the lowest that was ever seen here, for what a holder costs beyond it.

Seen by whoever looks again and again (the keeper), kept in `wanted.STATE`. A card that only just came to rest is not at rest yet
(wattherd.policy.idle). Watts.
"""

from __future__ import annotations

import contextlib
import json
from typing import Dict, List, Mapping

from wattherd import errors
from wattherd import machine as machines
from wattherd.policy import idle
from wattherd.power import reading, wanted
from wattherd.records import dataclass
from wattherd.wire import fields

PLACE = wanted.STATE + "/empty.json"
#: A lower draw than this below the known one is worth a write: a card at rest flickers by tenths of a watt for ever.
_WORTH_W = 0.5


@dataclass(frozen=True)
class Empty:
    """Watts, and when (seconds of the wall clock) the card was seen to rest at them."""

    watts: float
    at_s: float


def load(machine: machines.Machine) -> Dict[str, Empty]:
    """By UUID; nothing where nothing was measured yet, or where the file is damaged: it is measured again."""
    with contextlib.suppress(ValueError, errors.Problem):
        rows = fields.document(fields.parsed(wanted.small(machine, PLACE) or b"{}"), PLACE)
        return {uuid: fields.build(Empty, fields.document(row, uuid), uuid) for uuid, row in rows.items()}
    return {}


def sample(card: reading.Card) -> idle.Sample:
    return idle.Sample(None if card.draw is None else card.draw.watts, card.utilization_percent)


class Watcher:
    """Remembers the last looks of each empty card, and writes down what it rests at. For one process that looks every few seconds."""

    def __init__(self) -> None:
        self._samples: Dict[str, List[idle.Sample]] = {}

    def see(self, machine: machines.Machine, look: reading.Look) -> None:
        """One more look. A card that something holds, or that cannot be read, begins anew; writes only what is lower than ever.

        What cannot be written is let go: nobody's cards are worse held for it.
        """
        free = [card for card in look.cards if card.uuid and not card.fault and not card.suspended and not card.holders]
        self._samples = {card.uuid: [*self._samples.get(card.uuid, []), sample(card)][-idle.REST_LOOKS :] for card in free}
        rested = {uuid: told.watts for uuid, told in ((uuid, idle.rest(rows)) for uuid, rows in self._samples.items())}
        seen = {uuid: watts for uuid, watts in rested.items() if watts is not None}
        if seen:
            with contextlib.suppress(OSError, errors.Problem):
                _keep(machine, seen)


def _keep(machine: machines.Machine, seen: Mapping[str, float]) -> None:
    known = load(machine)
    lower = {uuid: watts for uuid, watts in seen.items() if uuid not in known or watts < known[uuid].watts - _WORTH_W}
    if not lower:
        return
    rows = {**known, **{uuid: Empty(watts, round(machine.now_s())) for uuid, watts in lower.items()}}
    machine.make_dirs(wanted.STATE, 0o700)
    machine.write(PLACE, (json.dumps({uuid: fields.plain(one) for uuid, one in rows.items()}, sort_keys=True) + "\n").encode(), mode=0o600)
