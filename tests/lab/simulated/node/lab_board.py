"""The simulated Jetson as its tools see it: /var/lib/lab-gpu/board.json says what it is, the files under /sys are what it does.

Runs on the node, on its own Python: standard library only.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any, Dict, Optional, Tuple, cast

Settings = Dict[Tuple[str, str], str]

HOME = "/var/lib/lab-gpu"
LIVE = HOME + "/live/sys"
CONF = "/etc/nvpmodel.conf"
STATUS = "/var/lib/nvpmodel/status"


class Mode:
    """A power mode of nvpmodel.conf: its settings as (parameter, argument) -> value."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.settings: Settings = {}

    @property
    def mask(self) -> int:
        """What it gates of the GPU."""
        return int(self.settings.get(("TPC_POWER_GATING", "TPC_PG_MASK"), "0"))


def board() -> Dict[str, Any]:
    """What this board is: see boards.py of the lab, which writes it."""
    with open(HOME + "/board.json", encoding="utf-8") as stream:
        return cast("Dict[str, Any]", json.load(stream))


def read(path: str) -> str:
    """A file of the simulated /sys, given from there ("devices/…"); empty where it is missing."""
    try:
        with open(os.path.join(LIVE, path), encoding="utf-8") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def number(path: str) -> int:
    text = read(path)
    return int(text) if re.match(r"-?\d+\Z", text) else 0


def write(path: str, value: object) -> None:
    """In place: the file may be mounted, and is never replaced."""
    with open(os.path.join(LIVE, path), "r+", encoding="utf-8") as stream:
        stream.truncate(0)
        stream.write(f"{value}\n")


def status() -> Optional[int]:
    """The mode's number in the status file, which the next boot sets; None while there is none."""
    try:
        with open(STATUS, encoding="utf-8") as stream:
            found = re.search(r"pmode:\s*(\d+)", stream.read())
    except OSError:
        return None
    return int(found.group(1)) if found else None


def keep_status(mode: int, fan: str = "") -> None:
    os.makedirs(os.path.dirname(STATUS), exist_ok=True)
    tail = f" fmode:{fan}" if fan else ""
    with open(STATUS, "w", encoding="utf-8") as stream:
        stream.write(f"pmode:{mode:04d}{tail}\n")


def fan_mode() -> str:
    """The fan's mode in nvpmodel's status (JetPack 4)."""
    try:
        with open(STATUS, encoding="utf-8") as stream:
            found = re.search(r"fmode:\s*(\w+)", stream.read())
    except OSError:
        return ""
    return found.group(1) if found else ""


def modes() -> Dict[int, Mode]:
    """Of the conf on this disk, as nvpmodel reads it, by their numbers."""
    found: Dict[int, Mode] = {}
    current: Optional[Mode] = None
    with open(CONF, encoding="utf-8") as stream:
        for line in stream:
            head = re.match(r"<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+?)\s*>", line.strip())
            if head:
                current = found.setdefault(int(head.group(1)), Mode(head.group(2)))
            elif line.startswith("<"):
                current = None
            elif current is not None:
                words = line.split()
                if len(words) == 3:
                    current.settings[words[0], words[1]] = words[2]
    return found


def apply(mode: int) -> None:
    """Put a mode's clocks and masks into /sys."""
    this, settings = board(), modes()[mode].settings
    gpu = this["gpu"]
    write(gpu + "/max_freq", settings["GPU", "MAX_FREQ"])
    write(gpu + "/min_freq", this["gpu_least"])
    write(gpu + "/cur_freq", this["gpu_least"])
    for policy in this["policies"]:
        write(policy + "/scaling_max_freq", settings["CPU_A78_0", "MAX_FREQ"])
        write(policy + "/scaling_min_freq", this["cpu_least"])
    if this["mask"]:
        write(this["mask"], modes()[mode].mask)


def boot() -> None:
    """What nvpmodel's own service does while the board boots: the mode of the status file, the default one where there is none."""
    known, wanted = modes(), status()
    chosen = wanted if wanted in known and wanted is not None else int(board()["default"])
    apply(chosen)
    keep_status(chosen, fan_mode())


if __name__ == "__main__":
    boot()
    sys.exit(0)
