"""What a person or a test does to a node's simulated hardware: `python -m tests.lab simulate|fault|hold|release|driver-reload`."""

from __future__ import annotations

import time

from tests.lab import commands, disk, nodes, places
from tests.lab.simulated import daemon, holders, layout, plugging
from wattherd.errors import Problem

_APPEARS_S = 5.0
_PAUSE_S = 0.05


def simulate(name: str, kind: str, driver: str = "", *, lab: places.Places | None = None) -> None:
    """Give a node this hardware, in place of what it has; "none" takes it away. Returns when the node's own tools see it."""
    where = lab or places.here()
    plugging.put(where, disk_of(where, name), kind, driver)
    start(where)


def start(lab: places.Places) -> None:
    """Whatever hardware is simulated in this lab: its programs are those of these sources, and its model runs."""
    marked = [node for node in disk.every(lab) if plugging.kind(node.root)[0]]
    for node in marked:
        plugging.renew(lab, node)
    if marked:
        daemon.ensure(lab)
    else:
        daemon.stop(lab)


def reload(name: str, *, lab: places.Places | None = None) -> None:
    plugging.reload(disk_of(lab or places.here(), name))


def hold(name: str, card: str, user: str = "carol", memory_mib: int = 6000, *, lab: places.Places | None = None) -> int:
    """Another user's process holds a card (an index, "all", or the beginning of a UUID); its number in the node."""
    node = disk_of(lab or places.here(), name)
    indices = cards(node, card)
    unit = f"lab-holder-{time.monotonic_ns()}"
    program = "import signal; signal.pause()"
    nodes.run(name, ["systemd-run", "--quiet", f"--unit={unit}", f"--uid={user}", "/usr/bin/python3", "-c", program, "train.py"], lab=lab)
    pid = int(nodes.run(name, ["systemctl", "show", "--value", "--property=MainPID", unit], lab=lab).stdout)
    holders.register(node.root, pid, "/usr/bin/python3", indices, memory_mib)
    return pid


def release(name: str, pid: int | None = None, *, lab: places.Places | None = None) -> None:
    """End what `hold` started: one, or all of the node."""
    node = disk_of(lab or places.here(), name)
    for one in holders.registered(node.root, nodes.leader(name, lab=lab)):
        if pid in {None, one.inside}:
            nodes.run(name, ["kill", str(one.inside)], check=False, lab=lab)
            holders.forget(node.root, one.inside)


def cards(node: disk.Disk, wanted: str) -> tuple[int, ...]:
    with layout.held(node.root / plugging.STATE) as state:
        uuids = [state.card[index].uuid.decode() for index in range(state.cards)]
    by_uuid = wanted.startswith("GPU-")
    found = tuple(index for index, uuid in enumerate(uuids) if wanted in {"all", str(index)} or (by_uuid and uuid.startswith(wanted)))
    if not found:
        raise Problem("lab-failed", f"{node.node} has no card {wanted}", hint=f"it has {', '.join(uuids)}; all is all of them")
    return found


def disk_of(lab: places.Places, name: str) -> disk.Disk:
    commands.require_root()
    node = disk.find(lab, name)
    if node is None:
        raise Problem("lab-failed", f"the lab has no node {name}", hint="bring it up with lab.up", node=name)
    return node
