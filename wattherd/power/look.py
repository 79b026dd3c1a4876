"""All cards of this node, read once: through NVML in a child process with a hard time limit, through nvidia-smi where NVML does not load.

Whatever goes wrong is in what is found: of one value, of one card, or of all of them. Nothing is written, no sleeping card is woken.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from wattherd import errors, records
from wattherd import machine as machines
from wattherd.power import cell, epoch, holders, kernel, reading, throttle, tool
from wattherd.wire import fields

#: What the child runs: it gets the folders to import from, then its orders as JSON, and prints one line of JSON.
CHILD = "import sys; sys.path[:0] = sys.argv[1].split(':'); from wattherd.power import nvml; sys.exit(nvml.main(sys.argv[2:]))"
LIMIT_S = 15.0
#: What is known for a minute and would only be found again: no storm of starts against a driver that cannot answer before a reboot.
REMEMBERED = "/run/wattherd-cards.json"
_REMEMBER_S = 60.0
#: Where a distribution keeps the library besides the loader's own places: WSL, NixOS, Jetson.
_LIBRARIES = "/usr/lib/wsl/lib:/run/opengl-driver/lib:/usr/lib/aarch64-linux-gnu/nvidia"
#: Cards that work in the host's memory, and whose watts are one part of a box.
_UNIFIED = re.compile(r"\b(GB10|N1X?|Thor|Orin)\b")
#: No card draws this many times its highest limit for a second: such a figure is a sensor that hangs.
_IMPLAUSIBLE = 3.0
#: kind -> what is wrong, and what to do.
_FAULTS: Mapping[str, Tuple[str, str]] = {
    "mismatch": (
        "the NVIDIA driver and its library are of two versions (upgraded while it was loaded)",
        "reboot this node; or stop what holds the cards, rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia, and modprobe nvidia",
    ),
    "no-driver": (
        "no NVIDIA driver is loaded",
        "dmesg | grep -i nvrm says why; after a kernel upgrade the module has to be built anew: dkms status",
    ),
    "no-library": (
        "neither NVML (libnvidia-ml.so.1) nor nvidia-smi is installed here",
        "install the tools of the driver that is loaded (nvidia-utils-… or nvidia-smi with libnvidia-ml1)",
    ),
    "no-permission": (
        "the NVIDIA driver may not be asked by this user",
        "be root on the host itself; a container needs its /dev/nvidia* files",
    ),
    "failed": (
        "the NVIDIA driver gave no answer that can be used",
        "run nvidia-smi there and look at its words; dmesg | grep -iE 'nvrm|xid'",
    ),
}


def look(machine: machines.Machine, *, limit_s: float = LIMIT_S, wake: bool = False, before: Optional[reading.Look] = None) -> reading.Look:
    """Never raises for what a card, a driver or a tool does. `limit_s` bounds the reading; another probe is waited for as long at most.

    `wake`: also ask cards that runtime power management has put to sleep. `before` is an earlier look, whose counters tell what held a
    card back since then.
    """
    board = _board(machine)
    try:
        found = _cards(machine, limit_s=limit_s, wake=wake)
    except errors.Problem as problem:
        kind = "silent" if problem.code == "driver-silent" else "failed"
        found = reading.Look(fault=problem.message, fault_hint=problem.hint, fault_kind=kind)
    except OSError as error:
        found = reading.Look(fault=f"the cards cannot be read: {error}", fault_kind="failed")
    cards = [_completed(machine, card, before.card(card.uuid) if before is not None and card.uuid else None) for card in found.cards]
    if kernel.is_jetson(machine):
        # The GPU of a Jetson is a device of NVML that answers nothing: its board is what is read and set.
        cards = [card for card in cards if not _says_nothing(card)]
        if not kernel.plugged(machine) and found.fault_kind in ("no-library", "no-driver"):
            found = records.replace(found, fault="", fault_hint="", fault_kind="")
    driver = found.driver or kernel.version(machine)
    return records.replace(found, cards=tuple(cards), board=board, driver=driver, epoch=epoch.current(machine))


def command(buses: Optional[Sequence[str]] = None) -> List[str]:
    """The child's words. The program lies in one folder; pynvml beside it, or where this interpreter has it."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    binding = next((path for path in [package, *sys.path] if path and os.path.isfile(os.path.join(path, "pynvml.py"))), package)
    orders = {} if buses is None else {"buses": list(buses)}
    return [sys.executable, "-I", "-S", "-c", CHILD, ":".join(dict.fromkeys((package, binding))), json.dumps(orders)]


def _cards(machine: machines.Machine, *, limit_s: float, wake: bool) -> reading.Look:
    if not kernel.is_askable(machine):
        return _fault("no-driver") if kernel.plugged(machine) and not kernel.is_jetson(machine) else reading.Look()
    known = kernel.known(machine)
    asleep = () if wake else tuple(one for one in known if kernel.is_asleep(machine, one.bus))
    awake = [one for one in known if one not in asleep]
    if asleep and not awake:
        return reading.Look(tuple(_sleeping(one) for one in asleep))
    remembered = _remembered(machine)
    if remembered is not None:
        return remembered
    found = _through_nvml(machine, [one.bus for one in awake] if asleep else None, limit_s)
    if found.fault_kind in ("no-library", "failed"):
        found = _through_smi(machine, found, awake, bool(asleep), limit_s)
    if found.fault_kind:
        found = _fault(found.fault_kind, _versions(machine) if found.fault_kind == "mismatch" else found.fault, found.source)
        _remember(machine, found)
        return found
    return records.replace(found, cards=_named(found.cards, awake) + tuple(_sleeping(one) for one in asleep))


