"""The state file of a node's simulated cards: one C structure that the node's NVML and nvidia-smi, and the daemon outside, all map.

This is the only place where it is written down: `header` makes the C half of it, so that the two cannot disagree. A lock on the file
(flock) guards every read and every write. Watts are in milliwatts, energy in millijoules, memory in bytes, 0 in `default_mw` and the like
is unknown.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

MAGIC = 0x4C414247
MOST_CARDS = 16
MOST_HOLDERS = 16
MOST_HUNG = 32
_LOCK_S = 2.0
_PAUSE_S = 0.002

#: What a card can do, by the bits of `can`.
CAN = {
    "LIMIT": 1,
    "LOCK_GPU": 2,
    "LOCK_MEMORY": 4,
    "ENERGY": 8,
    "FAN": 16,
    "MEMORY_TEMPERATURE": 32,
    "TARGET": 64,
    "MIG": 128,
    "ECC": 256,
    "UTILIZATION": 512,
}
#: What is wrong with a card, by the bits of `faults`.
CARD_FAULTS = {
    "LOST": 1,
    "RESET": 2,
    "NA": 4,
    "UNSUPPORTED": 8,
    "NO_PERMISSION": 16,
    "STUCK": 32,
    "UNKNOWN_DEFAULT": 64,
    "RESETTING": 128,
    "NVGPU": 256,
}
#: What is wrong with the driver of a node.
NODE_FAULTS = {"MISMATCH": 1, "HANG": 2, "NO_DRIVER": 4, "FORGETS": 8}


class Holder(ctypes.Structure):
    """A process that holds a card; `pid` is its number inside the node."""

    _fields_ = (
        ("memory", ctypes.c_uint64),
        ("pid", ctypes.c_uint32),
        ("graphics", ctypes.c_uint32),
        ("name", ctypes.c_char * 160),
    )


class Card(ctypes.Structure):
    """Fixed at plugging in, then what was set, then what is wrong, then what the model says of this moment."""

    _fields_ = (
        ("name", ctypes.c_char * 96),
        ("uuid", ctypes.c_char * 80),
        ("bus_id", ctypes.c_char * 32),
        ("vbios", ctypes.c_char * 32),
        ("memory_total", ctypes.c_uint64),
        ("memory_reserved", ctypes.c_uint64),
        ("domain", ctypes.c_uint32),
        ("bus", ctypes.c_uint32),
        ("device", ctypes.c_uint32),
        ("device_id", ctypes.c_uint32),
        ("subsystem_id", ctypes.c_uint32),
        ("architecture", ctypes.c_uint32),
        ("cc_major", ctypes.c_uint32),
        ("cc_minor", ctypes.c_uint32),
        ("can", ctypes.c_uint32),
        ("min_mw", ctypes.c_uint32),
        ("max_mw", ctypes.c_uint32),
        ("default_mw", ctypes.c_uint32),
        ("sm_max_mhz", ctypes.c_uint32),
        ("memory_max_mhz", ctypes.c_uint32),
        ("target_min_c", ctypes.c_uint32),
        ("target_max_c", ctypes.c_uint32),
        ("target_default_c", ctypes.c_uint32),
        ("requested_mw", ctypes.c_uint32),
        ("gpu_lock_min_mhz", ctypes.c_uint32),
        ("gpu_lock_max_mhz", ctypes.c_uint32),
        ("memory_lock_min_mhz", ctypes.c_uint32),
        ("memory_lock_max_mhz", ctypes.c_uint32),
        ("target_c", ctypes.c_uint32),
        ("persistence", ctypes.c_uint32),
        ("faults", ctypes.c_uint32),
        ("bmc_mw", ctypes.c_uint32),
        ("power_mw", ctypes.c_uint32),
        ("average_mw", ctypes.c_uint32),
        ("sm_mhz", ctypes.c_uint32),
        ("memory_mhz", ctypes.c_uint32),
        ("pstate", ctypes.c_uint32),
        ("temperature_c", ctypes.c_uint32),
        ("memory_temperature_c", ctypes.c_uint32),
        ("fan_percent", ctypes.c_uint32),
        ("utilization_percent", ctypes.c_uint32),
        ("memory_utilization_percent", ctypes.c_uint32),
        ("holders", ctypes.c_uint32),
        ("reasons", ctypes.c_uint64),
        ("energy_mj", ctypes.c_uint64),
        ("power_violation_ns", ctypes.c_uint64),
        ("thermal_violation_ns", ctypes.c_uint64),
        ("board_violation_ns", ctypes.c_uint64),
        ("set_at_ns", ctypes.c_uint64),
        ("holder", Holder * MOST_HOLDERS),
    )


class Node(ctypes.Structure):
    """`epoch` is the number of times that the driver was loaded; `hung` are processes (by their number in the node) that shall hang."""

    _fields_ = (
        ("magic", ctypes.c_uint32),
        ("layout", ctypes.c_uint32),
        ("cards", ctypes.c_uint32),
        ("epoch", ctypes.c_uint32),
        ("faults", ctypes.c_uint32),
        ("cuda_version", ctypes.c_uint32),
        ("hung", ctypes.c_uint32 * MOST_HUNG),
        ("driver", ctypes.c_char * 32),
        ("library", ctypes.c_char * 32),
        ("loaded_at_ns", ctypes.c_uint64),
        ("card", Card * MOST_CARDS),
    )


_NAMES: Mapping[Any, str] = {
    ctypes.c_uint32: "uint32_t",
    ctypes.c_uint64: "uint64_t",
    ctypes.c_char: "char",
    Holder: "struct lab_holder",
    Card: "struct lab_card",
}


def header() -> str:
    """The same as a C header."""
    lines = ["/* Made by tests/lab/simulated/layout.py: change it there. */", "#include <stddef.h>", "#include <stdint.h>", ""]
    lines += [f"#define LAB_MAGIC 0x{MAGIC:X}u", f"#define LAB_LAYOUT 0x{version():X}u", f"#define LAB_CARDS {MOST_CARDS}"]
    lines += [f"#define LAB_HOLDERS {MOST_HOLDERS}", f"#define LAB_HUNG {MOST_HUNG}"]
    for prefix, names in (("CAN", CAN), ("CARD", CARD_FAULTS), ("NODE", NODE_FAULTS)):
        lines += [f"#define {prefix}_{name} {bit}u" for name, bit in names.items()]
    for tag, structure in (("lab_holder", Holder), ("lab_card", Card), ("lab_node", Node)):
        lines += ["", f"struct {tag} {{", *(f"    {_member(name, kind)};" for name, kind in _members(structure)), "};"]
        lines.append(_alike(f"sizeof(struct {tag})", ctypes.sizeof(structure)))
        lines += [_alike(f"offsetof(struct {tag}, {name})", getattr(structure, name).offset) for name, _ in _members(structure)]
    return "\n".join(lines) + "\n"


def _alike(expression: str, value: int) -> str:
    return f'_Static_assert({expression} == {value}, "laid out as in Python");'


def version() -> int:
    """Tells a state file of another layout from one of this."""
    text = repr([[(name, str(kind), ctypes.sizeof(kind)) for name, kind in _members(one)] for one in (Holder, Card, Node)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")


@contextlib.contextmanager
def held(path: Path, wait_s: float = _LOCK_S) -> Iterator[Node]:
    """The state as it is now, written back at the end; nobody else reads or writes it meanwhile.

    Raises TimeoutError where somebody keeps the lock, and ValueError for a file of another layout. Nothing stays open afterwards: an open
    file would keep the node's disk from being unmounted.
    """
    with path.open("r+b", buffering=0) as stream:
        _lock(stream.fileno(), path, wait_s)
        before = stream.read()
        if len(before) != ctypes.sizeof(Node):
            raise ValueError(f"{path} has another layout")
        node = Node.from_buffer_copy(before)
        if (node.magic, node.layout) != (MAGIC, version()):
            raise ValueError(f"{path} has another layout")
        yield node
        after = bytes(node)
        if after != before:
            os.pwrite(stream.fileno(), after, 0)


def create(path: Path, node: Node) -> None:
    """Write a state anew, in the file that is there if one is: it may be mounted in the node."""
    node.magic, node.layout = MAGIC, version()
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        os.fchmod(descriptor, 0o666)  # as /dev/nvidiactl is; what may be set is the tool's to say
        _lock(descriptor, path)
        os.ftruncate(descriptor, ctypes.sizeof(Node))
        os.pwrite(descriptor, bytes(node), 0)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path, wait_s: float = _LOCK_S) -> None:
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise TimeoutError(str(path)) from None
            time.sleep(_PAUSE_S)  # flock has no time limit of its own
        else:
            return


def _members(structure: type[ctypes.Structure]) -> list[tuple[str, type]]:
    return [(field[0], field[1]) for field in structure._fields_]


def _member(name: str, kind: type) -> str:
    if issubclass(kind, ctypes.Array):
        return f"{_NAMES[kind._type_]} {name}[{kind._length_}]"
    return f"{_NAMES[kind]} {name}"
