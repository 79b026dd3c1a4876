"""The verb `reboot`: the mode that waits for it is written where the next boot reads it, the servers are emptied, and the node goes down.

The reboot itself comes a moment after the answer, so that the controller hears that it was asked for. Nothing else is touched.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping

from wattherd import errors
from wattherd import machine as machines
from wattherd.node import converge, emptying
from wattherd.power import memory
from wattherd.power.jetson import conf, nvpmodel, pending, tools
from wattherd.wire import event, fields

_ID = "reboot:node"
#: Long enough for the answer to leave and for the session to be closed.
_DELAY_S = 2


def reboot(machine: machines.Machine, order: fields.Document, emit: converge.Emit) -> Mapping[str, Any]:
    """`check` tells only: boot (its id), mode (now), pending (the mode that the reboot would set), servers (that would be drained).

    Raises `drain-timeout` (all is served again then), `command-failed`.
    """
    servers = emptying.served(machine)
    told: Dict[str, Any] = {**_state(machine), "servers": [one.unit.name for one in servers]}
    if fields.flag(order, "check", default=False):
        return told

    def tell(words: str, done: float = 0, total: float = 0, unit: str = "") -> None:
        emit(event.progress(_ID, words, done, total, unit))

    with emptying.emptied(machine, servers, tell):
        _schedule(machine, told["pending"], tell)
        machine.must(["sync"], timeout_s=60)
        machine.must(
            ["systemd-run", "--quiet", "--collect", f"--on-active={_DELAY_S}", "--timer-property=AccuracySec=100ms", "systemctl", "reboot"],
            timeout_s=30,
        )
    tell("rebooting")
    return {**told, "rebooting": True}


def _state(machine: machines.Machine) -> Dict[str, str]:
    mode = nvpmodel.query(machine).name if tools.is_jetson(machine) else ""
    return {"boot": machine.boot_id(), "mode": mode, "pending": pending.mode(machine)}


def _schedule(machine: machines.Machine, name: str, tell: Any) -> None:
    """The deferred route: nvpmodel's service sets at boot what stands in its status file, where nvpmodel itself would ask somebody."""
    if not name:
        return
    try:
        mode = conf.find(conf.read(machine), name)
    except errors.Problem:
        pending.clear(machine)
        return
    with memory.alone(machine):
        nvpmodel.schedule(machine, mode.number)
    tell(f"the next boot sets the mode {mode.name}")
