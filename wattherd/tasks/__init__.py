"""The command line: one Invoke task per verb, each a few lines. A project's tasks.py says `from wattherd.tasks import namespace`."""

from __future__ import annotations

import pathlib
from typing import Any

from invoke.collection import Collection

from wattherd.tasks import change, look, models, power

#: In the order of `invoke --list`'s readers: what changes machines, then what looks.
_TASKS: tuple[Any, ...] = (
    change.deploy,
    power.power_apply,
    power.power_tune,
    change.trust,
    change.rollback,
    change.remove,
    change.init,
    look.ping,
    look.facts,
    look.ask,
    look.doctor,
    power.power_status,
    look.history,
    look.endpoints,
    look.inventory_show,
    models.models,
    models.models_gc,
)


def collection(root: pathlib.Path) -> Collection:
    """The namespace of a project that lies in `root`."""
    made = Collection(*_TASKS)
    made.configure({"wattherd": {"root": str(root)}})
    return made
