"""Does the llama.cpp of this node know this model? Looked up in the binary's own words, before a start could fail on it. Reads only."""

from __future__ import annotations

import mmap
import os
import posixpath
import re
from typing import List

from wattherd import errors
from wattherd import machine as machines
from wattherd.gguf import demand

_LIBRARY = re.compile(r"lib(llama|ggml).*\.so")
_BUILD = re.compile(r"build (\d+)|version: (\d+) \(")


def check(machine: machines.Machine, binary: str, wanted: demand.Demand, model: str) -> None:
    """`build-too-old` with everything that is lacking, and the number of the very binary that would run."""
    lacking = demand.lacking(wanted, lambda word: holds(machine, binary, word))
    if lacking:
        number = build_number(machine, binary)
        which = f"build {number}" if number else "the build"
        raise errors.Problem(
            "build-too-old",
            f"{which} in {binary} is too old for {model}: it does not know {', '.join(lacking)}",
            hint="name a newer llama_cpp.source and deploy, or take a file of the model that was made for this build",
            build=number or None,
        )


def holds(machine: machines.Machine, binary: str, word: str) -> bool:
    """The word is a whole C string, or the end of one, in the binary or in a library of llama.cpp beside it."""
    return any(_in_file(machine.path(path), word) for path in _files(machine, binary))


def build_number(machine: machines.Machine, binary: str) -> int:
    """As the binary itself says it; 0 where it does not."""
    found = _BUILD.search(machine.run([binary, "--version"], timeout_s=30).words)
    return int(found[1] or found[2]) if found else 0


def _files(machine: machines.Machine, binary: str) -> List[str]:
    folder = posixpath.dirname(binary)
    libraries = [f"{folder}/{name}" for name in machine.names(folder) if _LIBRARY.match(name)]
    return [path for path in (binary, *libraries) if os.path.isfile(machine.path(path))]


def _in_file(path: str, word: str) -> bool:
    with open(path, "rb") as stream:
        if not os.fstat(stream.fileno()).st_size:
            return False
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as body:
            return body.find(word.encode() + b"\0") >= 0
