"""What each card and board may draw: limits, clocks and modes as resources, and the keeper that holds them between two runs.

Watts, MHz and names are worked out here, from what the card and the board tell of themselves; whether a card can have a setting at all is
the node's own finding. Comes after the roles whose load it caps.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from wattherd.role import (
    POWER_FOLDER,
    Directory,
    Facts,
    Host,
    Jetson,
    Power,
    PowerPlan,
    PowerPolicy,
    Program,
    Resource,
    Unit,
    power_plan,
    power_policy,
    unit_word,
)

KEEPER = "keeper"
UNIT = "wattherd-keeper.service"


def resources(host: Host, facts: Facts) -> Iterator[Resource]:
    plan = power_plan(host.name, host.settings, facts)
    if plan.is_empty:
        return
    yield Program(name=KEEPER, digest=host.program)
    if "base" not in host.settings.roles:
        yield Directory(path=posixpath.dirname(POWER_FOLDER))  # the role base has it too
    yield Directory(path=POWER_FOLDER)
    yield PowerPolicy(text=power_policy(plan.policy))
    yield Unit(name=UNIT, text=_keeper(host, facts, jetson=plan.jetson), started_from=(f"program:{KEEPER}",))
    yield from _cards(plan)
    yield from _board(plan)
    yield from _apart(plan)


def _keeper(host: Host, facts: Facts, *, jetson: bool) -> str:
    return host.text("power/keeper.service.j2", python=unit_word(facts.python.path), program=Program.PLACE, jetson=jetson)


def _cards(plan: PowerPlan) -> Iterator[Resource]:
    for one in plan.cards:
        for row in one.rows:
            yield Power(uuid=one.card.uuid or one.card.bus, setting=row.setting, value=row.value, card=one.card.name, unfit=row.unfit)


def _board(plan: PowerPlan) -> Iterator[Resource]:
    board = plan.policy.board
    if board is not None:
        if board.mode:
            yield Jetson(setting="mode", value=board.mode)
        if board.pinned is not None:
            yield Jetson(setting="pinned", value="yes" if board.pinned else "no")
        if board.fan:
            yield Jetson(setting="fan", value=board.fan)


def _apart(plan: PowerPlan) -> Iterator[Resource]:
    """Keys of a group that are for its other kind of boxes: skipped there, with the reason, and counted as that."""
    for key in plan.apart:
        if plan.jetson:
            yield Power(uuid="jetson", setting=key.setting, card="Jetson", unfit=key.why)
        else:
            yield Jetson(setting=key.setting, value=key.value)
