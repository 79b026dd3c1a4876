"""A new power policy stands only once its node was asked again and has answered well: the controller's half of that (power-confirm).

Every verb that can change a policy asks: deploy and power-apply, and rollback, which brings an earlier one back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from wattherd import errors, fleet
from wattherd.wire import fields

#: How long a node watches its new policy before it says that all is well: a unit that falls down is up and down again within that.
SETTLE_S = 15
Ask = Callable[[Mapping[str, object]], fields.Document]


def confirm(name: str, answer: fields.Document, count: fleet.Count, ask: Ask) -> None:
    """`answer` is the end of a run on that host; `ask` sends its node another order, whose events `count` sees.

    Asked twice: to watch itself, and, once it is well, to let the policy stand. A host that is lost while it is watched never hears that.

    Nothing where the run left no policy unconfirmed. The node puts the former one back itself: at once when it is unwell, at the deadline
    when nobody asks. Raises `power-put-back` where it did so and no event said why.
    """
    if answer.get("unconfirmed_s") is None:
        return
    left_s = int(fields.number(answer, "unconfirmed_s"))
    told = ask({"verb": "power-confirm", "settle_s": max(1, min(SETTLE_S, left_s - 5)), "stand": False})
    if told.get("well") is True and told.get("confirmed") is not True:
        told = ask({"verb": "power-confirm", "settle_s": 0})
    if told.get("confirmed") is not True and count.problem is None:
        raise errors.Problem(
            "power-put-back",
            f"{name} did not confirm its new power policy, so the one before is in force again",
            hint=f"invoke power-status --hosts {name} shows what is there now",
        )
