"""The graphics cards of this node and what is cheap to know of them: names from the driver, capability by name, the rest asked once.

A `hello` must not wake a card, so nvidia-smi runs once for a set of cards and a driver; its words are kept in Wattherd's own cache.
On a Jetson the device tree names the chip; its nvidia-smi says nothing useful before JetPack 7. Unknown stays unknown.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from wattherd import errors, records
from wattherd import machine as machines
from wattherd.records import dataclass
from wattherd.resources import driver
from wattherd.wire import facts, fields

MEMORY = "/var/cache/wattherd/cards.json"
_PROC = "/proc/driver/nvidia"
_PCI = "/sys/bus/pci/devices"
#: A card without persistence is initialised for the question; more than this no `hello` waits.
_SMI_LIMIT_S = 20.0
_COLUMNS = ("pci.bus_id", "compute_cap", "memory.total", "power.min_limit", "power.max_limit", "power.default_limit")
_DEVICE_TREES = ("/proc/device-tree", "/sys/firmware/devicetree/base")
#: Chips whose nvidia-smi is missing or a stub.
_NO_SMI = ("tegra210", "tegra186", "tegra194", "tegra234")
#: Names that leave no doubt, in the driver's words without "NVIDIA" and "Tesla" in front.
_CAPABILITIES: Tuple[Tuple[str, str], ...] = (
    (r"(P40|P4)\b", "6.1"),
    (r"P100\b", "6.0"),
    (r"(GeForce )?GTX 10[5-8]0\b|TITAN Xp\b|Quadro P[2456]000\b", "6.1"),
    (r"V100\b|TITAN V\b|Quadro GV100\b", "7.0"),
    (r"T4G?\b|(GeForce )?RTX 20[678]0\b|(GeForce )?GTX 16[56]0\b|TITAN RTX\b|Quadro RTX [34568]000\b", "7.5"),
    (r"(A100|A800|A30)\b", "8.0"),
    (r"(GeForce )?RTX 30[5-9]0\b|RTX A[2-6][05]00\b|RTX A(400|1000)\b|(A2|A10|A10G|A16|A40)\b", "8.6"),
    (r"(GeForce )?RTX 40[5-9]0\b|RTX \d{4}( SFF)? Ada\b|(L4|L20|L40S?)\b", "8.9"),
    (r"(H100|H800|H200|H20|GH200)\b", "9.0"),
    (r"(B200|GB200)\b", "10.0"),
    (r"(B300|GB300)\b", "10.3"),
    (r"(GeForce )?RTX 50[5-9]0\b|RTX PRO \d+ Blackwell\b", "12.0"),
    (r"GB10\b", "12.1"),
)


@dataclass(frozen=True)
class Said:
    """What nvidia-smi said of one card; "", 0 and None where it said N/A. The watts are what its power limit may be."""

    compute_capability: str = ""
    memory_mib: int = 0
    power_min_w: Optional[float] = None
    power_max_w: Optional[float] = None
    power_default_w: Optional[float] = None


def soc(machine: machines.Machine) -> str:
    """A Jetson's chip ("tegra234"), the most exact name of the device tree; empty on everything else."""
    found = re.findall(r"nvidia,(tegra\d{3})(?=\0|$)", device_tree(machine, "compatible"))
    return found[0] if found else ""


def device_tree(machine: machines.Machine, name: str) -> str:
    """A text of the device tree; /proc/device-tree is the kernel's link to the other place, and may be missing in a container."""
    return next((text for text in (machine.text(f"{folder}/{name}") for folder in _DEVICE_TREES) if text), "")


def found(machine: machines.Machine) -> Tuple[facts.Gpu, ...]:
    """Cards that the driver has, then those of the bus that it does not have (or all, where no driver is loaded)."""
    cards = _driven(machine)
    cards += [one for one in _plugged(machine) if one.bus not in {card.bus for card in cards}]
    cards = [records.replace(card, compute_capability=capability(card.name)) for card in cards]
    if not any(card.name for card in cards) or soc(machine) in _NO_SMI:
        return tuple(cards)
    said = _remembered(machine, cards)
    return tuple(_completed(card, said.get(card.bus)) for card in cards)


def capability(name: str) -> str:
    """By a name that leaves no doubt; empty for any other."""
    short = re.sub(r"^(NVIDIA |Tesla )+", "", name)
    return next((value for pattern, value in _CAPABILITIES if re.match(pattern, short)), "")


