"""A Jetson as it is now, read once: mode, clocks, fan, and what its rails draw. Whatever cannot be read is unknown and says why."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional, Tuple

from wattherd import machine as machines
from wattherd.power import reading
from wattherd.power.jetson import clocks, conf, fan, nvpmodel, pending, rails, tegrastats, tools, totals
from wattherd.records import dataclass, field

_ZONES = "/sys/class/thermal"
#: The GPU's own count of its load, in per mille, by release; a Thor has none.
_LOADS = (
    "/sys/devices/gpu.0/load",
    "/sys/devices/platform/gpu.0/load",
    "/sys/devices/platform/17000000.gpu/load",
    "/sys/devices/platform/bus@0/17000000.gpu/load",
)
NOT_MEASURED = "this board's power cannot be measured by itself: a wall meter can"


@dataclass(frozen=True)
class Drawn:
    """What the rails say, from sysfs or from tegrastats. `why` where there is no draw."""

    draw: Optional[reading.Draw] = None
    rails_w: Mapping[str, float] = field(default_factory=dict)
    why: str = ""
    sample: Optional[tegrastats.Sample] = None


def read(machine: machines.Machine) -> Optional[reading.Board]:
    """None where this is no Jetson. Never raises: a tool that is missing or silent leaves its field unknown, with the reason."""
    if not tools.is_jetson(machine):
        return None
    unknown: Dict[str, str] = {}
    modes, current = conf.read(machine), nvpmodel.query(machine)
    mode = modes.numbered(current.number)
    notes = list(current.notes)
    if mode is not None:
        notes += [words for words in (nvpmodel.loose(machine, modes, mode),) if words]
    if current.number is None:
        unknown["mode"] = current.fault
    if not modes.modes:
        unknown["modes"] = f"{conf.CONF} is missing or names no mode"
    pinned, profile = clocks.pinned(machine), fan.profile(machine, current)
    if pinned is None:
        unknown["pinned"] = "neither the clocks' files nor jetson_clocks tell"
    if not profile:
        unknown["fan"] = (
            "no fan profile is set, or it could not be read" if fan.profiles(machine, current) else "this board has no fan profiles"
        )
    drawn = draw(machine)
    if drawn.draw is None:
        unknown["draw"] = drawn.why
    default = modes.numbered(modes.default)
    return reading.Board(
        name=tools.name(machine),
        mode=current.name,
        mode_id=current.number,
        modes=modes.numbers,
        default_mode=default.name if default else "",
        pending_mode=pending.mode(machine),
        pinned=pinned,
        fan=profile,
        draw=drawn.draw,
        rails_w=drawn.rails_w,
        unknown=unknown,
        notes=tuple(notes),
        **_gpu(machine, drawn.sample, unknown),
        temperature_c=_temperature_c(machine, drawn.sample),
    )


def draw(machine: machines.Machine) -> Drawn:
    """From the rails in sysfs; one line of tegrastats where they do not make a total. Never 0 W for a board that does not tell."""
    found = rails.read(machine)
    total = totals.total(found.watts)
    if total is not None:
        return Drawn(_draw(total, found.source.get(total.rails[0], "ina3221")), found.watts)
    sample = tegrastats.sample(machine)
    total = totals.total(sample.rails_w) if sample else None
    if sample is not None and total is not None:
        return Drawn(_draw(total, "tegrastats"), sample.rails_w, sample=sample)
    return Drawn(rails_w=found.watts or (sample.rails_w if sample else {}), why=_why(found, sample), sample=sample)


def _draw(total: totals.Total, source: str) -> reading.Draw:
    """The chips average over a few conversions, milliseconds: as good as an instant. A sum is of readings one after the other."""
    return reading.Draw(total.watts, "instant" if len(total.rails) == 1 else "total", source, basis=total.basis)


def _why(found: rails.Rails, sample: Optional[tegrastats.Sample]) -> str:
    if found.unread:
        return f"its rail {found.unread[0]} gives an error, and without it there is no total"
    watts = found.watts or (sample.rails_w if sample else {})
    names = list(watts)
    if names and not any(value > 0 for value in watts.values()):
        return f"its rails ({', '.join(names)}) all read 0 W, which no running board draws"
    if names:
        return f"how its rails ({', '.join(names)}) add up is not known for this board"
    return f"it shows no power rails. {NOT_MEASURED}"


def _gpu(machine: machines.Machine, sample: Optional[tegrastats.Sample], unknown: Dict[str, str]) -> Dict[str, Optional[int]]:
    """Load in per cent and clocks in MHz, from sysfs, else from the line of tegrastats that was read anyway."""
    folder = clocks.gpu(machine)
    now, most = (tools.number(machine, f"{folder}/{name}") if folder else None for name in ("cur_freq", "max_freq"))
    load = next((value for value in (tools.number(machine, path) for path in _LOADS) if value is not None), None)
    percent = round(load / 10) if load is not None else sample.gpu_load_percent if sample else None
    if percent is None:
        unknown["gpu_load_percent"] = "this board does not tell the GPU's load"
    return {
        "gpu_load_percent": percent,
        "gpu_mhz": now // 1_000_000 if now is not None else sample.gpu_mhz if sample else None,
        "gpu_max_mhz": most // 1_000_000 if most is not None else None,
    }


def _temperature_c(machine: machines.Machine, sample: Optional[tegrastats.Sample]) -> Optional[float]:
    """The junction where the board has one (`tj`), else the hotter of CPU and GPU. Placeholders and unused sensors are none."""
    zones: List[Tuple[str, float]] = []
    for zone in machine.names(_ZONES):
        value = tools.number(machine, f"{_ZONES}/{zone}/temp") if zone.startswith("thermal_zone") else None
        if value is not None and value > -200_000:
            zones.append((tools.text(machine, f"{_ZONES}/{zone}/type").lower(), value / 1000))
    found = zones or [(name.lower(), value) for name, value in (sample.temperatures_c if sample else {}).items()]
    junction = [value for name, value in found if name.startswith("tj")]
    chip = [value for name, value in found if re.match(r"[mb]?cpu|gpu", name)]
    return max(junction or chip, default=None)
