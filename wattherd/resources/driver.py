"""The NVIDIA driver of a node: new enough for what was built, of one piece, and, where the inventory says so, held.

Its packages are never installed or upgraded here: a driver that changes under a running server takes the card away from it.
Knows nothing of CUDA's versions; which branch is needed is a role's word.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import ClassVar, List, Mapping, Optional, Tuple

from wattherd import errors, store, units
from wattherd import machine as machines
from wattherd.records import dataclass
from wattherd.resources import base, dpkg

#: Which packages this resource has put on hold, so that its removal frees no others.
HELD = store.HOME + "/driver-held.json"
_VERSION = "/proc/driver/nvidia/version"
_LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
_NAMES = (
    rb"(?:lib)?nvidia-(?:driver|dkms|kernel|open|utils|compute|firmware|cfg1|gl|egl|decode|encode|fbc1|common|ml|ptx|l4t)[a-z0-9.+-]*"
    rb"|libcuda1|libnvcuvid1|cuda-drivers[a-z0-9.-]*|linux-(?:modules|objects|signatures)-nvidia-[a-z0-9.+-]+"
)
_PACKAGE = re.compile(rb"\nPackage: (" + _NAMES + rb")\nStatus: (\w+) ok installed\n(.*?)(?:\n\n|\Z)", re.DOTALL)


def version(machine: machines.Machine) -> str:
    """The loaded kernel module's version ("580.95.05"); empty where none is loaded."""
    return loaded(machine.text(_VERSION))


def loaded(text: str) -> str:
    """The same, in the words of the module: the closed and the open flavour."""
    found = re.search(r"NVRM version:.*?Kernel Module(?:\s+for\s+\S+)?\s+(\d+\.\d+(?:\.\d+)?)", text)
    return found.group(1) if found else ""


@dataclass(frozen=True)
class Driver(base.Resource):
    """`least` is the oldest driver branch that serves (0: any), `needed_by` says for what.

    `hold` puts its packages on hold; without it those that were put on hold here are free again.
    """

    TYPE: ClassVar[str] = "driver"

    name: str = "nvidia"
    least: int = 0
    needed_by: str = ""
    hold: bool = False

    @property
    def id(self) -> str:
        return f"driver:{self.name}"

    def wanted(self) -> base.State:
        fits = {"driver": f"{self.least} or newer"} if self.least else {}
        return {**fits, "held": "all its packages" if self.hold else "none"}

    def actual(self, machine: machines.Machine) -> Optional[base.State]:
        """None while all is well with the driver and nothing of it is held yet: then there is nothing of ours."""
        state: base.State = {}
        if self.least:
            state["driver"] = self._fault(machine) or f"{self.least} or newer"
        if self.hold:
            packages = _packages(machine)
            loose = [name for name, held in packages if not held]
            if packages and len(loose) == len(packages) and state.get("driver") == self.wanted().get("driver"):
                return None
            state["held"] = f"all but {' '.join(loose)}" if loose else "all its packages"
        else:
            state["held"] = " ".join(_held_here(machine)) or "none"
        return state

    def _fault(self, machine: machines.Machine) -> str:
        loaded = version(machine)
        if not loaded:
            return "none is loaded"
        if int(loaded.partition(".")[0]) < self.least:
            return loaded
        libraries = _library_versions(machine)
        return f"{loaded}, and its libraries are {libraries[-1]}" if libraries and loaded not in libraries else ""

    def preflight(self, machine: machines.Machine, state: Optional[base.State]) -> None:  # noqa: ARG002 - one surface for every type
        fault = self._fault(machine) if self.least else ""
        if fault:
            raise self._unfit(fault)

    def _unfit(self, fault: str) -> errors.Problem:
        reason = f"{self.needed_by or 'what was built'} needs an NVIDIA driver of {self.least} or newer"
        if "libraries" in fault:
            hint = "the driver was upgraded and the old module is still loaded: reboot this node; cuda: {hold_driver: true} prevents it"
            return errors.Problem("cuda-unfit", f"the NVIDIA driver here is of two pieces: {fault} is loaded", hint=hint)
        if fault == "none is loaded":
            hint = "nvidia-smi and dmesg | grep -i nvrm tell why; after a kernel upgrade its module has to be built anew (dkms status)"
            return errors.Problem("cuda-unfit", f"{reason}, and none is loaded", hint=hint)
        hint = f"upgrade the driver to {self.least} (Wattherd never does), or build with an older toolkit: cuda: {{version: …}}"
        return errors.Problem("cuda-unfit", f"{reason}, and {fault} is loaded", hint=hint)

    def fix(self, machine: machines.Machine, delta: base.Delta, tell: base.Tell) -> None:
        self.preflight(machine, None)
        if not self.hold:
            _free(machine, tell)
            return
        loose = [name for name, held in _packages(machine) if not held]
        if "held" in delta and loose:
            tell(f"holding {units.plural(len(loose), 'package')} of the driver")
            store.prepare(machine)
            machine.write(HELD, json.dumps(sorted({*_ours(machine), *loose})).encode())
            machine.must(["apt-mark", "hold", *loose])

    def remove(self, machine: machines.Machine, tell: base.Tell) -> None:
        """Free what this resource put on hold; what an administrator held stays so."""
        _free(machine, tell)

    def ours(self, machine: machines.Machine) -> bool:
        return bool(_ours(machine))

    def gone(self, machine: machines.Machine) -> bool:
        return not _ours(machine)


def _ours(machine: machines.Machine) -> List[str]:
    with contextlib.suppress(ValueError):
        told = json.loads(machine.read(HELD) or b"[]")
        return [name for name in told if isinstance(name, str)] if isinstance(told, list) else []
    return []


def _held_here(machine: machines.Machine) -> List[str]:
    ours = _ours(machine)
    return [name for name, is_held in _packages(machine) if is_held and name in ours] if ours else []


def _free(machine: machines.Machine, tell: base.Tell) -> None:
    held = _held_here(machine)
    if held:
        tell(f"freeing {units.plural(len(held), 'package')} of the driver")
        machine.must(["apt-mark", "unhold", *held])
    machine.unlink(HELD)


def _packages(machine: machines.Machine) -> List[Tuple[str, bool]]:
    """Every installed package of the driver as apt-mark wants its name, and whether it is held."""
    body = b"\n" + (machine.read(dpkg.STATUS) or b"")
    native = re.search(rb"\nPackage: dpkg\n(?:[^\n]+\n)*?Architecture: (\S+)", body)
    found: List[Tuple[str, bool]] = []
    for match in _PACKAGE.finditer(body.replace(b"\n\n", b"\n\n\n")):
        architecture = re.search(rb"(?:^|\n)Architecture: (\S+)", match.group(3))
        foreign = architecture and native and architecture.group(1) not in (native.group(1), b"all")
        name = match.group(1).decode()
        found.append((f"{name}:{architecture.group(1).decode()}" if foreign and architecture else name, match.group(2) == b"hold"))
    return sorted(found)


def _library_versions(machine: machines.Machine) -> List[str]:
    """Of the libcuda that programs load: its file name ends with the driver's version."""
    names: Mapping[str, None] = {name: None for place in _LIBRARIES for name in machine.names(place)}
    return sorted(match.group(1) for name in names for match in [re.match(r"libcuda\.so\.(\d{3,}\.[\d.]+)\Z", name)] if match)
