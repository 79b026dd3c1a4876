"""What this node can compile with, by looking at files alone: CUDA toolkits, g++ of each major version, CMake; and its C++ library.

No program is run: a `hello` pays for this. What a file name does not tell stays unknown.
"""

from __future__ import annotations

import json
import posixpath
import re
from typing import Dict, List, Tuple

from wattherd import machine as machines
from wattherd.wire import facts

_PLACES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
_FOLDERS = ("lib64", "lib", "targets/x86_64-linux/lib", "targets/aarch64-linux/lib", "targets/sbsa-linux/lib")
_MOST_LINKS = 8


def cuda(machine: machines.Machine) -> Tuple[facts.Cuda, ...]:
    """Every toolkit once: the administrator's choice /usr/local/cuda first, then the newest, then the distribution's."""
    kept: List[facts.Cuda] = []
    seen: List[str] = []
    for path in _toolkits(machine):
        real = _real(machine, path)
        if real not in seen and machine.exists(f"{real}/bin/nvcc"):
            seen.append(real)
            stub = any(machine.exists(f"{real}/{folder}/stubs/libcuda.so") for folder in _FOLDERS)
            there = any(machine.exists(f"{real}/{folder}/libcublas.so") for folder in _FOLDERS)
            kept.append(facts.Cuda(real, _version(machine, real), stub, lacks="" if there else "cuBLAS"))
    return tuple(kept + _packaged(machine))


def tools(machine: machines.Machine) -> facts.Tools:
    compilers: Dict[str, int] = {}
    for name in machine.names("/usr/bin"):
        if re.match(r"g\+\+(-\d+)?\Z", name):
            major = re.search(r"g\+\+-(\d+)\Z", _real(machine, f"/usr/bin/{name}"))
            if major:
                compilers[name] = int(major.group(1))
    return facts.Tools(compilers, _cmake(machine))


def libstdcxx(machine: machines.Machine) -> str:
    """The newest GLIBCXX symbol version follows the library's file name: libstdc++.so.6.0.30 has 3.4.30."""
    found = [
        int(numbers.group(1))
        for place in _PLACES
        for name in machine.names(place)
        for numbers in [re.match(r"libstdc\+\+\.so\.6\.0\.(\d+)\Z", name)]
        if numbers
    ]
    return f"3.4.{max(found)}" if found else ""


def components(machine: machines.Machine) -> Tuple[str, ...]:
    """Parts of the distribution that apt has lists of: whether a package in non-free or multiverse can be had at all."""
    names = machine.names("/var/lib/apt/lists")
    found = [match.group(1) for name in names for match in [re.search(r"_([a-z][a-z-]*)_binary-[a-z0-9]+_Packages", name)] if match]
    return tuple(sorted(set(found)))


def _toolkits(machine: machines.Machine) -> List[str]:
    names = [name for name in machine.names("/usr/local") if re.match(r"cuda(-[\d.]+)?\Z", name)]
    newest = sorted(names, key=lambda name: (name != "cuda", [-int(part) for part in re.findall(r"\d+", name)]))
    return [f"/usr/local/{name}" for name in newest] + ["/opt/cuda"]


def _version(machine: machines.Machine, path: str) -> str:
    """version.json since CUDA 11, version.txt before, else the folder's own name."""
    try:
        told = json.loads(machine.read(f"{path}/version.json") or b"{}")
        for part in ("cuda", "cuda_nvcc"):
            if isinstance(told, dict) and isinstance(told.get(part), dict):
                found = re.match(r"\d+\.\d+", str(told[part].get("version", "")))
                if found:
                    return found.group()
    except ValueError:
        pass
    found = re.search(r"CUDA Version (\d+\.\d+)", machine.text(f"{path}/version.txt")) or re.search(r"cuda-(\d+\.\d+)\Z", path)
    return found.group(1) if found else ""


def _packaged(machine: machines.Machine) -> List[facts.Cuda]:
    """Debian's and Ubuntu's nvidia-cuda-toolkit lies in the system's own folders; its runtime library's name has the version."""
    if not machine.exists("/usr/lib/nvidia-cuda-toolkit/bin/nvcc") or not machine.exists("/usr/bin/nvcc"):
        return []
    for place in _PLACES:
        found = [match.group(1) for name in machine.names(place) for match in [re.match(r"libcudart\.so\.(\d+\.\d+)", name)] if match]
        if found:
            return [facts.Cuda("/usr", max(found, key=_numbers), machine.exists(f"{place}/stubs/libcuda.so"), packaged=True)]
    return [facts.Cuda("/usr", packaged=True)]


def _cmake(machine: machines.Machine) -> str:
    """As the build's PATH finds it: /usr/local before /usr. Its data folder has the version in its name."""
    for prefix in ("/usr/local", "/usr"):
        if machine.exists(f"{prefix}/bin/cmake"):
            shared = [
                match.group(1) for name in machine.names(f"{prefix}/share") for match in [re.match(r"cmake-(\d+\.\d+)\Z", name)] if match
            ]
            return max(shared, key=_numbers) if shared else ""
    return ""


def _numbers(text: str) -> List[int]:
    return [int(part) for part in re.findall(r"\d+", text)]


def _real(machine: machines.Machine, path: str) -> str:
    """The path behind links, as the node sees it: os.path.realpath would leave the root of a test."""
    for _ in range(_MOST_LINKS):
        target = machine.readlink(path)
        if target is None:
            break
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return path
