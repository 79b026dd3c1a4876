"""Builds of this node that are under way: which were begun and have not ended, whether their units run, and how one is ended.

Knows the folders that builds leave word in and the units that they run in; not what is built, or what for.
"""

from __future__ import annotations

import contextlib
import json
from typing import Dict

from wattherd import errors
from wattherd import machine as machines
from wattherd.resources import base, outcome, transient
from wattherd.wire import fields


def unit(short: str) -> str:
    return f"wattherd-build-{short}.service"


def is_running(machine: machines.Machine, home: str, short: str) -> bool:
    """systemd is asked only where a build was begun and has left no result: a `check` of a settled node runs no program for this."""
    return short in begun(machine, home) and transient.look(machine, unit(short)).running


def begun(machine: machines.Machine, home: str) -> Dict[str, str]:
    """What was begun below `home` and has left no result: the name of each one's folder, and of what is built there."""
    found: Dict[str, str] = {}
    for short in machine.names(home):
        body = machine.read(outcome.spec_path(f"{home}/{short}"))
        if body is not None and not machine.exists(outcome.result_path(f"{home}/{short}")):
            with contextlib.suppress(ValueError, errors.Problem):
                found[short] = fields.text(fields.document(json.loads(body), "spec"), "name")
    return found


def end_others(machine: machines.Machine, home: str, name: str, short: str, tell: base.Tell) -> None:
    """One of the same name that was begun for an older word of the inventory: nobody waits for it, and the new one would, for hours."""
    for other, what in begun(machine, home).items():
        if what == name and other != short and transient.look(machine, unit(other)).running:
            tell(f"stopping the build of {name} {other}, which is no longer wanted")
            end(machine, other)


def end(machine: machines.Machine, short: str) -> None:
    machine.must(["systemctl", "stop", unit(short)])
    machine.run(["systemctl", "reset-failed", unit(short)])
