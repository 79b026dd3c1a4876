"""What each CUDA toolkit, distribution and Jetson knows and brings: NVIDIA's tables, with the questions that are asked of them. Pure.

A new release of CUDA is one row. Rows hold from their version on, until the next.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Knows:
    """What toolkits from `since` on know: architectures, the newest host gcc (its major version), the oldest driver branch."""

    since: tuple[int, int]
    architectures: frozenset[int]
    gcc: int
    driver: int


def _archs(text: str) -> frozenset[int]:
    return frozenset(int(one) for one in text.split())


_CUDA_11 = "35 37 50 52 53 60 61 62 70 72 75 80 86 87"
_CUDA_12 = "50 52 53 60 61 62 70 72 75 80 86 87 89 90"
_CUDA_13 = "75 80 86 87 88 89 90 100 103 110 120 121"
_TABLE = (
    Knows(since=(11, 4), architectures=_archs(_CUDA_11), gcc=11, driver=470),
    Knows(since=(11, 8), architectures=_archs(_CUDA_11 + " 89 90"), gcc=11, driver=520),
    Knows(since=(12, 0), architectures=_archs(_CUDA_12), gcc=12, driver=525),
    Knows(since=(12, 1), architectures=_archs(_CUDA_12), gcc=12, driver=530),
    Knows(since=(12, 2), architectures=_archs(_CUDA_12), gcc=12, driver=535),
    Knows(since=(12, 3), architectures=_archs(_CUDA_12), gcc=12, driver=545),
    Knows(since=(12, 4), architectures=_archs(_CUDA_12), gcc=13, driver=550),
    Knows(since=(12, 5), architectures=_archs(_CUDA_12), gcc=13, driver=555),
    Knows(since=(12, 6), architectures=_archs(_CUDA_12), gcc=13, driver=560),
    Knows(since=(12, 8), architectures=_archs(_CUDA_12 + " 100 101 120"), gcc=14, driver=570),
    Knows(since=(12, 9), architectures=_archs(_CUDA_12 + " 100 101 103 120 121"), gcc=14, driver=575),
    Knows(since=(13, 0), architectures=_archs(_CUDA_13), gcc=15, driver=580),
    Knows(since=(13, 5), architectures=_archs(_CUDA_13 + " 107"), gcc=16, driver=580),
)
#: Toolkits before 11.1 have no C++17 in device code, and this source needs it.
OLDEST = (11, 1)
#: From this C library on, CUDA's own headers before FIXED contradict it, whatever the compiler is.
STRICT_LIBC, LIBC_FIXED = (2, 41), (13, 2)
CMAKE = (3, 18)
#: Architectures with an f at their end ("120f") mean nothing to a CMake before this one.
CMAKE_FOR_FAMILIES = (3, 31)
#: The distribution's own package nvidia-cuda-toolkit: its CUDA, the component it is in, and the g++ that it takes beside the usual one.
PACKAGED: Mapping[tuple[str, str], tuple[str, str, str]] = {
    ("debian", "12"): ("11.8", "non-free", "g++-11"),
    ("debian", "13"): ("12.4", "non-free", "g++-13"),
    ("ubuntu", "22.04"): ("11.5", "multiverse", ""),
    ("ubuntu", "24.04"): ("12.0", "multiverse", "g++-12"),
}
#: What the distribution would install where nothing is yet: CMake, and the major version of g++.
USUAL: Mapping[tuple[str, str], tuple[str, int]] = {
    ("debian", "11"): ("3.18", 10),
    ("debian", "12"): ("3.25", 12),
    ("debian", "13"): ("3.31", 14),
    ("ubuntu", "18.04"): ("3.10", 7),
    ("ubuntu", "20.04"): ("3.16", 9),
    ("ubuntu", "22.04"): ("3.22", 11),
    ("ubuntu", "24.04"): ("3.28", 13),
    ("ubuntu", "25.10"): ("3.31", 15),
    ("ubuntu", "26.04"): ("4.2", 15),
}
#: A Jetson's GPU by its system on a chip. Thor is 101 to CUDA 12 and 110 to CUDA 13.
SOCS: Mapping[str, tuple[str, int]] = {
    "tegra210": ("Jetson Nano or TX1", 53),
    "tegra186": ("Jetson TX2", 62),
    "tegra194": ("Jetson Xavier", 72),
    "tegra234": ("Jetson Orin", 87),
    "tegra264": ("Jetson Thor", 110),
}
_THOR_BEFORE_13 = {110: 101}
#: The first release of Jetson Linux whose driver is the one of servers, so that toolkits made for servers run on it.
L4T_AS_SERVERS = 38
L4T_WITH_11 = 34


def knows(version: tuple[int, int]) -> Knows | None:
    return next((row for row in reversed(_TABLE) if row.since <= version), None)


def number_to(number: int, version: tuple[int, int]) -> int:
    return _THOR_BEFORE_13.get(number, number) if version < (13, 0) else number


def newest_for(number: int) -> str:
    return next((text_of(row.since) for row in reversed(_TABLE) if number_to(number, row.since) in row.architectures), "11.8")


def oldest_for(number: int) -> str:
    return next((text_of(row.since) for row in _TABLE if number_to(number, row.since) in row.architectures), "13.5")


def pair(text: str) -> tuple[int, int]:
    found = re.match(r"(\d+)(?:\.(\d+))?", text)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def text_of(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
