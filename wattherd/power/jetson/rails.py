"""The rails of a Jetson from sysfs: INA3221 under iio (JetPack 4) and hwmon (5 and later), and the INA238 on a Thor's carrier.

A few small files, no program. A channel that is off answers with an error, and that is no fault.
"""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, Mapping, Optional, Tuple

from wattherd import machine as machines
from wattherd.power.jetson import tools
from wattherd.records import dataclass, field

_IIO = "/sys/bus/i2c/drivers/ina3221x"
_INA3221 = "/sys/bus/i2c/drivers/ina3221"
_HWMON = "/sys/class/hwmon"
#: A Thor's carrier measures the board's input with one channel; tegrastats calls it by this name.
_INA238_RAIL = "VIN"
#: Labels that are no rail: a channel without a wire, and in7 of the INA3221.
_NO_RAIL = re.compile(r"(?i)NC\Z|sum of shunt|\Z")


@dataclass(frozen=True)
class Rails:
    """Watts by the board's own names; `unread` are rails that are there and gave an error; `source` is the chip: ina3221, ina238."""

    watts: Mapping[str, float] = field(default_factory=dict)
    unread: Tuple[str, ...] = ()
    source: Mapping[str, str] = field(default_factory=dict)


def read(machine: machines.Machine) -> Rails:
    watts: Dict[str, float] = {}
    source: Dict[str, str] = {}
    unread: List[str] = []
    for chip, name, drawn in _channels(machine):
        if _NO_RAIL.match(name):
            continue
        if drawn is None:
            unread.append(name)
        elif name not in watts:
            watts[name], source[name] = drawn, chip
    return Rails(watts, tuple(name for name in unread if name not in watts), source)


def _channels(machine: machines.Machine) -> Iterator[Tuple[str, str, Optional[float]]]:
    """Chip, label, watts (None is an error of that channel)."""
    for folder in _devices(machine, _IIO, "iio:device"):
        for number in _numbers(machine, folder, r"rail_name_(\d+)\Z"):
            name = tools.text(machine, f"{folder}/rail_name_{number}")
            yield "ina3221", name, _iio_w(machine, folder, number)
    for chip, folder in _monitors(machine):
        if chip == "ina238":
            yield chip, tools.text(machine, f"{folder}/power1_label") or _INA238_RAIL, _power_w(machine, folder, 1)
            continue
        # Only what has a current is a rail: in4 and later are voltages over shunts, and their sum.
        for number in _numbers(machine, folder, r"curr(\d+)_input\Z"):
            yield chip, tools.text(machine, f"{folder}/in{number}_label"), _power_w(machine, folder, number)


def _monitors(machine: machines.Machine) -> Iterator[Tuple[str, str]]:
    """hwmon folders by chip. Their numbers change from boot to boot; the same one may be reached by two ways."""
    met = set()
    for folder in _devices(machine, _INA3221, "hwmon"):
        met.add(folder.rpartition("/")[2])
        yield "ina3221", folder
    for name in machine.names(_HWMON):
        chip = tools.text(machine, f"{_HWMON}/{name}/name")
        if name not in met and chip in {"ina3221", "ina238"}:
            yield chip, f"{_HWMON}/{name}"


def _devices(machine: machines.Machine, driver: str, kind: str) -> Iterator[str]:
    """Folders of the driver's devices: `1-0040/hwmon/hwmon3`, `6-0040/iio:device0`."""
    for device in machine.names(driver):
        if re.match(r"\d+-[0-9a-f]{4}\Z", device):
            parent = f"{driver}/{device}/hwmon" if kind == "hwmon" else f"{driver}/{device}"
            yield from (f"{parent}/{name}" for name in machine.names(parent) if name.startswith(kind))


def _numbers(machine: machines.Machine, folder: str, pattern: str) -> List[int]:
    return sorted(int(found.group(1)) for found in (re.match(pattern, name) for name in machine.names(folder)) if found)


def _iio_w(machine: machines.Machine, folder: str, number: int) -> Optional[float]:
    """Milliwatts; where that file is missing, millivolts times milliamperes."""
    power = tools.number(machine, f"{folder}/in_power{number}_input")
    if power is not None:
        return power / 1000
    return _product_w(
        tools.number(machine, f"{folder}/in_voltage{number}_input"), tools.number(machine, f"{folder}/in_current{number}_input")
    )


def _power_w(machine: machines.Machine, folder: str, number: int) -> Optional[float]:
    """Microwatts (INA238); the INA3221 has no such file: millivolts times milliamperes."""
    power = tools.number(machine, f"{folder}/power{number}_input")
    if power is not None:
        return power / 1_000_000
    return _product_w(tools.number(machine, f"{folder}/in{number}_input"), tools.number(machine, f"{folder}/curr{number}_input"))


def _product_w(millivolts: Optional[int], milliamperes: Optional[int]) -> Optional[float]:
    if millivolts is None or milliamperes is None:
        return None
    return millivolts * milliamperes / 1_000_000
