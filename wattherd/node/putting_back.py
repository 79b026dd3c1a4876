"""Takes back a power policy under which the node was not well, or that nobody confirmed: what was there before it returns.

Killed anywhere it goes on from where it was: the record of the waiting policy says that it goes back until all of it is.
"""

from __future__ import annotations

from typing import Callable, Dict, Optional, Set, Tuple

from wattherd import errors, records
from wattherd import machine as machines
from wattherd.power import drift, memory, pending, reading, settings, settle, wanted
from wattherd.power import look as looking
from wattherd.power.jetson import change, held

Say = Callable[[str], None]


def put_back(machine: machines.Machine, waiting: pending.Pending, why: str, say: Say) -> bool:
    """True when all is as it was; False while cards cannot be reached: whoever looks next goes on. The caller holds the node's lock."""
    condemned = waiting if waiting.why else pending.condemn(machine, waiting, why)
    _note(machine, condemned)
    if condemned.previous is None:
        machine.unlink(wanted.POLICY)
        if machine.is_dir(wanted.FOLDER):
            machine.sync_folder(wanted.FOLDER)
    elif pending.current(machine) != condemned.previous:
        machine.write(wanted.POLICY, condemned.previous.encode(), mode=0o644)
    if not _settled(machine, condemned, say):
        return False
    pending.settle(machine)
    return True


def problem(back: drift.PutBack) -> errors.Problem:
    """What a person is told of it."""
    what = "the one before is in force again" if back.to else "the cards are as they were before the first one"
    return errors.Problem(
        "power-put-back",
        f"the new power policy was put back: {back.why}; {what}",
        hint="mend what it complains of, or choose another value, and apply again; invoke power-status shows what is in force",
    )


def standing(machine: machines.Machine, record: drift.Record) -> Optional[drift.PutBack]:
    """The put-back that is still what is in force here; None once another policy has come."""
    back, text = record.put_back, pending.current(machine)
    return back if back is not None and back.to == ("" if text is None else pending.digest_of(text)) else None


def _note(machine: machines.Machine, condemned: pending.Pending) -> None:
    record = drift.load(machine)
    to = "" if condemned.previous is None else pending.digest_of(condemned.previous)
    if record.put_back is None or record.put_back.digest != condemned.digest or record.put_back.why != condemned.why:
        back = drift.PutBack(machine.now_s(), condemned.why, condemned.digest, to)
        drift.save(machine, records.replace(record, put_back=back))


def _settled(machine: machines.Machine, condemned: pending.Pending, say: Say) -> bool:
    """The cards are under the policy that came back, and what only the condemned one had set is as before."""
    look = looking.look(machine, wake=True)
    if look.fault and look.board is None:
        say(f"put back, but the cards cannot be reached yet: {look.fault}")
        return False
    previous = wanted.Policy()
    if condemned.previous is not None:
        try:
            previous = wanted.decode(condemned.previous)
        except errors.Problem as damaged:
            say(f"the policy that came back cannot be read, so nothing is set by it: {damaged.message}")
    cards = _cards(machine, previous, look, say)
    return (look.board is None or _board(machine, previous, look.board, say)) and cards


def _cards(machine: machines.Machine, previous: wanted.Policy, look: reading.Look, say: Say) -> bool:
    def tell(words: str) -> None:
        say(words)

    steps = list(settle.apply(machine, previous, look, tell))
    for owner, setting in sorted(_beyond(machine, previous)):
        steps += settle.restore(machine, look, tell, only=(owner, setting))
    for step in steps:
        if step.outcome == settle.FAILED:
            said = step.problem.message if step.problem is not None else step.words
            say(f"{step.card or step.uuid[:12]}: its {settings.NAMES.get(step.setting, step.setting)} is not back yet: {said}")
    return all(step.outcome != settle.FAILED for step in steps)


def _board(machine: machines.Machine, previous: wanted.Policy, board: reading.Board, say: Say) -> bool:
    whole = held.put_back(machine, previous.board, say)
    if previous.board is None:
        return whole
    chosen = tuple(one.setting for one in held.differences(machine, previous.board, board))
    for setting, done in held.apply(machine, previous.board, chosen).items() if chosen else ():
        if not done.done:
            say(f"its {setting} is not back yet: {done.words}")
            whole = whole and done.kind in (*change.WAITS, "unsupported")
    return whole


def _beyond(machine: machines.Machine, previous: wanted.Policy) -> Set[Tuple[str, str]]:
    """What was ever changed here and is no part of `previous`."""
    kept: Dict[str, Set[str]] = {uuid: set(settings.of(card)) for uuid, card in previous.cards.items()}
    rows = memory.before(machine)
    return {
        (owner, setting) for owner, row in rows.items() if owner != memory.BOARD for setting in row if setting not in kept.get(owner, ())
    }
