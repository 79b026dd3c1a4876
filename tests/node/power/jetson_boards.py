"""The Jetson boards of the field (tests/cases/boards.yaml), and a board's conf and rails as files."""

from __future__ import annotations

import functools
import pathlib
from dataclasses import dataclass

import yaml

from tests.node import strict

_FILE = pathlib.Path(__file__).parents[2] / "cases" / "boards.yaml"


@dataclass(frozen=True)
class Kind:
    id: str
    modes: tuple[tuple[str, int], ...]
    default: int
    rails: tuple[str, ...]
    samples: tuple[str, ...]

    @property
    def conf(self) -> str:
        models = "".join(f"< POWER_MODEL ID={number} NAME={name} >\nGPU MIN_FREQ 0\n\n" for name, number in self.modes)
        parameters = "< PARAM TYPE=FILE NAME=CPU_ONLINE >\nCORE_0 /sys/devices/system/cpu/cpu0/online\n\n"
        return f"# Copyright\n{parameters}{models}< PM_CONFIG DEFAULT={self.default} >\n"


@functools.cache
def kinds() -> tuple[Kind, ...]:
    rows = yaml.safe_load(_FILE.read_text())["boards"]
    return tuple(
        Kind(
            row["id"],
            tuple((mode["name"], mode["id"]) for mode in row["modes"]),
            row["default_mode"],
            tuple(row["rails"]),
            tuple(row["tegrastats"]),
        )
        for row in rows
    )


def kind(name: str) -> Kind:
    return next(one for one in kinds() if one.id == name)


def hwmon(bench: strict.Bench, number: int, rails: dict[str, tuple[int, int]], *, at: str = "1-0040") -> str:
    """An INA3221 as JetPack 5 and later show it: label -> (millivolts, milliamperes). Gives its folder."""
    folder = f"/sys/bus/i2c/drivers/ina3221/{at}/hwmon/hwmon{number}"
    bench.put(f"{folder}/name", "ina3221\n")
    for channel, (label, (millivolts, milliamperes)) in enumerate(rails.items(), start=1):
        bench.put(f"{folder}/in{channel}_label", f"{label}\n")
        bench.put(f"{folder}/in{channel}_input", f"{millivolts}\n")
        bench.put(f"{folder}/curr{channel}_input", f"{milliamperes}\n")
    bench.put(f"{folder}/in7_label", "sum of shunt voltages\n")
    bench.put(f"{folder}/in7_input", "33050\n")
    return folder


def iio(bench: strict.Bench, device: int, rails: dict[str, tuple[int, int]], *, at: str = "6-0040", power: bool = True) -> str:
    """An INA3221 as JetPack 4 shows it, with channels from 0; `power` False leaves the milliwatts out."""
    folder = f"/sys/bus/i2c/drivers/ina3221x/{at}/iio:device{device}"
    for channel, (label, (millivolts, milliamperes)) in enumerate(rails.items()):
        bench.put(f"{folder}/rail_name_{channel}", f"{label}\n")
        bench.put(f"{folder}/in_voltage{channel}_input", f"{millivolts}\n")
        bench.put(f"{folder}/in_current{channel}_input", f"{milliamperes}\n")
        if power:
            bench.put(f"{folder}/in_power{channel}_input", f"{round(millivolts * milliamperes / 1000)}\n")
    return folder


def broken(bench: strict.Bench, path: str) -> None:
    """A file of sysfs that is there and gives an error when it is read."""
    real = pathlib.Path(bench.machine.path(path))
    real.unlink(missing_ok=True)
    real.mkdir(parents=True)
