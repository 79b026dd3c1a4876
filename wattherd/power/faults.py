"""Why a card cannot be set: bad input of the operator, or a fault of the hardware. Each as a Problem that names the card and what to do."""

from __future__ import annotations

import re
from typing import Mapping, Optional, Sequence, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.power import change, memory, reading, settings

_KERNELS = "/proc/driver/nvidia/gpus"
_REBOOT = "reboot this node; if it is lost again, look at its seat, its power cables and its riser, and at dmesg"
_TAKEN_OUT = "Was it taken out for good? Then take it out of the inventory too; the next power-apply or deploy forgets it"
_ROOT = "it takes root on the host itself: a container without SYS_ADMIN, a rented pod and WSL2 cannot do it; reading goes on"
_NO_TOOL = "settings are written by nvidia-smi: install the tools of the driver that is loaded (nvidia-utils-… or nvidia-smi)"
_UNKNOWN = "nvidia-smi -q and dmesg tell more"
#: Look.fault_kind -> code; everything else is power-failed.
_KINDS: Mapping[str, str] = {"silent": "driver-silent", "mismatch": "driver-mismatch", "no-permission": "power-permission"}


def find(machine: machines.Machine, look: reading.Look, uuid: str) -> Tuple[Optional[reading.Card], Optional[errors.Problem]]:
    """The card, where it can be read and set; else why not: driver-silent, driver-mismatch, power-failed, card-lost or card-unknown."""
    if look.fault:
        return None, driver(look)
    card = look.card(uuid)
    if card is None:
        return None, absent(machine, look, uuid)
    return (None, lost(card)) if card.fault else (card, None)


def driver(look: reading.Look) -> errors.Problem:
    """No card of this node can be read at all."""
    return errors.Problem(_KINDS.get(look.fault_kind, "power-failed"), f"no card can be read or set: {look.fault}", hint=look.fault_hint)


def lost(card: reading.Card) -> errors.Problem:
    """A card that NVML calls lost fell off the bus, which is Xid 79 in the kernel log; one that needs a reset gets it with a reboot."""
    words = "lost (Xid 79)" if "lost" in card.fault.lower() else card.fault
    return errors.Problem("card-lost", f"{card.shown}: {words}: reboot this node", hint=_REBOOT, uuid=card.uuid)


def absent(machine: machines.Machine, look: reading.Look, uuid: str) -> errors.Problem:
    """A card that was in this node before, or that the kernel still lists, is lost; any other UUID is a slip of the pen."""
    if is_known(machine, uuid):
        words = f"card {uuid[:12]} was in this node and does not answer now: reboot this node"
        return errors.Problem("card-lost", words, hint=f"{_REBOOT}. {_TAKEN_OUT}", uuid=uuid)
    there = [f"{card.uuid} ({card.name})" if card.name else card.uuid for card in look.cards if card.uuid]
    if not there:
        return errors.Problem("card-unknown", f"this node has no card {uuid}: no NVIDIA card answers here", hint="nvidia-smi -L", uuid=uuid)
    nearest = _nearest(uuid, [card.uuid for card in look.cards if card.uuid])
    message = f"no card here is {uuid}" + (f"; the nearest is {nearest}" if nearest else "")
    return errors.Problem("card-unknown", message, hint=f"this node has {', '.join(there)}", uuid=uuid, nearest=nearest)


def is_known(machine: machines.Machine, uuid: str) -> bool:
    """It is, or was, in this node."""
    return memory.seen(machine, uuid) or any(
        re.search(rf"^GPU UUID:\s+{re.escape(uuid)}\s*$", machine.text(f"{_KERNELS}/{bus}/information"), re.MULTILINE)
        for bus in machine.names(_KERNELS)
    )


def _nearest(uuid: str, there: Sequence[str]) -> str:
    import difflib

    return next(iter(difflib.get_close_matches(uuid, there, 1, 0.5)), "")


def refused(card: reading.Card, setting: str, verdict: change.Verdict, wished: str, found: str) -> errors.Problem:
    """The card does not have what was asked for. `wished` and `found` are values as shown; the verdict says why, as far as it is known."""
    what = f"{card.shown}: its {settings.NAMES[setting]}"
    if verdict.kind == change.DONE:
        return _undone(card, setting, what, wished, found)
    if verdict.kind == change.OUT_OF_RANGE and verdict.least_w is not None and verdict.most_w is not None:
        span = f"it takes {settings.watts(verdict.least_w)} to {settings.watts(verdict.most_w)}"
        return errors.Problem("power-range", f"{what} does not take {wished}: {span}", hint=settings.HINT, uuid=card.uuid)
    code, hint = _REFUSALS.get(verdict.kind, ("power-failed", _NO_TOOL if verdict.words.endswith("not found") else _UNKNOWN))
    return errors.Problem(code, f"{what} was not set to {wished}: {verdict.words}", hint=hint, uuid=card.uuid)


_REFUSALS: Mapping[str, Tuple[str, str]] = {
    change.LOST: ("card-lost", _REBOOT),
    change.NO_PERMISSION: ("power-permission", _ROOT),
    change.OUT_OF_RANGE: ("power-range", settings.HINT),
    change.MISMATCH: ("driver-mismatch", "the driver was upgraded and the old module is still loaded: reboot this node"),
    change.SILENT: ("driver-silent", "a driver that hangs cannot be killed: dmesg tells why, a reboot mends it"),
}


def _undone(card: reading.Card, setting: str, what: str, wished: str, found: str) -> errors.Problem:
    hint = "something else sets it (nvidia-powerd, another tool, a BMC): invoke power-status names what is at work"
    if setting in settings.VOLATILE and card.persistence is False:
        hint = "persistence is off, so the driver forgets it as soon as it lets the card go: set `persistence: true` under `power:`"
    return errors.Problem("power-failed", f"{what} is {found} after it was set to {wished}", hint=hint, uuid=card.uuid)