def _through_nvml(machine: machines.Machine, buses: Optional[Sequence[str]], limit_s: float) -> reading.Look:
    """Raises `driver-silent`. A child that dies, or says what is no look, is a fault of the kind "failed"."""
    done = tool.probe(machine, command(buses), limit_s=limit_s, environment={"LD_LIBRARY_PATH": _LIBRARIES})
    try:
        found = fields.build(reading.Look, fields.document(fields.parsed(done.out or b""), "look"))
    except (ValueError, errors.Problem):
        words = done.words.splitlines()
        return reading.Look(fault=cell.printable(words[-1] if words else f"exit status {done.code}"), fault_kind="failed")
    return found


def _through_smi(
    machine: machines.Machine, first: reading.Look, awake: Sequence[kernel.Known], some_asleep: bool, limit_s: float
) -> reading.Look:
    from wattherd.power import smi

    known = {one.bus: one.uuid for one in awake}
    found = smi.look(machine, known, driver=kernel.version(machine), each=some_asleep, limit_s=limit_s)
    note = f"read through nvidia-smi, which tells no energy, since NVML cannot be read: {first.fault}"
    return found if found.fault_kind else records.replace(found, notes=(note,))


def _named(cards: Sequence[reading.Card], known: Sequence[kernel.Known]) -> Tuple[reading.Card, ...]:
    """Give a lost card the name that the kernel still knows it by, and add those that the driver no longer shows at all."""
    by_bus = {one.bus: one for one in known}
    left = [one for one in known if one.bus not in {card.bus for card in cards}]
    nameless = [card for card in cards if card.fault and not card.bus]
    found: List[reading.Card] = []
    for card in cards:
        one = by_bus.get(card.bus)
        if card in nameless and len(left) >= len(nameless):
            # Both lists are in the order of the bus, so the first unnamed one is the first that nobody told of.
            one = left.pop(0)
            nameless.remove(card)
        if one is not None and card.fault:
            card = records.replace(card, bus=one.bus, uuid=card.uuid or one.uuid, name=card.name or one.name)  # noqa: PLW2901
        found.append(card)
    gone = "the driver no longer shows it"
    return tuple(found) + tuple(reading.Card(one.uuid, one.bus, name=one.name, fault=gone) for one in left)


def _sleeping(one: kernel.Known) -> reading.Card:
    return reading.Card(one.uuid, one.bus, name=one.name, suspended=True, unknown={"draw": "it sleeps, and was not woken to be read"})


def _completed(machine: machines.Machine, card: reading.Card, before: Optional[reading.Card]) -> reading.Card:
    unknown: Dict[str, str] = dict(card.unknown)
    draw, used_mib, total_mib = card.draw, card.memory_used_mib, card.memory_total_mib
    unified = _UNIFIED.search(card.name) is not None and not total_mib and not card.fault
    if unified:
        used_mib, total_mib = (value or None for value in kernel.memory_mib(machine))
        unknown = {field: why for field, why in unknown.items() if not field.startswith("memory")}
        draw = None if draw is None else records.replace(draw, basis="the GPU part alone, not the box")
    most_w = card.limits.max_w
    if draw is not None and most_w and draw.watts > _IMPLAUSIBLE * most_w:
        unknown["draw"] = f"its sensor says {draw.watts:g} W, on a card of at most {most_w:g} W: it hangs"
        draw = None
    whole = records.replace(card, draw=draw, memory_used_mib=used_mib, memory_total_mib=total_mib, unified=unified, unknown=unknown)
    return records.replace(whole, holders=holders.completed(machine, card.holders), binding=throttle.binding(whole, before))


def _says_nothing(card: reading.Card) -> bool:
    limits = card.limits
    return card.draw is None and card.energy_mj is None and limits.enforced_w is None and limits.requested_w is None and not card.suspended


def _board(machine: machines.Machine) -> Optional[reading.Board]:
    if not kernel.is_jetson(machine):
        return None
    from wattherd.power.jetson import board

    try:
        return board.read(machine)
    except (errors.Problem, OSError) as error:
        return reading.Board(unknown={"draw": cell.printable(str(error))})


def _fault(kind: str, said: str = "", source: str = "") -> reading.Look:
    """The fault in words for people; what the driver itself said follows where it says more."""
    words, hint = _FAULTS.get(kind, _FAULTS["failed"])
    more = f": {said}" if said and kind in ("failed", "no-permission", "mismatch") else ""
    return reading.Look(source=source, fault=f"{words}{more}", fault_hint=hint, fault_kind=kind)


def _versions(machine: machines.Machine) -> str:
    loaded, library = kernel.version(machine), kernel.library_version(machine)
    return f"{loaded} is loaded, the library is {library}" if loaded and library and loaded != library else ""


def _key(machine: machines.Machine) -> str:
    return f"{epoch.current(machine)} {kernel.version(machine)} {kernel.library_version(machine)}"


def _remembered(machine: machines.Machine) -> Optional[reading.Look]:
    with contextlib.suppress(ValueError, OSError, errors.Problem):
        kept = fields.document(fields.parsed(machine.read(REMEMBERED) or b""), REMEMBERED)
        age_s = machine.now_s() - fields.number(kept, "at_s")
        if fields.text(kept, "key") == _key(machine) and 0 <= age_s < _REMEMBER_S:
            return fields.build(reading.Look, fields.document(kept.get("look"), "look"))
    return None


def _remember(machine: machines.Machine, found: reading.Look) -> None:
    """Only what no new question mends: driver and library stay of two versions until a reboot or a reload, which change the key."""
    if found.fault_kind != "mismatch" or not epoch.current(machine):
        return
    body = {"key": _key(machine), "at_s": machine.now_s(), "look": fields.plain(found)}
    with contextlib.suppress(OSError, errors.Problem):
        machine.write(REMEMBERED, json.dumps(body).encode(), mode=0o600)
