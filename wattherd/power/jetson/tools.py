"""Whether a node is a Jetson at all, which of NVIDIA's tools it has, and how one is run: with nobody to answer it, and not for long."""

from __future__ import annotations

import re
from typing import Optional, Sequence

from wattherd import machine as machines

RELEASE = "/etc/nv_tegra_release"
_TREES = ("/proc/device-tree", "/sys/firmware/devicetree/base")
_FOLDERS = ("/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin")
#: A query takes 20 ms; a board that answers after this long is in trouble of another kind.
QUERY_LIMIT_S = 10.0


def is_jetson(machine: machines.Machine) -> bool:
    """By the release file that only a Jetson has, or by the chip that the device tree names."""
    if machine.exists(RELEASE):
        return True
    return any(re.search(r"nvidia,tegra\d{3}", _tree(machine, folder, "compatible")) for folder in _TREES)


def name(machine: machines.Machine) -> str:
    """The board's name as its device tree has it ("NVIDIA Jetson AGX Orin Developer Kit"); empty where nobody says."""
    return next((text for text in (_tree(machine, folder, "model").strip("\0\n ") for folder in _TREES) if text), "")


def release(machine: machines.Machine) -> str:
    """The first line of the release file: what was found impossible is tried again after an upgrade of the board's software."""
    return (text(machine, RELEASE).splitlines() or [""])[0][:200]


def has(machine: machines.Machine, tool: str) -> bool:
    return any(machine.exists(f"{folder}/{tool}") for folder in _FOLDERS)


def run(machine: machines.Machine, argv: Sequence[str], *, limit_s: float = QUERY_LIMIT_S) -> machines.Result:
    """Run one tool. Its stdin is empty: a question finds the end of its input, and is answered by nobody."""
    return machine.run(argv, timeout_s=limit_s)


def text(machine: machines.Machine, path: str) -> str:
    """A file of sysfs, stripped; empty where it is missing or cannot be read (a gated unit, a channel that is off)."""
    try:
        return machine.text(path).strip("\0\n ")
    except OSError:
        return ""


def number(machine: machines.Machine, path: str) -> Optional[int]:
    found = text(machine, path)
    return int(found) if re.match(r"-?\d{1,18}\Z", found) else None


def _tree(machine: machines.Machine, folder: str, leaf: str) -> str:
    return text(machine, f"{folder}/{leaf}")
