"""A control group for each node, where this machine has no systemd that would give one.

Without it all nodes would share the group that they were started from, and one node's systemd would manage another's processes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from tests.lab import places

_BOOTED_BY_SYSTEMD = Path("/run/systemd/system")
PARENT = "wattherd-lab"
_BUSY_S = 2.0
_PAUSE_S = 0.02


def given_by_systemd() -> bool:
    """True where systemd-nspawn may ask the machine's own systemd for a scope."""
    return _BOOTED_BY_SYSTEMD.is_dir()


def make(lab: places.Places, node: str) -> tuple[Path, ...]:
    """The node's groups, in every hierarchy in which systemd keeps its own."""
    groups = tuple(folder / lab.machine(node) for folder in _folders(lab))
    for group in groups:
        group.mkdir(parents=True, exist_ok=True)
    return groups


def members(lab: places.Places, node: str) -> frozenset[int]:
    """The process numbers in the node's groups: only the lab puts any there."""
    listed: set[int] = set()
    for folder in _folders(lab):
        for procs in (folder / lab.machine(node)).rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                listed.update(int(line) for line in procs.read_text().split())
    return frozenset(listed)


def remove(lab: places.Places, node: str) -> None:
    for folder in _folders(lab):
        _remove_tree(folder / lab.machine(node))


def remove_all(lab: places.Places) -> None:
    for folder in _folders(lab):
        for group in folder.glob("*/"):
            _remove_tree(group)
        for empty in (folder, folder.parent):
            with contextlib.suppress(OSError):
                empty.rmdir()


def _folders(lab: places.Places) -> tuple[Path, ...]:
    return () if given_by_systemd() else tuple(mount / PARENT / lab.name for mount in _hierarchies())


def _hierarchies() -> Iterator[Path]:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup2" or (kind == "cgroup" and "name=systemd" in options.split(",")):
            yield Path(where)


def _remove_tree(group: Path) -> None:
    """Groups are folders without files of their own. One whose last process has just ended is busy for a moment more."""
    until = time.monotonic() + _BUSY_S
    while group.is_dir():
        for folder, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        if not group.is_dir() or time.monotonic() > until:
            return
        time.sleep(_PAUSE_S)  # the kernel tells of a group that became empty only in the unified hierarchy
