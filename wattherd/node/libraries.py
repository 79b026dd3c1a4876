"""The shared libraries of a release: those of a toolkit are taken along under their SONAME, and none may be missing at its start.

The loader looks for a SONAME, so a copy under any other name is as good as none. Knows nothing of cmake or of what is built.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.node import elf

#: Comes with the driver of the machine that has the card, never with a release.
DRIVERS_OWN = ("libcuda.so.1", "libnvidia-ml.so.1")
#: cuBLAS opens these by name when it wants them, so nothing in its list of needed libraries tells.
_OPENED_LATER = ("libnvrtc.so.", "libnvrtc-builtins.so.")
_FOLDERS = ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib", "targets/aarch64-linux/lib")
_SYSTEMS = ("lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu")
_KINDS = ("GLIBC_", "GLIBCXX_", "CXXABI_")


def ship(machine: machines.Machine, folder: str, toolkit: str, begins: Sequence[str]) -> List[str]:
    """Copy what the objects in `folder` need of the toolkit, and what that needs, into `folder`; gives the names."""
    if not toolkit or not begins:
        return []
    shipped: List[str] = []
    todo = [name for _, found in objects(machine, folder) for name in found.needed]
    while todo:
        name = todo.pop()
        if name in shipped or not name.startswith(tuple(begins)) or machine.exists(f"{folder}/{name}"):
            continue
        place = _find(machine, toolkit, name)
        if place is None:
            raise errors.Problem(
                "build-failed",
                f"the release needs {name}, which is not in the toolkit {toolkit}",
                hint=f"ls {toolkit}/lib64 | grep {name.partition('.')[0]}: another version than the one that was compiled with?",
            )
        shutil.copyfile(place, machine.path(f"{folder}/{name}"))
        os.chmod(machine.path(f"{folder}/{name}"), 0o644)
        shipped.append(name)
        found = elf.read(place)
        todo += list(found.needed) if found else []
        if name.startswith("libcublasLt.so."):
            todo += _opened_later(machine, toolkit, name.rpartition(".so.")[2])
    return sorted(shipped)


def _find(machine: machines.Machine, toolkit: str, name: str) -> Optional[str]:
    """The file that the loader would be given for this SONAME; a file of another name may have it too."""
    for folder in _folders(machine, toolkit):
        if os.path.isfile(f"{folder}/{name}"):
            return f"{folder}/{name}"
    stem = name.partition(".so")[0] + ".so"
    for folder in _folders(machine, toolkit):
        for other in sorted(os.listdir(folder)):
            found = elf.read(f"{folder}/{other}") if other.startswith(stem) else None
            if found is not None and found.soname == name:
                return f"{folder}/{other}"
    return None


def _opened_later(machine: machines.Machine, toolkit: str, major: str) -> List[str]:
    found: List[str] = []
    for folder in _folders(machine, toolkit):
        for other in os.listdir(folder):
            if other.startswith(tuple(begin + major for begin in _OPENED_LATER)):
                told = elf.read(f"{folder}/{other}")
                found += [told.soname] if told is not None and told.soname else []
    return found


def _folders(machine: machines.Machine, toolkit: str) -> List[str]:
    names = [*_FOLDERS, *(_SYSTEMS if toolkit == "/usr" else ())]
    return [machine.path(f"{toolkit}/{name}") for name in names if machine.is_dir(f"{toolkit}/{name}")]


def check(machine: machines.Machine, folder: str) -> None:
    """Every object of the release, plugins too: the program itself may start without one and only lack the GPU then."""
    for name, _ in objects(machine, folder):
        done = machine.run(["ldd", machine.path(f"{folder}/{name}")])
        for line in done.words.splitlines():
            found = re.match(r"\s*(\S+) => not found", line)
            if found and found.group(1) not in DRIVERS_OWN:
                raise errors.Problem(
                    "release-does-not-run",
                    f"{name} needs {found.group(1)}, which is neither in the release nor on this node",
                    hint="was it built with another toolkit than the one whose libraries were shipped?",
                    library=found.group(1),
                )


def objects(machine: machines.Machine, folder: str) -> Iterator[Tuple[str, elf.Object]]:
    """Programs and libraries in the folder, each once: links are passed over."""
    for name in machine.names(folder):
        real = machine.path(f"{folder}/{name}")
        found = None if os.path.islink(real) else elf.read(real)
        if found is not None:
            yield name, found


def versions(machine: machines.Machine, folder: str) -> Tuple[str, ...]:
    """The newest symbol version of each kind that any object here needs: what a node's C and C++ libraries must offer."""
    newest: Dict[str, str] = {}
    for _, found in objects(machine, folder):
        for word, version in newest_of(found).items():
            if word not in newest or _numbers(version) > _numbers(newest[word]):
                newest[word] = version
    return tuple(newest[kind] for kind in _KINDS if kind in newest)


def newest_of(found: elf.Object) -> Dict[str, str]:
    """By kind ("GLIBC_") the newest version that one object needs."""
    newest: Dict[str, str] = {}
    for version in found.versions:
        kind = next((one for one in _KINDS if re.match(re.escape(one) + r"\d", version)), "")
        if kind and (kind not in newest or _numbers(version) > _numbers(newest[kind])):
            newest[kind] = version
    return newest


def _numbers(version: str) -> List[int]:
    return [int(part) for part in re.findall(r"\d+", version)]
