"""One round of the keeper: what differs from the policy is put right and counted, and left alone where somebody else keeps changing it.

All that is remembered lies in the node's own files, so a round may be cut anywhere: the next one sees what is there. Needs the node's lock.
"""

from __future__ import annotations

import contextlib
from typing import Callable, Dict, List, Tuple

from wattherd import errors, records
from wattherd import machine as machines
from wattherd.power import differing, drift, memory, pending, reading, settings, settle, wanted, writers
from wattherd.power import look as looking
from wattherd.power.jetson import held
from wattherd.records import dataclass, field

Say = Callable[[str], None]
Key = Tuple[str, str]
#: A suspect is looked for anew so often while a conflict lasts.
_LOOK_AGAIN_S = 300.0
#: What cannot be set is tried again after 20 s, then twice that, up to this.
_PATIENCE_S, _FIRST_S = 600.0, 20.0
_BOOTED, _RELOADED = "the node booted", "the driver was loaded anew"
_NEW_POLICY = "a new policy"
_NAMES = {**settings.NAMES, **held.NAMES}


@dataclass
class Memory:
    """What only this process knows, and may lose: when to try again what failed, and when suspects were last looked for."""

    failures: Dict[Key, Tuple[int, float]] = field(default_factory=dict)
    looked_s: float = -1e9

    def waits(self, key: Key, now_s: float) -> bool:
        return key in self.failures and now_s < self.failures[key][1]

    def failed(self, key: Key, now_s: float) -> None:
        count = self.failures.get(key, (0, 0.0))[0]
        self.failures[key] = (count + 1, now_s + min(_FIRST_S * 2**count, _PATIENCE_S))


@dataclass(frozen=True)
class Written:
    """What came of the writing: what was written (and may have been changed again since), and words for what was not."""

    done: Tuple[Key, ...] = ()
    words: Dict[Key, str] = field(default_factory=dict)


def is_settled(machine: machines.Machine, text: str, policy: wanted.Policy, look: reading.Look) -> bool:
    """Nothing to write, neither to a card nor to a file: most rounds end here, without the lock."""
    record = drift.load(machine)
    return (
        not _new_life(machine, record, text, look)
        and not any(one.is_open for one in record.drifts)
        and not differing.of(machine, policy, look)
        and not differing.lost_locks(machine, policy, look)
        and drift.warmed(record, look, machine.now_s()) == record
    )


def hold(machine: machines.Machine, text: str, policy: wanted.Policy, look: reading.Look, mine: Memory, say: Say) -> None:
    """Bring cards and board to `policy` (whose file's text is `text`). `look` is of this moment, taken under the lock."""
    now_s = machine.now_s()
    record = drift.warmed(drift.under(drift.load(machine), pending.digest_of(text)), look, now_s)
    for uuid, setting in differing.lost_locks(machine, policy, look):
        memory.drop_lock(machine, uuid, setting)
    differences = differing.of(machine, policy, look)
    why = _new_life(machine, record, text, look)
    if not why:
        record = _counted(machine, record, differences, mine, say)
    # A full disk is no reason to let go of the cards: what cannot be written down is held all the same, and told at the end.
    with contextlib.suppress(errors.Problem, OSError):
        drift.save(machine, record)
    given_up = {one.key for one in record.conflicts}
    chosen = [
        one
        for one in differences
        if one.key not in given_up
        and not mine.waits(one.key, machine.monotonic_s())
        and not differing.is_futile(machine, policy, look, one)
    ]
    written = _write(machine, text, policy, chosen, look, mine) if chosen else Written()
    if chosen:
        left = differing.of(machine, policy, looking.look(machine))
        record = _after(machine, record, chosen, left, written, why, say)
    if why:
        again = [one for one in chosen if one.key in written.done]
        if again and why != _NEW_POLICY:
            record = drift.reapplied(record, why, now_s)
            say(f"{why}: set again: {', '.join(_said(one) for one in again)}")
        record = records.replace(record, policy=pending.digest_of(text), epoch=look.epoch, boot_id=machine.boot_id())
    drift.save(machine, record)


def _new_life(machine: machines.Machine, record: drift.Record, text: str, look: reading.Look) -> str:
    """Why what differs now is nobody's drift: the node or the driver began anew, or the policy did. Empty for all that came later."""
    if record.policy != pending.digest_of(text):
        return _NEW_POLICY
    if record.boot_id != machine.boot_id():
        return _BOOTED
    return _RELOADED if look.epoch and record.epoch != look.epoch else ""


