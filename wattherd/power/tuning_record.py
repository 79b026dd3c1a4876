"""What cards were set to before a sweep, kept until they are set to it again, whoever is left to do that.

A tuning process holds a lock for as long as it lives, and the kernel lets go of it whatever ends the process. Who gets the lock while the
record is still there finds a dead one's, and restores: the guard that the sweep left behind, the keeper, every later session.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from typing import FrozenSet, Iterator, List, Mapping, Optional, Sequence, Tuple

from wattherd import errors, store
from wattherd import machine as machines
from wattherd.power import change, look, reading, settings, wanted
from wattherd.records import dataclass, field
from wattherd.wire import fields

RECORD = wanted.STATE + "/tune.json"
LOCK = "/run/wattherd-tune.lock"
#: A guard that restores holds the lock for some calls of nvidia-smi.
WAIT_S = 60.0
#: Answers after which another try would say the same: such a setting is left as it is.
_FINAL = (change.UNSUPPORTED, change.OUT_OF_RANGE)


@dataclass(frozen=True)
class Before:
    """One card before the sweep: its requested limit in watts, the clock lock that was ours (least and most MHz; empty: none), persistence.

    `sets` names what the sweep changes: limit_w, clocks_mhz, persistence. Nothing else is put back.
    """

    limit_w: Optional[float] = None
    clocks_mhz: Tuple[int, ...] = ()
    persistence: Optional[bool] = None
    sets: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Record:
    """By UUID. In another boot, or after a reload of the driver (`epoch`), every value has fallen back to the card's default by itself."""

    boot_id: str
    epoch: str = ""
    cards: Mapping[str, Before] = field(default_factory=dict)


@dataclass(frozen=True)
class Restored:
    """`words` say what was put back, `left` what was not, and why: then the record stays, for the next try."""

    words: Tuple[str, ...] = ()
    left: Tuple[str, ...] = ()


@contextlib.contextmanager
def hold(machine: machines.Machine, wait_s: float = WAIT_S) -> Iterator[None]:
    """Be the one who tunes or restores. `node-busy` when another one still does after `wait_s`."""
    busy = errors.Problem(
        "node-busy",
        "a sweep of power limits is running on this node, or its cards are being set back after one",
        hint="wait for it: invoke power-status shows the card that it is on",
    )
    machine.make_dirs(os.path.dirname(LOCK))
    with store.locked(machine, LOCK, busy, wait_s):
        yield


def await_end(machine: machines.Machine) -> int:
    """Block until no tuning process lives; gives the handle of the lock, which is then held."""
    handle = _open(machine)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def live(machine: machines.Machine) -> FrozenSet[str]:
    """UUIDs of the cards that a living process tunes now: nobody else may set them."""
    record = read(machine)
    if record is None:
        return frozenset()
    handle = _open(machine)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return frozenset(record.cards)
    finally:
        os.close(handle)
    return frozenset()


def read(machine: machines.Machine) -> Optional[Record]:
    """None where no sweep is under way or left over. A record that cannot be read says nothing that could be restored: it is put aside."""
    body = wanted.small(machine, RECORD)
    if body is None:
        return None
    try:
        return fields.build(Record, fields.document(fields.parsed(body), "tune.json"), "tune.json")
    except (ValueError, errors.Problem):
        machine.rename(RECORD, RECORD + ".damaged")
        return None


def write(machine: machines.Machine, record: Record) -> None:
    """Before the first change; on the disk when this returns."""
    machine.make_dirs(wanted.STATE)
    machine.write(RECORD, json.dumps(fields.plain(record), indent=1, sort_keys=True).encode(), mode=0o600)


def recover(machine: machines.Machine) -> Tuple[str, ...]:
    """Put back what a dead sweep has left. In words what was done; empty where nothing was left over, or a living sweep is at work.

    Cheap where there is no record: one look for a file. Never raises for what a card or driver does: what could not be put back stays
    on record.
    """
    if not machine.exists(RECORD) or live(machine):
        return ()
    try:
        with hold(machine):
            done = restore(machine)
    except errors.Problem as problem:
        return (f"a sweep of power limits did not end, and its cards could not be set back: {problem.message}",)
    said = [f"a sweep of power limits did not end: {words}" for words in done.words]
    return (*said, *(f"a sweep of power limits did not end, and a card could not be set back: {words}" for words in done.left))


