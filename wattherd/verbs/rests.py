"""What cards rest at, as this controller has seen it: the looks of this command, and across commands what each card drew empty.

For hosts without a keeper of ours, where nobody else remembers. Kept in the project's state folder, by host and UUID: only what was seen on
the very host counts.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from wattherd import errors
from wattherd.policy import idle
from wattherd.power import reading
from wattherd.verbs import power_told, state_file
from wattherd.wire import fields

FILE = "empty-draw.json"


@dataclass(frozen=True, kw_only=True)
class Resting:
    """By UUID: what the looks at a card come to, and the lowest watts that it was ever seen to draw empty, by its node or from here."""

    rest: Mapping[str, idle.Rest] = field(default_factory=dict)
    empty_w: Mapping[str, float] = field(default_factory=dict)


class Rests:
    """Safe to share between the threads of one command."""

    def __init__(self, state: pathlib.Path) -> None:
        self._path = state / FILE
        self._lock = threading.Lock()
        self._empty_w = _read(self._path)
        self._samples: dict[tuple[str, str, bool], tuple[idle.Sample, ...]] = {}
        self._is_newer = False

    def known(self, host: str) -> dict[str, float]:
        """By UUID, the watts that cards of this host were seen to draw empty."""
        with self._lock:
            return dict(self._empty_w.get(host, {}))

    def see(self, host: str, told: power_told.Told) -> Resting:
        """One more answer of a host. Looks from before a card was taken or let go say nothing of it now, and are forgotten."""
        with self._lock:
            readable = [card for card in told.look.cards if card.uuid and not card.fault and not card.suspended]
            rest = {card.uuid: self._one(host, card, told) for card in readable}
            kept = {uuid: one.watts for uuid, one in told.empty.items()}
            here = self._empty_w.get(host, {})
            lowest = {uuid: idle.lowest(kept.get(uuid), here.get(uuid)) for uuid in rest}
        return Resting(rest=rest, empty_w={uuid: watts for uuid, watts in lowest.items() if watts is not None})

    def _one(self, host: str, card: reading.Card, told: power_told.Told) -> idle.Rest:
        held = bool(card.holders)
        self._samples.pop((host, card.uuid, not held), None)
        key = (host, card.uuid, held)
        self._samples[key] = (*self._samples.get(key, ()), *told.samples.get(card.uuid, ()))[-idle.REST_LOOKS :]
        rest = idle.rest(self._samples[key])
        if rest.watts is not None and not held:
            rows = self._empty_w.setdefault(host, {})
            before_w = rows.get(card.uuid)
            if before_w is None or rest.watts < before_w:
                rows[card.uuid] = rest.watts
                self._is_newer = True
        return rest

    def save(self) -> None:
        """Whole or not at all, with what another command saw meanwhile; a state folder that cannot be written costs only this memory."""
        with self._lock, contextlib.suppress(OSError):
            if self._is_newer:
                state_file.change(self._path, self._with_others)
                self._is_newer = False

    def _with_others(self) -> Mapping[str, Mapping[str, float]]:
        for host, rows in _read(self._path).items():
            own = self._empty_w.setdefault(host, {})
            own.update({uuid: min(watts, own.get(uuid, watts)) for uuid, watts in rows.items()})
        return self._empty_w


def _read(path: pathlib.Path) -> dict[str, dict[str, float]]:
    with contextlib.suppress(OSError, ValueError, errors.Problem):
        hosts = fields.document(json.loads(path.read_text()), FILE)
        return {host: {uuid: fields.number(row, uuid) for uuid in row} for host, row in _rows(hosts)}
    return {}


def _rows(hosts: fields.Document) -> list[tuple[str, fields.Document]]:
    return [(host, fields.document(row, host)) for host, row in hosts.items()]
