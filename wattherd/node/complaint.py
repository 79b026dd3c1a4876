"""Finds, in what cmake and compilers printed, how far they are and the one line that says why they failed. Pure text."""

from __future__ import annotations

import re
from typing import List, Optional, Tuple

_STEP = re.compile(r"\[\s*(\d+)/(\d+)\]")
_PERCENT = re.compile(r"\[\s*(\d+)%\]")
#: gcc, clang and the linker write "error:", nvcc "error" behind a colon of its own or "nvcc fatal". The last word of ld is no cause.
_COMPILER = re.compile(r"(^|[\s:)])(fatal )?error\s?:|^nvcc fatal|undefined reference to|cannot find -l|: Error: ")
_SUMMARY = re.compile(r"ld returned \d+ exit status|^ninja: build stopped|^(g?make|cmake)(\[\d+\])?: |FAILED:")
_CMAKE = re.compile(r"^CMake Error( at|:| in|$)")
_BEGUN = re.compile(r"^FAILED: ", re.MULTILINE)
_HINTS: Tuple[Tuple[str, str], ...] = (
    ("Killed signal terminated", "the compiler ran out of memory: unload a model first, raise memory_per_job_mb, or build on another node"),
    (
        "nsupported gpu architecture",
        "this CUDA toolkit does not know that architecture: compare nvcc --list-gpu-arch with the card (docs/cuda.md)",
    ),
    ("No space left on device", "the disk filled up while building: df -h /var/cache/wattherd"),
    (
        "exception specification is incompatible",
        "the C library is newer than this CUDA toolkit's headers: use CUDA 13.2 or newer, or build on an older distribution and ship",
    ),
    ("unsupported GNU version", "gcc is newer than this CUDA toolkit allows: cuda: {host_compiler: g++-N} names an older one"),
    ("or higher is required", "a newer cmake is needed on that node"),
    ("COMPILER could be found", "a compiler is missing on that node: add its package to the build's packages"),
)


def step(line: str) -> Optional[Tuple[int, int]]:
    """(done, total) of ninja's `[12/196]` or make's `[ 12%]` at the start of a line; None for any other line."""
    found = _STEP.match(line)
    if found:
        return int(found.group(1)), int(found.group(2))
    share = _PERCENT.match(line)
    return (int(share.group(1)), 100) if share else None


def first_error(text: str) -> str:
    """The first line that names a cause. A compiler's own words come before cmake's summary of them; without either, the last words."""
    begun = _BEGUN.search(text)
    lines = text[begun.start() if begun else 0 :].splitlines()
    for line in lines:
        if _COMPILER.search(line) and not _SUMMARY.search(line):
            return line.strip()[:500]
    last = [line.strip() for line in lines if line.strip() and not _SUMMARY.search(line)][-3:]
    return _cmake_error(lines) or " / ".join(last)[-500:]


def _cmake_error(lines: List[str]) -> str:
    """`CMake Error at FILE:LINE (what):` and the paragraph under it, as one line."""
    for index, line in enumerate(lines):
        if _CMAKE.match(line):
            words = [line.strip()]
            for more in lines[index + 1 :]:
                if more.startswith("-- ") or (not more.strip() and len(words) > 1):
                    break
                if more.strip():
                    words.append(more.strip())
            return " ".join(words)[:500]
    return ""


def hint(error: str) -> str:
    """What to do about an error of a known kind; empty for the others."""
    return next((words for needle, words in _HINTS if needle in error), "")