def restore(machine: machines.Machine) -> Restored:
    """Set every card on record to what it was, read it back, and forget the record when all are. The caller holds the lock."""
    record = read(machine)
    if record is None:
        return Restored()
    seen = look.look(machine)
    if seen.fault:
        return Restored(left=(seen.fault,))
    words: List[str] = []
    left: List[str] = []
    for uuid, before in record.cards.items():
        card = seen.card(uuid)
        if card is None or card.fault:
            left.append(f"{uuid}: {card.fault if card is not None else 'this node has no such card now'}")
            continue
        fresh = seen.epoch != record.epoch or machine.boot_id() != record.boot_id
        _set_back(machine, card, before, fresh=fresh, words=words, left=left)
    left += _differing(machine, record, words, left)
    if not left:
        machine.unlink(RECORD)
        machine.sync_folder(wanted.STATE)
    return Restored(tuple(words), tuple(left))


def _set_back(machine: machines.Machine, card: reading.Card, before: Before, *, fresh: bool, words: List[str], left: List[str]) -> None:
    """`fresh`: the driver was loaded anew since. Only what then stands at the card's default is set; another value is somebody's own."""
    limit_w, now_w = before.limit_w, card.limits.requested_w
    somebodys = fresh and now_w is not None and card.limits.default_w is not None and abs(now_w - card.limits.default_w) > settings.SLACK_W
    if "limit_w" in before.sets and limit_w is not None and not somebodys and not _same(limit_w, now_w):
        verdict = change.set_limit(machine, card.uuid, limit_w)
        _note(card, f"its power limit is {limit_w:g} W again", verdict, words, left)
    if "clocks_mhz" in before.sets:
        if before.clocks_mhz:
            verdict = change.set_clocks(machine, card.uuid, *before.clocks_mhz[:2])
            _note(card, f"its clocks are held to {before.clocks_mhz[0]}-{before.clocks_mhz[1]} MHz again", verdict, words, left)
        elif not fresh:
            _note(card, "its clocks are free again", change.reset_clocks(machine, card.uuid), words, left)
    if "persistence" in before.sets and before.persistence is not None and card.persistence is not before.persistence:
        verdict = change.set_persistence(machine, card.uuid, before.persistence)
        _note(card, f"its persistence mode is {'on' if before.persistence else 'off'} again", verdict, words, left)


def _note(card: reading.Card, done: str, verdict: change.Verdict, words: List[str], left: List[str]) -> None:
    if verdict.kind == change.DONE:
        words.append(f"{card.shown}: {done}")
    elif verdict.kind not in _FINAL:
        left.append(f"{card.shown}: {verdict.words or verdict.kind}")


def _differing(machine: machines.Machine, record: Record, words: Sequence[str], left: Sequence[str]) -> List[str]:
    """What the cards themselves say after it; an answer alone proves nothing."""
    if not words or left:
        return []
    seen = look.look(machine)
    if seen.fault:
        return [seen.fault]
    found: List[str] = []
    for uuid, before in record.cards.items():
        card = seen.card(uuid)
        now_w = card.limits.requested_w if card is not None else None
        if card is None or "limit_w" not in before.sets or before.limit_w is None or _same(before.limit_w, now_w):
            continue
        if before.persistence is False and _same(card.limits.default_w, now_w):
            continue  # as before the sweep, the driver lets go of a card that nobody uses, and of its limit
        if any(card.shown in one and "power limit" in one for one in words):
            found.append(f"{card.shown}: its power limit is {now_w} W, not {before.limit_w:g} W")
    return found


def _same(one: Optional[float], other: Optional[float]) -> bool:
    return one is not None and other is not None and abs(one - other) <= settings.SLACK_W


def _open(machine: machines.Machine) -> int:
    machine.make_dirs(os.path.dirname(LOCK))
    return os.open(machine.path(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