def _counted(
    machine: machines.Machine, record: drift.Record, differences: Tuple[drift.Difference, ...], mine: Memory, say: Say
) -> drift.Record:
    now_s = machine.now_s()
    before = record
    record = drift.found(record, differences, machine.boot_id(), now_s)
    written = [one for one in record.drifts if one.is_open and one.cause == drift.WRITTEN]
    in_conflict_only = all(one.conflict_s for one in written)
    if written and (not in_conflict_only or machine.monotonic_s() - mine.looked_s >= _LOOK_AGAIN_S):
        suspects = writers.find(machine)
        mine.looked_s = machine.monotonic_s()
        names = tuple(f"{one.name}: {one.how}" for one in suspects)
        record = drift.named(record, names, any(one.lives and one.sure for one in suspects), now_s)
    record = drift.decide(record, now_s)
    for one in record.drifts:
        known = before.of(*one.key)
        if one.is_open and not (known is not None and known.is_open):
            say(_told(one))
        if one.conflict_s and not (known is not None and known.conflict_s):
            say(_conflict(one))
    return record


def _write(
    machine: machines.Machine, text: str, policy: wanted.Policy, chosen: List[drift.Difference], look: reading.Look, mine: Memory
) -> Written:
    """One enforcer's code does it; here is only what it says kept apart: written, or not to be had."""
    done: List[Key] = []
    words: Dict[Key, str] = {}

    def still() -> bool:
        return pending.current(machine) == text

    for step in settle.apply(machine, differing.only(policy, chosen), look, _silent, still=still):
        key = (step.uuid, step.setting)
        # Written and not kept is a round lost to somebody; refused is not.
        if step.outcome == settle.CHANGED or (step.problem is not None and step.problem.code == "power-failed"):
            done.append(key)
        if step.outcome != settle.CHANGED:
            words[key] = step.words or (step.problem.message if step.problem is not None else "")
    board = tuple(one.setting for one in chosen if one.owner == drift.BOARD)
    if board and policy.board is not None and still():
        for setting, verdict in held.apply(machine, policy.board, board).items():
            key = (drift.BOARD, setting)
            done += [key] if verdict.done else []
            words.update({} if verdict.done else {key: verdict.words})
    for key in (one.key for one in chosen):
        if key in words and key not in done:
            mine.failed(key, machine.monotonic_s())
        else:
            mine.failures.pop(key, None)
    return Written(tuple(done), words)


def _after(
    machine: machines.Machine,
    record: drift.Record,
    chosen: List[drift.Difference],
    left: Tuple[drift.Difference, ...],
    written: Written,
    why: str,
    say: Say,
) -> drift.Record:
    now_s = machine.now_s()
    still = {one.key for one in left}
    if not why:
        record = drift.fought(record, written.done, now_s)
    for one in chosen:
        if one.key in still and one.key in written.words:
            known = record.of(*one.key)
            if known is None or known.words != written.words[one.key]:
                say(f"{one.card}: its {_NAMES[one.setting]} could not be set to {one.wanted}: {written.words[one.key]}")
    return drift.corrected(record, left, now_s, written.words)


def _told(one: drift.Drift) -> str:
    cause = "the driver let the card go" if one.cause == drift.RELEASED else "; ".join(one.writers) or "nobody seen who set it"
    times = "once" if one.total == 1 else f"{one.total} times"
    return f"{one.card}: its {_NAMES[one.setting]} {_is(one)} {one.found}, not {one.wanted}; seen {times} so far; {cause}"


def _conflict(one: drift.Drift) -> str:
    who = "; ".join(one.writers) or "something that was not found"
    return (
        f"{one.card}: its {_NAMES[one.setting]} {_is(one)} {one.found} again, after {drift.ROUNDS} times of setting {one.wanted} "
        f"in {drift.ROUNDS_WITHIN_S / 60:.0f} minutes: left alone from now on. Stop the other one ({who}), then apply again"
    )


def _is(one: drift.Drift) -> str:
    return "are" if one.setting == held.PINNED else "is"


def _said(one: drift.Difference) -> str:
    return f"{_NAMES[one.setting]} of {one.card} to {one.wanted}"


def _silent(words: str) -> None:
    """Each write is told of by what it was for."""
    del words
