"""What compiling needs of a machine: cores, memory, room, and tools that are not on every PATH. Reads only."""

from __future__ import annotations

import re
from typing import List, Mapping, Optional, Tuple

from wattherd import errors, units
from wattherd import machine as machines

#: Source, objects and release of one llama.cpp build. One that ships a toolkit's libraries has them three times for a while: twice that.
ROOM_BYTES = 2 * 1024 * 1024 * 1024
USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MIB = 1024 * 1024


def job_count(cpus: int, memory_mb: Optional[int], per_job_mb: int, asked: int) -> int:
    """As many compilers as there are cores and as fit into the memory that is free now; never more than asked, never none."""
    limits = [max(1, cpus)]
    if memory_mb is not None:
        limits.append(memory_mb // max(1, per_job_mb))
    if asked > 0:
        limits.append(asked)
    return max(1, min(limits))


def available_mb(machine: machines.Machine) -> Optional[int]:
    """Memory that can be had without pushing anything out; None where the kernel does not say."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", machine.text("/proc/meminfo"), re.MULTILINE)
    return int(found.group(1)) // 1024 if found else None


def check_memory(machine: machines.Machine, per_job_mb: int) -> None:
    memory_mb = available_mb(machine)
    swap = re.search(r"^SwapFree:\s+(\d+) kB", machine.text("/proc/meminfo"), re.MULTILINE)
    if memory_mb is None:
        return
    free_mb = memory_mb + (int(swap.group(1)) // 1024 if swap else 0)
    if free_mb < per_job_mb:
        raise errors.Problem(
            "build-failed",
            f"one compiler needs {units.size(per_job_mb * _MIB)} of memory, and only {units.size(free_mb * _MIB)} are free here",
            hint="unload a model first, or build on another node and let it be shipped",
        )


def check_room(machine: machines.Machine, folder: str, needed_bytes: int = 0) -> None:
    needed_bytes = needed_bytes or ROOM_BYTES
    free_bytes = machine.free_bytes(folder)
    if free_bytes < needed_bytes:
        raise errors.Problem(
            "disk-full",
            f"a build needs {units.size(needed_bytes)} under {folder}, and only {units.size(free_bytes)} are free",
            hint="free space there, or build on another node and let it be shipped",
            needed_bytes=needed_bytes,
            free_bytes=free_bytes,
        )


def search_path(machine: machines.Machine, environment: Mapping[str, str]) -> str:
    """PATH for a build: what the role says, else the system's. CUDA's folder is on no unit's PATH, so it is looked for."""
    usual = environment.get("PATH") or USUAL_PATH
    toolkits = sorted((name for name in machine.names("/usr/local") if re.match(r"cuda(-[\d.]+)?\Z", name)), key=_version)
    # /usr/local/cuda is the administrator's choice; without it the newest one counts.
    chosen = [f"/usr/local/{name}/bin" for name in toolkits if machine.is_dir(f"/usr/local/{name}/bin")][:1]
    return ":".join([usual, *chosen])


def _version(name: str) -> Tuple[bool, List[int]]:
    numbers = [-int(part) for part in re.findall(r"\d+", name)]
    return bool(numbers), numbers


def find_tool(machine: machines.Machine, name: str, environment: Mapping[str, str]) -> Optional[str]:
    import shutil

    return shutil.which(name, path=search_path(machine, environment))
