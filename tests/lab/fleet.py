"""The whole lab: up, down, status. Each may be called again at any time, also after one of them was killed half-way."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from tests.lab import boot, cgroups, claim, commands, disk, hosts, image, network, places, processes
from tests.lab import nodes as node_operations
from tests.lab.simulated import compiled, daemon, groups, operations, plugging
from wattherd import units
from wattherd.errors import Problem

T = TypeVar("T")


@dataclass(frozen=True)
class Node:
    """One node as it is now; `pid` is its pid 1 as this machine counts, 0 while it is off. `simulated` is the hardware that it plays."""

    name: str
    address: str
    state: Literal["up", "down"]
    pid: int
    simulated: str = ""


@dataclass(frozen=True)
class Status:
    """`slowed` says how the clocks of simulated cards slow real servers here, and begins with "not" where they cannot."""

    nodes: tuple[Node, ...]
    image: str
    seconds: float
    slowed: str = ""


def up(nodes: int = 3, say: places.Say = places.quiet, *, ccache: bool = True, lab: places.Places | None = None) -> Status:
    """Boot the first `nodes` nodes that are not up yet; those that run are left alone, and where there are more, they stay."""
    began = time.monotonic()
    where = lab or places.here()
    names = places.names(nodes)
    commands.require_root()
    commands.require_programs(say)
    with claim.alone(where, say):
        tree = image.make(lab=where, say=say)
        claim.take(where)
        disk.make_key(where)
        disk.choose(where)
        network.make_bridge(where)
        say(f"booting {units.plural(nodes, 'node')}")
        try:
            _for_each(names, lambda name: _up_one(where, name, tree, ccache=ccache, say=say))
            operations.start(where)
        finally:
            hosts.write(where)
    return _status(where, began)


def down(say: places.Say = places.quiet, *, lab: places.Places | None = None) -> Status:
    """Switch all nodes off and take away everything that the lab put on this machine; image, keys and compiler cache stay."""
    began = time.monotonic()
    where = lab or places.here()
    commands.require_root()
    with claim.alone(where, say):
        claim.refuse_others(where)
        daemon.stop(where)
        _switch_off(where, say)
        network.remove_bridge(where)
        cgroups.remove_all(where)
        groups.remove_all(where)
        hosts.remove(where)
        image.remove_leftovers(where)
        compiled.remove_leftovers(where)
        disk.remove_empty(where)
        claim.release(where)
    return _status(where, began)


def status(*, lab: places.Places | None = None) -> Status:
    return _status(lab or places.here(), time.monotonic())


def _up_one(lab: places.Places, name: str, tree: Path, *, ccache: bool, say: places.Say) -> None:
    node = disk.find(lab, name) or node_operations.fresh(lab, name, tree, ccache=ccache)
    boot.ensure(lab, node)
    say(f"{name} answers at {node.address}")


def _switch_off(lab: places.Places, say: places.Say) -> None:
    """All nodes, and again while one is there: a keeper that a killed `up` had only just started shows up late."""
    while folders := disk.folders(lab):
        say(f"switching off {units.plural(len(folders), 'node')}")
        _for_each(folders, lambda folder: _down_one(lab, folder))
        for folder in folders:
            if processes.of(folder / "root").any:
                folder.mkdir()


def _down_one(lab: places.Places, folder: Path) -> None:
    boot.shut(lab, folder.name, folder)
    disk.remove(folder)


def _for_each(items: Iterable[T], work: Callable[[T], None]) -> None:
    """All at once, as far as this machine's processors go; one that fails does not stop the others, and is told at the end."""
    with futures.ThreadPoolExecutor(max_workers=4 * (os.cpu_count() or 1)) as pool:
        started = [pool.submit(work, item) for item in items]
        problems = [error for each in started if (error := each.exception())]
    if problems:
        first, *others = problems
        if others and isinstance(first, Problem):
            raise Problem(first.code, f"{first.message}\n(and {len(others)} more)", hint=first.hint)
        raise first


def _status(lab: places.Places, began: float) -> Status:
    disks = disk.every(lab)
    found = processes.of_all(tuple(node.root for node in disks))
    return Status(
        nodes=tuple(_node(node, found[node.root].leader) for node in disks),
        image=str(image.path(image.recipe(), lab)),
        seconds=time.monotonic() - began,
        slowed=groups.how(),
    )


def _node(node: disk.Disk, leader: processes.Process | None) -> Node:
    return Node(node.node, node.address, "up" if leader else "down", leader.pid if leader else 0, plugging.kind(node.root)[0])
