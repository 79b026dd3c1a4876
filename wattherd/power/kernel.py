"""What the kernel knows of the cards without a question to any of them: where they are, whether they sleep, which driver is loaded."""

from __future__ import annotations

import re
from typing import Dict, List, Tuple

from wattherd import machine as machines
from wattherd.power import cell
from wattherd.records import dataclass

_PROC = "/proc/driver/nvidia"
_PCI = "/sys/bus/pci/devices"
_LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
_NVIDIA = "0x10de"
#: Display controllers and 3D controllers; the sound of a card is another function of it.
_CLASSES = ("0x0300", "0x0302")
#: Jetsons whose own GPU says nothing through NVML (or has none): their boards are read in another way.
_SILENT_CHIPS = ("tegra210", "tegra186", "tegra194", "tegra234")


@dataclass(frozen=True)
class Known:
    """A card as the driver's files in /proc show it. `minor` is the number of its device file, -1 where that is not told."""

    bus: str
    uuid: str = ""
    name: str = ""
    minor: int = -1


def version(machine: machines.Machine) -> str:
    """The loaded module's version; empty where none is loaded."""
    found = re.search(r"NVRM version:.*?Kernel Module(?:\s+for\s+\S+)?\s+(\d+\.\d+(?:\.\d+)?)", machine.text(f"{_PROC}/version"))
    return found.group(1) if found else ""


def library_version(machine: machines.Machine) -> str:
    """Of the NVML that programs load: the file that its name leads to ends with the driver's version. Empty where it cannot be told."""
    for folder in _LIBRARY_FOLDERS:
        found = re.search(r"\.so\.(\d{3,}\.[\d.]+)\Z", machine.readlink(f"{folder}/libnvidia-ml.so.1") or "")
        if found:
            return found.group(1)
    return ""


def known(machine: machines.Machine) -> Tuple[Known, ...]:
    """The cards of the driver, in the order of the bus. Those without a device file, where others have one, are another container's."""
    found: List[Known] = []
    for bus in machine.names(f"{_PROC}/gpus"):
        text = machine.text(f"{_PROC}/gpus/{bus}/information")
        pairs = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
        uuid, minor = pairs.get("GPU UUID", ""), pairs.get("Device Minor", "")
        name = cell.printable(pairs.get("Model", ""))
        found.append(Known(bus, "" if "?" in uuid else uuid, name, int(minor) if minor.isdigit() else -1))
    with_file = [one for one in found if machine.exists(f"/dev/nvidia{one.minor}")]
    return tuple(one for one in found if one.minor < 0 or not with_file or one in with_file)


def plugged(machine: machines.Machine) -> Tuple[str, ...]:
    """NVIDIA's cards on the PCI bus, with a driver or without."""
    return tuple(
        bus
        for bus in machine.names(_PCI)
        if machine.text(f"{_PCI}/{bus}/vendor").strip() == _NVIDIA and machine.text(f"{_PCI}/{bus}/class").startswith(_CLASSES)
    )


def is_asleep(machine: machines.Machine, bus: str) -> bool:
    """Runtime power management has suspended the card (laptops, small desktops): any question to the driver would wake it."""
    return machine.text(f"{_PCI}/{bus}/power/runtime_status").strip() == "suspended"


def is_jetson(machine: machines.Machine) -> bool:
    return machine.exists("/etc/nv_tegra_release") or "nvidia,tegra" in machine.text("/proc/device-tree/compatible")


def is_askable(machine: machines.Machine) -> bool:
    """Whether there is a driver to ask at all: the module, or a card passed through by WSL."""
    if not plugged(machine) and any(f"nvidia,{chip}" in machine.text("/proc/device-tree/compatible") for chip in _SILENT_CHIPS):
        return False
    return bool(version(machine)) or any(machine.exists(path) for path in ("/dev/nvidiactl", "/dev/dxg"))


def memory_mib(machine: machines.Machine) -> Tuple[int, int]:
    """The host's own, used and whole: what a card of unified memory works in. (0, 0) where it cannot be read."""
    found: Dict[str, int] = {key: int(kib) for key, kib in re.findall(r"^(\w+):\s+(\d+) kB", machine.text("/proc/meminfo"), re.MULTILINE)}
    total = found.get("MemTotal", 0)
    return (total - found.get("MemAvailable", 0)) // 1024, total // 1024
