"""What was chosen for one host's cards and board, and by whom. Pure.

By the inventory where the host has the role `power`, else by the policy that the node itself keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from wattherd import errors
from wattherd.power import memory, settings, wanted
from wattherd.powering import plan as planning
from wattherd.verbs import power_told
from wattherd.wire import facts

if TYPE_CHECKING:
    from wattherd import inventory

INVENTORY, NODE = "inventory", "node"
BOARD = memory.BOARD


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What was chosen for one host, and by whom. `unfit` is, by UUID and setting, why a wish cannot be had there.

    `doubt` is why the inventory's wish could not be worked out at all; what the node keeps stands in for it then.
    """

    source: str = ""
    cards: Mapping[str, wanted.CardPolicy] = field(default_factory=dict)
    unfit: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    board: wanted.BoardPolicy | None = None
    doubt: str = ""

    def of(self, uuid: str) -> Mapping[str, settings.Value]:
        return settings.of(self.cards.get(uuid, wanted.CardPolicy()))

    def is_applied(self, owner: str, told: power_told.Told) -> bool | None:
        """Whether the node keeps what the inventory wants of a card or the board; None where the inventory wants nothing."""
        if self.source != INVENTORY:
            return None
        kept = of_node(told)
        return self.board == kept.board if owner == BOARD else self.of(owner) == kept.of(owner)


def chosen(host: inventory.Host, seen: facts.Facts, told: power_told.Told) -> Chosen:
    if "power" not in host.settings.roles:
        return of_node(told)
    try:
        made = planning.of(host.name, host.settings, seen)
    except errors.Problem as problem:
        kept = of_node(told)
        # Its other lines are a proposal for the inventory, which power-apply prints once and no row of a table has room for.
        return Chosen(source=kept.source, cards=kept.cards, board=kept.board, doubt=problem.message.partition("\n")[0])
    return Chosen(
        source=INVENTORY,
        cards=made.policy.cards,
        unfit={one.card.uuid: {row.setting: row.unfit for row in one.rows if row.unfit} for one in made.cards if one.card.uuid},
        board=made.policy.board,
    )


def of_node(told: power_told.Told) -> Chosen:
    if told.policy is None:
        return Chosen()
    return Chosen(source=NODE, cards=told.policy.cards, board=told.policy.board)
