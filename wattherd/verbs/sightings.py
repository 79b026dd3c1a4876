"""What this controller last saw of each host's cards: for sums over a circuit whose hosts are not all in the run.

Owns STATE/cards.json of the project. A record that cannot be read is as if there were none.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Optional

from wattherd import errors
from wattherd.records import dataclass, replace
from wattherd.verbs import state_file
from wattherd.wire import facts, fields


@dataclass(frozen=True, kw_only=True)
class Card:
    """Watts; None is unknown. `applied_w` is the limit that a run of this controller last proved on it."""

    uuid: str
    bus: str = ""
    name: str = ""
    min_w: Optional[float] = None  # noqa: UP045 - as wire/fields.py reads it
    max_w: Optional[float] = None  # noqa: UP045 - as wire/fields.py reads it
    default_w: Optional[float] = None  # noqa: UP045 - as wire/fields.py reads it
    applied_w: Optional[float] = None  # noqa: UP045 - as wire/fields.py reads it


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """One host. `jetson`: it has no card whose watts could be limited."""

    cards: tuple[Card, ...] = ()
    jetson: bool = False


def completed(told: facts.Facts, before: Sighting | None) -> facts.Facts:
    """Facts with what was seen of the same cards before, where they tell it no more: a UUID that a lost card hides, a range that no
    driver answers for. So a card that is away for a night is neither forgotten nor let go.
    """
    if before is None:
        return told
    return replace(told, gpus=tuple(_completed(card, before.cards) for card in told.gpus))


def _completed(card: facts.Gpu, before: Sequence[Card]) -> facts.Gpu:
    old = next((one for one in before if _is_same(card, one)), None)
    if old is None:
        return card
    return replace(
        card,
        uuid=card.uuid or old.uuid,
        name=card.name or old.name,
        power_min_w=old.min_w if card.power_min_w is None else card.power_min_w,
        power_max_w=old.max_w if card.power_max_w is None else card.power_max_w,
        power_default_w=old.default_w if card.power_default_w is None else card.power_default_w,
    )


def _is_same(card: facts.Gpu, old: Card) -> bool:
    if card.uuid:
        return card.uuid == old.uuid
    return bool(card.bus) and card.bus == old.bus and (not card.name or card.name == old.name)


def _file(state: pathlib.Path) -> pathlib.Path:
    return state / "cards.json"


def read(state: pathlib.Path) -> dict[str, Sighting]:
    with contextlib.suppress(OSError, ValueError, errors.Problem):
        rows = fields.document(json.loads(_file(state).read_bytes()), "cards.json")
        return {host: fields.build(Sighting, fields.document(row, host), host) for host, row in rows.items()}
    return {}


def keep(state: pathlib.Path, seen: Mapping[str, Sighting]) -> None:
    """Put these hosts into the record. Two runs at once leave both of theirs; a folder that cannot be written costs only this memory."""
    if seen:
        with contextlib.suppress(OSError):
            state_file.change(_file(state), lambda: {host: fields.plain(one) for host, one in {**read(state), **seen}.items()})


def forget_applied(state: pathlib.Path, names: Collection[str]) -> None:
    """After a run that brought these hosts back to something earlier: what their cards are limited to now was proved by no run of ours.

    Without it a sum over a circuit would count limits that are gone; so the cards count with their default again.
    """
    known = read(state)
    bare = {
        name: replace(known[name], cards=tuple(replace(card, applied_w=None) for card in known[name].cards))
        for name in names
        if name in known
    }
    keep(state, bare)
