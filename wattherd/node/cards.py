"""The graphics cards of this node and what is cheap to know of them: names from the driver, capability by name, memory asked once.

A `hello` must not wake a card, so nvidia-smi runs once for a set of cards and a driver; its words are kept in Wattherd's own cache.
On a Jetson the device tree names the chip; its nvidia-smi says nothing useful before JetPack 7. Unknown stays unknown.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Dict, List, Mapping, Optional, Tuple

from wattherd import errors, records
from wattherd import machine as machines
from wattherd.records import dataclass
from wattherd.resources import driver
from wattherd.wire import facts, fields

MEMORY = "/var/cache/wattherd/cards.json"
_PROC = "/proc/driver/nvidia"
_PCI = "/sys/bus/pci/devices"
_SMI_LIMIT_S = 20.0
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
    """What nvidia-smi said of one card; "" and 0 where it said N/A."""

    compute_capability: str = ""
    memory_mib: int = 0


def soc(machine: machines.Machine) -> str:
    """A Jetson's chip ("tegra234"), the most exact name of the device tree; empty on everything else."""
    found = re.findall(r"nvidia,(tegra\d{3})(?=\0|$)", machine.text("/proc/device-tree/compatible"))
    return found[0] if found else ""


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
        card, compute_capability=said.compute_capability or card.compute_capability, memory_mib=said.memory_mib or card.memory_mib
    )


def _remembered(machine: machines.Machine, cards: List[facts.Gpu]) -> Mapping[str, Said]:
    """By bus. Asked anew for another driver or other cards; a failure counts until the next boot, since each costs seconds."""
    key = f"{driver.version(machine)} " + " ".join(f"{card.bus}={card.uuid}" for card in cards)
    boot = machine.text("/proc/sys/kernel/random/boot_id").strip()
    with contextlib.suppress(ValueError, errors.Problem, OSError):
        kept = fields.document(json.loads(machine.read(MEMORY) or b""), MEMORY)
        rows = fields.document(kept.get("cards"), "cards")
        if kept.get("key") == key and (rows or kept.get("boot") == boot):
            return {bus: fields.build(Said, fields.document(row, bus)) for bus, row in rows.items()}
    said = _ask(machine)
    if machine.is_dir("/var/cache/wattherd"):
        body = {"key": key, "boot": boot, "cards": {bus: fields.plain(row) for bus, row in said.items()}}
        with contextlib.suppress(OSError, errors.Problem):
            machine.write(MEMORY, json.dumps(body, sort_keys=True).encode(), mode=0o600)
    return said


def _ask(machine: machines.Machine) -> Dict[str, Said]:
    if machine.which("nvidia-smi") is None:
        return {}
    for keys in ("pci.bus_id,compute_cap,memory.total", "pci.bus_id,memory.total"):  # drivers before 510 do not know compute_cap
        done = machine.run(["nvidia-smi", f"--query-gpu={keys}", "--format=csv,noheader,nounits"], timeout_s=_SMI_LIMIT_S)
        if done.code == 0:
            return parse(done.text)
        if done.code == 124:
            break
    return {}


def parse(text: str) -> Dict[str, Said]:
    """nvidia-smi's rows by the bus as the kernel writes it. A cell that is no number is N/A in one of its many spellings."""
    said: Dict[str, Said] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        place = re.match(r"(?:[0-9A-Fa-f]{4})?([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\Z", cells[0])
        if place and len(cells) in (2, 3):
            cap = cells[1] if len(cells) == 3 and re.match(r"\d{1,2}\.\d\Z", cells[1]) else ""
            said[place.group(1).lower()] = Said(cap, int(cells[-1]) if cells[-1].isdigit() else 0)
    return said
