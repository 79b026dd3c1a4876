"""Reads the facts of this node: cheap files only, so that a `hello` costs milliseconds. Wakes no GPU that it has met before."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import Dict, List, Set, Tuple

from wattherd import machine as machines
from wattherd import store
from wattherd.node import cards, generations, toolchains
from wattherd.power.jetson import conf
from wattherd.resources import driver
from wattherd.wire import facts

#: What each psABI level adds, in the words of /proc/cpuinfo (x86-64 psABI, table of micro-architecture levels).
_LEVELS: Tuple[Tuple[str, Tuple[str, ...]], ...] = (
    ("x86-64-v2", ("cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3")),
    ("x86-64-v3", ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave")),
    ("x86-64-v4", ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")),
)
_CPUINFO_BYTES = 16 * 1024
#: Only a node of the lab has it, and only with simulated cards or a simulated board.
_SIMULATED = "/etc/wattherd-lab-simulated"


def facts_of(machine: machines.Machine) -> facts.Facts:
    memory = _memory(machine)
    newest = generations.latest(machine)
    return facts.Facts(
        system=_system(machine),
        cpu=_cpu(machine),
        python=facts.Python(sys.executable or "", ".".join(str(part) for part in sys.version_info[:3])),
        memory_bytes=memory.get("MemTotal", 0),
        memory_available_bytes=memory.get("MemAvailable", 0),
        disks=_disks(machine),
        gpus=cards.found(machine),
        driver=driver.version(machine),
        cuda=toolchains.cuda(machine),
        tools=toolchains.tools(machine),
        jetson=_jetson(machine),
        soc=cards.soc(machine),
        power_modes=tuple(conf.read(machine).numbers),
        simulated=machine.exists(_SIMULATED),
        user=machine.owner_name(os.geteuid()),
        builds=tuple(store.builds(machine).values()),
        release=os.path.basename(machine.readlink(store.CURRENT) or ""),
        generation=None if newest is None else facts.Generation(newest.number, newest.digest, newest.applied_at),
        interrupted=generations.interrupted(machine),
    )


def _system(machine: machines.Machine) -> facts.System:
    release = _pairs(machine.text("/etc/os-release"), "=")
    uptime = machine.text("/proc/uptime").split()
    return facts.System(
        hostname=machine.text("/proc/sys/kernel/hostname").strip() or os.uname().nodename,
        os_id=release.get("ID", ""),
        os_version=release.get("VERSION_ID", ""),
        os_name=release.get("PRETTY_NAME", ""),
        kernel=os.uname().release,
        libc=_libc(),
        libstdcxx=toolchains.libstdcxx(machine),
        components=toolchains.components(machine),
        init=machine.text("/proc/1/comm").strip(),
        boot_id=machine.boot_id(),
        uptime_s=float(uptime[0]) if uptime else 0.0,
    )


def _libc() -> str:
    with contextlib.suppress(OSError, ValueError):
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")[2]
    return ""


def _cpu(machine: machines.Machine) -> facts.Cpu:
    # Every thread repeats the same block and a big box has hundreds: the first block is enough.
    with contextlib.suppress(OSError), open(machine.path("/proc/cpuinfo"), "rb") as stream:
        first = stream.read(_CPUINFO_BYTES).decode("utf-8", "replace").split("\n\n")[0]
        pairs = _pairs(first, ":")
        architecture = os.uname().machine
        level = _level(set(pairs.get("flags", "").split())) if architecture == "x86_64" else ""
        model = pairs.get("model name") or pairs.get("Model") or cards.device_tree(machine, "model").strip("\0\n")
        return facts.Cpu(architecture, model, os.cpu_count() or 0, level)
    return facts.Cpu(os.uname().machine, threads=os.cpu_count() or 0)


def _level(flags: Set[str]) -> str:
    level = "x86-64-v1"
    for name, needed in _LEVELS:
        if not flags.issuperset(needed):
            break
        level = name
    return level


def _memory(machine: machines.Machine) -> Dict[str, int]:
    found: Dict[str, int] = {}
    for key, value in _pairs(machine.text("/proc/meminfo"), ":").items():
        number = re.match(r"(\d+) kB", value)
        if number:
            found[key] = int(number.group(1)) * 1024
    return found


def _disks(machine: machines.Machine) -> Tuple[facts.Disk, ...]:
    found: List[facts.Disk] = []
    for path in (store.HOME, "/opt/wattherd", "/var/cache/wattherd"):
        real = machine.path(path)
        while real and not os.path.isdir(real):
            real = os.path.dirname(real)
        with contextlib.suppress(OSError):
            stat = os.statvfs(real or "/")
            found.append(facts.Disk(path, stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize))
    return tuple(found)


def _jetson(machine: machines.Machine) -> str:
    """The first line of /etc/nv_tegra_release, which only a Jetson has."""
    return (machine.text("/etc/nv_tegra_release").splitlines() or [""])[0][:200]


def _pairs(text: str, separator: str) -> Dict[str, str]:
    found: Dict[str, str] = {}
    for line in text.splitlines():
        key, mark, value = line.partition(separator)
        if mark:
            found.setdefault(key.strip(), value.strip().strip('"'))
    return found