def _driven(machine: machines.Machine) -> List[facts.Gpu]:
    folder = f"{_PROC}/gpus"
    cards: List[facts.Gpu] = []
    for bus in machine.names(folder):
        text = machine.text(f"{folder}/{bus}/information")
        pairs = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
        uuid = pairs.get("GPU UUID", "")
        cards.append(facts.Gpu(bus, "nvidia", pairs.get("Model", ""), "" if "?" in uuid else uuid))
    return cards


def _plugged(machine: machines.Machine) -> List[facts.Gpu]:
    """NVIDIA's display and 3D controllers on the PCI bus: a card without a driver is a card all the same."""
    cards: List[facts.Gpu] = []
    for bus in machine.names(_PCI):
        if machine.text(f"{_PCI}/{bus}/vendor").strip() != "0x10de":
            continue
        if machine.text(f"{_PCI}/{bus}/class").startswith(("0x0300", "0x0302")):
            cards.append(facts.Gpu(bus, "nvidia"))
    return cards


def _completed(card: facts.Gpu, said: Optional[Said]) -> facts.Gpu:
    if said is None:
        return card
    return records.replace(
        card,
        compute_capability=said.compute_capability or card.compute_capability,
        memory_mib=said.memory_mib or card.memory_mib,
        power_min_w=said.power_min_w,
        power_max_w=said.power_max_w,
        power_default_w=said.power_default_w,
    )


def _remembered(machine: machines.Machine, cards: List[facts.Gpu]) -> Mapping[str, Said]:
    """By bus. Asked anew for another driver, other cards or columns; what was not told is asked again at the next boot."""
    key = f"{' '.join(_COLUMNS)} {driver.version(machine)} " + " ".join(f"{card.bus}={card.uuid}" for card in cards)
    boot = machine.boot_id()
    with contextlib.suppress(ValueError, errors.Problem, OSError):
        kept = fields.document(fields.parsed(machine.read(MEMORY) or b""), MEMORY)
        rows = fields.document(kept.get("cards"), "cards")
        if kept.get("key") == key and (all(card.bus in rows for card in cards) or kept.get("boot") == boot):
            return {bus: fields.build(Said, fields.document(row, bus)) for bus, row in rows.items()}
    said = _ask(machine, cards)
    if machine.is_dir("/var/cache/wattherd"):
        body = {"key": key, "boot": boot, "cards": {bus: fields.plain(row) for bus, row in said.items()}}
        with contextlib.suppress(OSError, errors.Problem):
            machine.write(MEMORY, json.dumps(body, sort_keys=True).encode(), mode=0o600)
    return said


def _ask(machine: machines.Machine, cards: Sequence[facts.Gpu]) -> Dict[str, Said]:
    """All cards at once; where one of them is lost, which ends the answer for all, each for itself. A driver that hangs says nothing."""
    from wattherd.power import described, query

    if machine.which("nvidia-smi") is None:
        return {}
    version = driver.version(machine)
    try:
        rows, done = query.rows(machine, _COLUMNS, driver=version, limit_s=_SMI_LIMIT_S)
        lost = {one.bus for one in described.lost(done.words)} if not rows else set()
        for card in cards if lost else ():
            if card.bus not in lost:
                rows += query.rows(machine, _COLUMNS, driver=version, card=card.uuid or card.bus, limit_s=_SMI_LIMIT_S)[0]
    except errors.Problem:
        return {}
    return parse(rows)


def parse(rows: Sequence[Mapping[str, str]]) -> Dict[str, Said]:
    """nvidia-smi's rows by the bus as the kernel writes it. A cell that is no number is N/A in one of its many spellings."""
    from wattherd.power import cell

    said: Dict[str, Said] = {}
    for row in rows:
        bus, cap = cell.bus(row.get("pci.bus_id", "")), row.get("compute_cap", "")
        if bus:
            said[bus] = Said(
                cap if re.match(r"\d{1,2}\.\d\Z", cap) else "",
                cell.whole(row.get("memory.total", "")) or 0,
                cell.number(row.get("power.min_limit", "")),
                cell.number(row.get("power.max_limit", "")),
                cell.number(row.get("power.default_limit", "")),
            )
    return said
