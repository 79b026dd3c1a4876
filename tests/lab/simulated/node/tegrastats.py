#!/usr/bin/python3
"""tegrastats of the simulated board: one line an interval, in the form of its own JetPack (samples in facts/power.md, e)."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any, Dict, TextIO

sys.path.insert(0, "/usr/lib/lab-gpu")

import lab_board

_MEBI = 1024


def memory() -> str:
    rows = {}
    with open("/proc/meminfo", encoding="ascii") as stream:
        for line in stream:
            name, _, rest = line.partition(":")
            rows[name] = int(rest.split()[0]) // _MEBI
    swap = rows.get("SwapTotal", 0)
    used = rows["MemTotal"] - rows["MemAvailable"]
    return f"RAM {used}/{rows['MemTotal']}MB (lfb 4x4MB) SWAP {swap - rows.get('SwapFree', 0)}/{swap}MB (cached 0MB)"


def milliwatts(rail: Dict[str, Any]) -> int:
    """From the chip that measures it."""
    folder, number = rail["folder"], rail["number"]
    if rail["kind"] == "iio":
        return lab_board.number(f"{folder}/in_power{number}_input")
    if rail["kind"] == "power":
        return lab_board.number(f"{folder}/power{number}_input") // 1000
    return lab_board.number(f"{folder}/in{number}_input") * lab_board.number(f"{folder}/curr{number}_input") // 1000


class Line:
    """The average of each rail runs since the start, as the real one's does, and so does the peak."""

    def __init__(self, this: Dict[str, Any]) -> None:
        self.this = this
        self.sums: Dict[str, int] = {}
        self.peaks: Dict[str, int] = {}
        self.count = 0

    def make(self) -> str:
        self.count += 1
        new = self.this["jetpack"] >= 5
        clock = lab_board.number(self.this["policies"][0] + "/scaling_cur_freq") // 1000
        cpus = ",".join(f"0%@{clock}" for _ in range(self.this["cpus"]))
        words = [time.strftime("%m-%d-%Y %H:%M:%S")] if new else []
        words += [memory(), f"CPU [{cpus}]", self.graphics(), self.temperatures() if new else "CPU@30C PMIC@100C GPU@30.5C"]
        return " ".join(words + [self.rail(rail) for rail in self.this["rails"]])

    def graphics(self) -> str:
        load = lab_board.number(self.this["load"]) // 10 if self.this["load"] else 0
        clock = lab_board.number(self.this["gpu"] + "/cur_freq") // 1000000
        if self.this["jetpack"] < 5:
            return f"EMC_FREQ 0% GR3D_FREQ {load}%@{clock}"
        if self.this["jetpack"] < 7:
            return f"EMC_FREQ 0%@2133 GR3D_FREQ {load}%@[{clock}]"
        return f"EMC_FREQ @4266 GR3D_FREQ @[{clock},{clock},{clock}]"

    def temperatures(self) -> str:
        return " ".join(f"{name}@{lab_board.number(self.this['zones'][name]) / 1000:.3f}C" for name in ("cpu", "gpu", "tj"))

    def rail(self, rail: Dict[str, Any]) -> str:
        now, name = milliwatts(rail), rail["name"]
        self.sums[name] = self.sums.get(name, 0) + now
        self.peaks[name] = max(self.peaks.get(name, 0), now)
        values = [now, self.sums[name] // self.count] + ([self.peaks[name]] if self.this["triples"] else [])
        unit = "mW" if self.this["jetpack"] >= 5 else ""
        return f"{name} {'/'.join(f'{value}{unit}' for value in values)}"


def run(target: TextIO, interval_s: float) -> None:
    line = Line(lab_board.board())
    while True:
        target.write(line.make() + "\n")
        target.flush()
        time.sleep(interval_s)


def option(name: str, default: str) -> str:
    words = sys.argv[1:]
    return words[words.index(name) + 1] if name in words[:-1] else default


def main() -> int:
    if "--stop" in sys.argv:
        return 0
    interval_s = int(option("--interval", "1000")) / 1000
    log = option("--logfile", "")
    if not log:
        run(sys.stdout, interval_s)
        return 0
    with open(log, "a", encoding="utf-8") as stream:
        run(stream, interval_s)
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        sys.exit(main())
