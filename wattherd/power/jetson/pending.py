"""The mode that waits for a reboot: asked for, and possible only while the board boots. Nobody asks nvpmodel again before that."""

from __future__ import annotations

import contextlib
import json

from wattherd import errors
from wattherd import machine as machines
from wattherd.power import wanted
from wattherd.power.jetson import tools
from wattherd.wire import fields

PATH = wanted.STATE + "/jetson-pending.json"


def mode(machine: machines.Machine) -> str:
    """Its name; empty when none waits. One of an earlier boot waits no more: it took, or it did not."""
    with contextlib.suppress(ValueError, errors.Problem):
        kept = fields.document(fields.parsed(tools.text(machine, PATH) or "{}"), PATH)
        if kept and fields.text(kept, "boot") == machine.boot_id():
            return fields.text(kept, "mode")
    return ""


def keep(machine: machines.Machine, name: str) -> None:
    machine.make_dirs(wanted.STATE)
    machine.write(PATH, json.dumps({"mode": name, "boot": machine.boot_id()}).encode() + b"\n", mode=0o600)


def clear(machine: machines.Machine) -> None:
    machine.unlink(PATH)
