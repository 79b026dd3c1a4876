"""tegrastats: one line of it, as every JetPack from 4 to 7 prints it. The fallback where the rails cannot be read from sysfs.

The second figure of a rail is an average since the program began, the third a peak: only the first is what is drawn now.
"""

from __future__ import annotations

import re
from typing import Mapping, Optional

from wattherd import machine as machines
from wattherd.power.jetson import tools
from wattherd.records import dataclass, field

#: It prints for ever. Long enough for a line or two, and its end is certain: TERM, then KILL.
_ARGV = ("timeout", "-k", "1", "2", "tegrastats", "--interval", "500")
_LIMIT_S = 8.0
#: `VDD_IN 5297/5297` (mW), `VDD_IN 17946mW/15710mW`, `VIN 124486mW/36487mW/124486mW`; RAM 6982/7620MB is none.
_RAIL = re.compile(r"(?<!\S)([A-Za-z]\w*) (-?\d+)(?:mW)?/-?\d+(?:mW)?(?:/-?\d+(?:mW)?)?(?!\S)")
#: `GPU@37.5C`, and `tj@66.625C/66.625C` (now, peak).
_WARMTH = re.compile(r"(?<!\S)([A-Za-z]\w*)@(-?\d+(?:\.\d+)?)C(?:/\S+)?(?!\S)")
#: `GR3D_FREQ 84%@[713]`, `87%@[1574,1574,1574]`, `0%@114`, `0%`; idle on a Thor, and without root, there is no load: `@[1574,…]`.
_GPU = re.compile(r"(?<!\S)GR3D_FREQ (?:(\d+)%)?(?:@\[?(\d+)[\d,]*\]?)?(?!\S)")
#: What an unused sensor reads.
_NO_SENSOR_C = -256.0


@dataclass(frozen=True)
class Sample:
    """Watts by rail, degrees Celsius by sensor, the GPU's load in per cent and its clock in MHz; None and absent are unknown."""

    rails_w: Mapping[str, float] = field(default_factory=dict)
    temperatures_c: Mapping[str, float] = field(default_factory=dict)
    gpu_load_percent: Optional[int] = None
    gpu_mhz: Optional[int] = None


def parse(line: str) -> Sample:
    """One line. Words that nobody knows yet are passed over."""
    rails = {name: int(watts) / 1000 for name, watts in _RAIL.findall(line)}
    # The PMIC's figure is a placeholder (100 or 50, never anything else).
    warmth = {name: float(degrees) for name, degrees in _WARMTH.findall(line) if name.upper() != "PMIC"}
    gpu = _GPU.search(line)
    return Sample(
        rails_w=rails,
        temperatures_c={name: degrees for name, degrees in warmth.items() if degrees > _NO_SENSOR_C},
        gpu_load_percent=int(gpu.group(1)) if gpu and gpu.group(1) else None,
        gpu_mhz=int(gpu.group(2)) if gpu and gpu.group(2) else None,
    )


def sample(machine: machines.Machine) -> Optional[Sample]:
    """One line from the tool, or None where it is missing or says nothing in time."""
    if not tools.has(machine, "tegrastats"):
        return None
    lines = [line for line in tools.run(machine, _ARGV, limit_s=_LIMIT_S).text.splitlines() if "RAM " in line]
    return parse(lines[0]) if lines else None
