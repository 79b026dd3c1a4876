"""`power-confirm`: watches the node for a while under a policy that waits, and lets it stand, or puts it back at once.

That the controller can ask is half of the answer: a policy under which nobody reaches the node is put back by the keeper.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping

from wattherd import machine as machines
from wattherd.node import putting_back
from wattherd.power import drift, health, pending
from wattherd.power import look as looking
from wattherd.wire import event, fields

Emit = Callable[[Mapping[str, Any]], None]
POLICY_ID = "power-policy:node"
#: Seen twice in a row before it counts: one odd reading is none.
_STEP_S = 3.0
_LONGEST_S = 900.0


def confirm(machine: machines.Machine, order: fields.Document, emit: Emit) -> Mapping[str, Any]:
    """`settle_s` seconds of watching. The end carries `confirmed` and `well`; where that is false a `failed` event says what was seen.

    With `stand` false the node is only watched: the policy waits on for the word of a controller that can still say it afterwards.
    With nothing waiting both are true, unless the keeper has put the policy back in the meantime.
    """
    stands = fields.flag(order, "stand", default=True)
    settle_s = min(max(0.0, fields.number(order, "settle_s", 10.0)), _LONGEST_S)
    waiting = pending.waiting(machine)
    if waiting is not None and not waiting.why:
        why = _watch(machine, waiting, settle_s, emit)
        if not why:
            if stands:
                pending.settle(machine)
            return {"confirmed": stands, "well": True}
        putting_back.put_back(machine, waiting, why, lambda words: emit(event.note(words)))
    elif waiting is not None:
        putting_back.put_back(machine, waiting, waiting.why, lambda words: emit(event.note(words)))
    back = putting_back.standing(machine, drift.load(machine))
    if back is None:
        return {"confirmed": True, "well": True}
    emit(event.failed(POLICY_ID, putting_back.problem(back)))
    return {"confirmed": False, "well": False}


def _watch(machine: machines.Machine, waiting: pending.Pending, settle_s: float, emit: Emit) -> str:
    """What is wrong, in words, once it was seen twice in a row; empty when the time passed well. Looks at least once."""
    end_s = machine.monotonic_s() + settle_s
    before = ""
    while True:
        ill = health.complaints(waiting.vitals, health.take(machine, looking.look(machine)))
        if ill and before:
            return "; ".join(ill)
        before = "; ".join(ill)
        left_s = end_s - machine.monotonic_s()
        if left_s <= 0 and not ill:
            return ""
        emit(event.progress(POLICY_ID, "watching the node under its new policy", max(0.0, settle_s - left_s), settle_s, "s"))
        machine.wait(_STEP_S if ill else min(_STEP_S, max(left_s, 0.0)))
