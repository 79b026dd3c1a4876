"""A node's answer to `power`, read with care: it is data, and all its words are bounded and made harmless here, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wattherd import errors
from wattherd.policy import idle
from wattherd.power import drift, empty, reading, wanted
from wattherd.wire import fields, finding

_WORDS_LIMIT = 400


@dataclass(frozen=True, kw_only=True)
class Drifted:
    """One setting that did not stay as it was set. `count` since the node has a keeper; `last_s` by the node's clock, 0 is never."""

    owner: str
    setting: str
    wanted: str = ""
    found: str = ""
    count: int = 0
    last_day: int = 0
    last_s: float = 0.0
    is_open: bool = False
    in_conflict: bool = False
    writers: tuple[str, ...] = ()
    words: str = ""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What one node said. `policy` None: nothing is kept there. `keeper` is its unit's state in systemd's word, empty where none is wanted.

    `locks` and `unsupported` are by UUID and setting; `highest` are today's degrees Celsius by UUID, or the board's. `tuned` are the cards
    of a power-tune that is at work. `now_s` is by the node's clock.
    """

    look: reading.Look
    samples: Mapping[str, tuple[idle.Sample, ...]] = field(default_factory=dict)
    empty: Mapping[str, empty.Empty] = field(default_factory=dict)
    policy: wanted.Policy | None = None
    policy_fault: str = ""
    before: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    locks: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    unsupported: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    keeper: str = ""
    drifts: tuple[Drifted, ...] = ()
    highest: Mapping[str, float] = field(default_factory=dict)
    put_back: drift.PutBack | None = None
    unconfirmed_s: float | None = None
    tuned: tuple[str, ...] = ()
    now_s: float = 0.0


def decode(document: fields.Document) -> Told:
    """Raises `manifest-invalid` for what is no answer of this protocol."""
    told = fields.document(_harmless(document), "power")
    policy, put_back = told.get("policy"), told.get("put_back")
    return Told(
        look=fields.build(reading.Look, fields.document(told.get("look"), "look"), "look"),
        samples={uuid: _samples(rows) for uuid, rows in _rows(told, "samples").items()},
        empty={uuid: fields.build(empty.Empty, fields.document(row, uuid)) for uuid, row in _rows(told, "empty").items()},
        policy=None if policy is None else fields.build(wanted.Policy, fields.document(policy, "policy"), "policy"),
        policy_fault=fields.text(told, "policy_fault", ""),
        before={owner: fields.document(row, owner) for owner, row in _rows(told, "before").items()},
        locks={uuid: {key: _numbers(value) for key, value in row.items()} for uuid, row in _tables(told, "locks").items()},
        unsupported={uuid: {key: fields.text(row, key) for key in row} for uuid, row in _tables(told, "unsupported").items()},
        keeper=fields.text(told, "keeper", ""),
        drifts=tuple(_drifted(row) for row in fields.objects(told, "drifts")),
        highest={owner: fields.number(_rows(told, "highest"), owner) for owner in _rows(told, "highest")},
        put_back=None if put_back is None else fields.build(drift.PutBack, fields.document(put_back, "put_back"), "put_back"),
        unconfirmed_s=None if told.get("unconfirmed_s") is None else fields.number(told, "unconfirmed_s"),
        tuned=fields.texts(told, "tuned"),
        now_s=fields.number(told, "now_s", 0.0),
    )


def _harmless(value: Any) -> Any:  # JSON of any shape
    if isinstance(value, str):
        return finding.plain_line(value, _WORDS_LIMIT)
    if isinstance(value, Mapping):
        return {finding.plain_line(str(key), 100): _harmless(held) for key, held in value.items()}
    return [_harmless(held) for held in value] if isinstance(value, list) else value


def _rows(told: fields.Document, key: str) -> fields.Document:
    return fields.document(told.get(key, {}), key)


def _tables(told: fields.Document, key: str) -> Mapping[str, fields.Document]:
    return {name: fields.document(row, name) for name, row in _rows(told, key).items()}


def _samples(rows: object) -> tuple[idle.Sample, ...]:
    found = []
    for row in rows if isinstance(rows, list) else []:
        pair = dict(zip(("watts", "busy"), row, strict=False)) if isinstance(row, list) else {}
        watts = None if pair.get("watts") is None else fields.number(pair, "watts")
        found.append(idle.Sample(watts, None if pair.get("busy") is None else fields.integer(pair, "busy")))
    return tuple(found)


def _numbers(value: object) -> tuple[float, ...]:
    if isinstance(value, list) and all(isinstance(one, int | float) and not isinstance(one, bool) for one in value):
        return tuple(float(one) for one in value)
    raise errors.Problem("manifest-invalid", "a clock range must be a list of numbers")


def _drifted(row: fields.Document) -> Drifted:
    return Drifted(
        owner=fields.text(row, "owner"),
        setting=fields.text(row, "setting"),
        wanted=fields.text(row, "wanted", ""),
        found=fields.text(row, "found", ""),
        count=fields.integer(row, "count", 0),
        last_day=fields.integer(row, "last_day", 0),
        last_s=fields.number(row, "last_s", 0.0),
        is_open=fields.flag(row, "is_open", default=False),
        in_conflict=fields.flag(row, "in_conflict", default=False),
        writers=fields.texts(row, "writers"),
        words=fields.text(row, "words", ""),
    )
