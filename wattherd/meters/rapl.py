"""RAPL: energy counters of a CPU package, its memory, or the whole platform, under /sys/class/powercap. Microjoules that wrap.

A package holds its cores and its graphics; the platform (psys) holds the packages: zones are chosen, never summed. Zen has the same names
and no memory zone; virtual machines, containers and ARM have none at all.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from wattherd import machine as machines
from wattherd.records import dataclass

FOLDER = "/sys/class/powercap"
_ZONE = re.compile(r"intel-rapl:\d+(?::\d+)?\Z")
#: No package of today draws more for long. A counter that says so has jumped; a time in which it could wrap twice tells nothing.
MOST_W = 500.0


@dataclass(frozen=True)
class Zone:
    """`path` as the kernel numbers it (intel-rapl:0:2), `name` package-0, core, uncore, dram, psys; `range_uj` is where it wraps.

    `energy_uj` None: it may not be read (root alone, since 5.10), or the zone is off.
    """

    path: str
    name: str
    energy_uj: Optional[int] = None
    range_uj: Optional[int] = None


def read(machine: machines.Machine, folder: str = FOLDER) -> Tuple[Zone, ...]:
    """All zones there are. An error in one leaves its figure unknown."""
    zones: List[Zone] = []
    for path in machine.names(folder):
        if not _ZONE.match(path):
            continue
        name = _text(machine, f"{folder}/{path}/name")
        energy = _number(machine, f"{folder}/{path}/energy_uj")
        if name:
            zones.append(Zone(path, name, energy, _number(machine, f"{folder}/{path}/max_energy_range_uj")))
    return tuple(zones)


def chosen(zones: Sequence[Zone], *, trust_psys: bool = False) -> Tuple[Zone, ...]:
    """Those that together are the host's figure, each joule once: psys alone where it is trusted, else packages and their memory.

    Many boards wire psys to nothing, so it is trusted only by who knows the board. Empty where no package can be read.
    """
    platform = [zone for zone in zones if zone.name == "psys" and zone.energy_uj is not None]
    if trust_psys and platform:
        return (platform[0],)
    packages = [zone for zone in zones if zone.name.startswith("package")]
    if not packages or any(zone.energy_uj is None for zone in packages):
        return ()
    memory = [zone for zone in zones if zone.name == "dram" and zone.energy_uj is not None]
    return (*packages, *memory)


def joules(before: Zone, after: Zone, seconds_s: float, *, most_w: float = MOST_W) -> Optional[float]:
    """What one zone used between two readings; None where that cannot be known.

    A counter that went back has wrapped once, at `max_energy_range_uj`. Nothing is made up where that figure is missing, where it might
    have wrapped more than once in that time (at `most_w`, the most that the zone can draw), or where it says more than it can have.
    """
    if before.energy_uj is None or after.energy_uj is None or seconds_s <= 0:
        return None
    longest_s = seconds_to_wrap_s(after, most_w)
    if longest_s is None:
        # Without the range nobody knows where it wraps: only a plain step forward counts.
        if after.energy_uj < before.energy_uj:
            return None
    elif seconds_s >= longest_s or max(before.energy_uj, after.energy_uj) > (after.range_uj or 0):
        return None
    used_uj = after.energy_uj - before.energy_uj
    used = (used_uj if used_uj >= 0 else used_uj + (after.range_uj or 0)) / 1_000_000
    return used if used <= most_w * seconds_s else None


def seconds_to_wrap_s(zone: Zone, watts: float) -> Optional[float]:
    """How far apart two readings may be at most, at that power: 44 minutes at 100 W for a range of 262 kJ. None where it is unknown."""
    return zone.range_uj / 1_000_000 / watts if zone.range_uj and watts > 0 else None


def total_joules(before: Sequence[Zone], after: Sequence[Zone], seconds_s: float, *, trust_psys: bool = False) -> Optional[float]:
    """The host's figure between two readings of all zones; None as soon as one of its zones does not tell."""
    old: Mapping[str, Zone] = {zone.path: zone for zone in before}
    found: Dict[str, float] = {}
    for zone in chosen(after, trust_psys=trust_psys):
        used = joules(old[zone.path], zone, seconds_s) if zone.path in old else None
        if used is None:
            return None
        found[zone.path] = used
    return sum(found.values()) if found else None


def _text(machine: machines.Machine, path: str) -> str:
    try:
        return machine.text(path).strip()
    except OSError:
        return ""


def _number(machine: machines.Machine, path: str) -> Optional[int]:
    found = _text(machine, path)
    return int(found) if re.match(r"\d{1,20}\Z", found) else None
