"""What did not stay as it was set: found how often, why, by whom, put right or not; and when to stop fighting over it.

Written to `wanted.STATE`/keeper.json whole after every change. The transitions are pure: a record, what differs now, and the time in; a
record out. Times are seconds of the wall clock; one that lies in the future (the clock was set back) counts for nothing.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import Dict, Iterable, Mapping, Optional, Tuple

from wattherd import errors, records
from wattherd import machine as machines
from wattherd.power import reading, wanted
from wattherd.records import dataclass, field
from wattherd.wire import fields

PLACE = wanted.STATE + "/keeper.json"
#: Whose drift and temperature is the board's, beside the cards' by their UUIDs.
BOARD = "board"
#: Why something differs. The driver let the card go (and forgot what was set); somebody set it; the cause is not known.
RELEASED, WRITTEN = "released", "written"
#: Put right so often within that time, and changed again each time: somebody else wants it otherwise, and both would go on for ever.
ROUNDS, ROUNDS_WITHIN_S = 3, 600.0
#: So long after its writer was last seen, a conflict is tried once more.
WRITER_GONE_S = 3600.0
_DAY_S = 86400.0
_TIMES_LIMIT = 500
_DRIFTS_LIMIT = 200


@dataclass(frozen=True)
class Difference:
    """One setting that is not as wanted, now. `owner` is a UUID or BOARD; `wanted` and `found` are in words ("200 W")."""

    owner: str
    setting: str
    wanted: str
    found: str
    card: str = ""
    cause: str = WRITTEN

    @property
    def key(self) -> Tuple[str, str]:
        return self.owner, self.setting


@dataclass(frozen=True)
class Drift:
    """One setting that drifted at least once. `is_open`: it differs, as last read. `conflict_s` is since when it is left alone; 0: not.

    `total` counts since the node has a keeper, `since_boot` in this boot, `times` (begin of each) within the last day. `rounds` are when it
    was put right lately, `corrected_s` when that was last seen to hold. `writers` are the suspects, `seen_s` when one was last there.
    `words` say why it could not be put right.
    """

    owner: str
    setting: str
    wanted: str
    found: str
    card: str = ""
    cause: str = ""
    total: int = 0
    since_boot: int = 0
    boot_id: str = ""
    times: Tuple[float, ...] = ()
    is_open: bool = False
    corrected_s: float = 0.0
    rounds: Tuple[float, ...] = ()
    conflict_s: float = 0.0
    writers: Tuple[str, ...] = ()
    seen_s: float = 0.0
    words: str = ""

    @property
    def key(self) -> Tuple[str, str]:
        return self.owner, self.setting

    @property
    def last_s(self) -> float:
        return self.times[-1] if self.times else 0.0

    def last_day(self, now_s: float) -> int:
        return len(_within(self.times, now_s, _DAY_S))


@dataclass(frozen=True)
class Highest:
    """The highest temperature of one local day of the node ("2026-09-30")."""

    day: str
    celsius: float
    at_s: float = 0.0


@dataclass(frozen=True)
class PutBack:
    """A policy that went back by itself: when, why, the digest of its text, and of the one that came back (empty: none had been there)."""

    at_s: float
    why: str
    digest: str
    to: str = ""


@dataclass(frozen=True)
class Record:
    """All that the keeper remembers. `policy` (digest), `epoch` and `boot_id` are those that it last brought the cards to.

    `reapplied` counts how often the policy was set anew because the node had booted or its driver was loaded anew: that is nobody's drift.
    """

    policy: str = ""
    epoch: str = ""
    boot_id: str = ""
    drifts: Tuple[Drift, ...] = ()
    reapplied: int = 0
    reapplied_s: float = 0.0
    reapplied_why: str = ""
    highest: Mapping[str, Highest] = field(default_factory=dict)
    put_back: Optional[PutBack] = None

    def of(self, owner: str, setting: str) -> Optional[Drift]:
        return next((one for one in self.drifts if one.key == (owner, setting)), None)

    @property
    def conflicts(self) -> Tuple[Drift, ...]:
        return tuple(one for one in self.drifts if one.conflict_s)


# -- the file


def load(machine: machines.Machine) -> Record:
    """An empty record where there is none, or none that can be read: what drifted is counted anew then."""
    body = wanted.small(machine, PLACE)
    if body is not None:
        with contextlib.suppress(ValueError, errors.Problem):
            return fields.build(Record, fields.document(fields.parsed(body), "keeper"))
    return Record()


def save(machine: machines.Machine, record: Record) -> None:
    """Only when it differs from what is there: a node that stays as it was set writes nothing."""
    body = (json.dumps(fields.plain(record), indent=1, sort_keys=True) + "\n").encode()
    if wanted.small(machine, PLACE) != body:
        machine.make_dirs(wanted.STATE, 0o700)
        machine.write(PLACE, body, mode=0o600)


def lift(machine: machines.Machine) -> None:
    """An operator applies: whatever was given up is held again from now on."""
    record = load(machine)
    if record.conflicts:
        save(machine, records.replace(record, drifts=tuple(_at_peace(one) for one in record.drifts)))


# -- transitions


def under(record: Record, policy: str) -> Record:
    """The record as it goes on under the policy of that digest: a new one is a new beginning for what was given up."""
    if record.policy == policy:
        return record
    return records.replace(record, drifts=tuple(records.replace(_at_peace(one), is_open=False) for one in record.drifts))


def found(record: Record, differences: Iterable[Difference], boot_id: str, now_s: float) -> Record:
    """What differs now: a new one is counted, one that still differs is not counted again, one that is right again is closed."""
    rows = {one.key: _in_boot(one, boot_id, now_s) for one in record.drifts}
    now = {one.key: one for one in differences}
    for key, one in list(rows.items()):
        if key not in now and one.is_open:
            rows[key] = records.replace(_at_peace(one) if one.conflict_s else one, is_open=False)
    for key, difference in now.items():
        rows[key] = _differs(rows.get(key), difference, boot_id, now_s)
    newest = sorted(rows.values(), key=lambda one: one.last_s)[-_DRIFTS_LIMIT:]
    return records.replace(record, drifts=tuple(sorted(newest, key=lambda one: one.key)))


def decide(record: Record, now_s: float) -> Record:
    """Of what differs: a conflict where putting it right has not held; an end of one whose writer was not seen for long."""
    return records.replace(record, drifts=tuple(_decided(one, now_s) for one in record.drifts))


def fought(record: Record, keys: Iterable[Tuple[str, str]], now_s: float) -> Record:
    """These are being put right now. What the driver forgets by itself is no round: nobody fights there."""
    chosen = set(keys)
    rows = [
        records.replace(one, rounds=(*_within(one.rounds, now_s, ROUNDS_WITHIN_S), now_s)[-ROUNDS:])
        if one.key in chosen and one.cause != RELEASED
        else one
        for one in record.drifts
    ]
    return records.replace(record, drifts=tuple(rows))


def corrected(record: Record, left: Iterable[Difference], now_s: float, words: Mapping[Tuple[str, str], str]) -> Record:
    """After the writing: what does not differ any more was put right; `words` say why the others could not be."""
    still = {one.key for one in left}
    rows = [
        records.replace(one, is_open=False, corrected_s=now_s, words="")
        if one.is_open and one.key not in still
        else records.replace(one, words=words.get(one.key, one.words))
        for one in record.drifts
    ]
    return records.replace(record, drifts=tuple(rows))


def named(record: Record, writers: Tuple[str, ...], lives: bool, now_s: float) -> Record:
    """Who was found that could have done it. One that lives keeps a conflict going; where nobody is found, what was known stays."""
    rows = [
        records.replace(one, writers=writers or one.writers, seen_s=now_s if lives else one.seen_s)
        if one.is_open and one.cause == WRITTEN
        else one
        for one in record.drifts
    ]
    return records.replace(record, drifts=tuple(rows))


def reapplied(record: Record, why: str, now_s: float) -> Record:
    return records.replace(record, reapplied=record.reapplied + 1, reapplied_s=now_s, reapplied_why=why)


def warmed(record: Record, look: reading.Look, now_s: float) -> Record:
    """The highest temperature of this local day, of each card and the board."""
    day = time.strftime("%Y-%m-%d", time.localtime(now_s))
    seen: Dict[str, float] = {card.uuid: card.temperature_c for card in look.cards if card.temperature_c is not None}
    if look.board is not None and look.board.temperature_c is not None:
        seen[BOARD] = look.board.temperature_c
    highest = dict(record.highest)
    for owner, celsius in seen.items():
        known = highest.get(owner)
        if known is None or known.day != day or celsius > known.celsius:
            highest[owner] = Highest(day, float(celsius), now_s)
    return records.replace(record, highest=highest)


def _differs(one: Optional[Drift], now: Difference, boot_id: str, now_s: float) -> Drift:
    one = one or Drift(now.owner, now.setting, now.wanted, now.found, boot_id=boot_id)
    one = records.replace(one, wanted=now.wanted, found=now.found, card=now.card, cause=now.cause)
    if one.is_open:
        return one
    times = (*one.times, now_s)[-_TIMES_LIMIT:]
    return records.replace(one, is_open=True, times=times, total=one.total + 1, since_boot=one.since_boot + 1, words="")


def _decided(one: Drift, now_s: float) -> Drift:
    if not one.is_open:
        return one
    if one.conflict_s:
        # Tried once more after an hour; when that does not hold either, it is a conflict again at once.
        gone = now_s - max(one.conflict_s, one.seen_s) >= WRITER_GONE_S
        return records.replace(one, conflict_s=0.0, rounds=(now_s,) * (ROUNDS - 1)) if gone else one
    if one.cause == WRITTEN and len(_within(one.rounds, now_s, ROUNDS_WITHIN_S)) >= ROUNDS:
        return records.replace(one, conflict_s=now_s)
    return one


def _in_boot(one: Drift, boot_id: str, now_s: float) -> Drift:
    one = records.replace(one, times=_within(one.times, now_s, _DAY_S))
    return one if one.boot_id == boot_id else records.replace(one, boot_id=boot_id, since_boot=0)


def _at_peace(one: Drift) -> Drift:
    return records.replace(one, conflict_s=0.0, rounds=(), writers=(), seen_s=0.0)


def _within(times: Tuple[float, ...], now_s: float, span_s: float) -> Tuple[float, ...]:
    return tuple(one for one in times if 0 <= now_s - one <= span_s)
