"""Simulated hardware into a node, and out of it again. The node itself puts it in place at every boot (lab-gpu.service)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.lab import boot, commands, disk, places, processes
from tests.lab.simulated import boards, cards, compiled, figures, layout
from wattherd.errors import Problem

#: What says on a node that its hardware is simulated, and which.
MARK = Path("etc/wattherd-lab-simulated")
#: What lab.up gives to the nodes of the shipped inventory.
USUAL = {"titan": "2x3090", "atlas": "p40", "orin": "orin-nx"}
HOME = Path("var/lib/lab-gpu")
STATE = HOME / "state"
_PROGRAMS = Path("usr/lib/lab-gpu")
_NODE = Path(__file__).with_name("node")
_FAN = "nvfancontrol.service"
_UNIT, _WANTED_BY = "lab-gpu.service", "sysinit.target"


def kind(root: Path) -> tuple[str, str]:
    """Which hardware the node with this root has, and which driver was asked for; both empty for none."""
    try:
        first, _, second = (root / MARK).read_text().partition("\n")
    except OSError:
        return "", ""
    return first.strip(), second.strip()


def put(lab: places.Places, node: disk.Disk, wanted: str, driver: str = "") -> None:
    """Files for this hardware on the node's disk, which must be mounted; a running node also gets it put in place.

    "none" and "" take all out.
    """
    leader = processes.of(node.root).leader
    if wanted in {"", "none"}:
        if kind(node.root)[0]:
            _take_out(node, leader)
        return
    ids = figures.kinds(wanted)
    programs = compiled.make(lab)
    if kind(node.root)[0]:
        _take_out(node, leader)
    cards.install(programs / "load", node.root / _PROGRAMS / "load")
    cards.install(_NODE / "setup.sh", node.root / _PROGRAMS / "setup")
    if ids[0] in figures.boards():
        boards.files(node.root, boards.board(ids[0]), programs)
    else:
        _put_cards(node, ids, programs, driver)
    cards.unit(_NODE / _UNIT, node.root, _WANTED_BY)
    commands.write(node.root / MARK, f"{wanted}\n{driver}\n")
    if leader:
        setup(leader, "boot")
        subprocess.run([*boot.enter(leader.pid), "systemctl", "daemon-reload"], check=False, capture_output=True, timeout=30)
        _start_fan(node.root, leader)


def renew(lab: places.Places, node: disk.Disk) -> None:
    """Programs of these sources in place of older ones. Cards whose state has another layout are put in anew."""
    state = node.root / STATE
    if not state.exists():
        return
    try:
        with layout.held(state):
            pass
    except ValueError:
        put(lab, node, *kind(node.root))
        return
    state.chmod(0o666)
    made = compiled.make(lab)
    for source, target in ((made / "nvidia-smi", cards.TOOL), (made / "libnvidia-ml.so.1", cards.library())):
        place = node.root / target
        if place.exists() and place.read_bytes() != source.read_bytes():
            cards.install(source, place)


def reload(node: disk.Disk) -> None:
    """The driver is unloaded and loaded again: limits to default, locks gone, counters at zero, /sys/module/nvidia anew."""
    leader = processes.of(node.root).leader
    if leader is None:
        raise Problem("lab-node-failed", f"{node.node} is off", hint="boot it first", node=node.node)
    setup(leader, "reload")


def setup(leader: processes.Process, verb: str) -> None:
    done = subprocess.run(
        [*boot.enter(leader.pid), "/usr/lib/lab-gpu/setup", verb], check=False, capture_output=True, text=True, timeout=30
    )
    if done.returncode:
        raise Problem(
            "lab-node-failed", f"the simulated hardware could not be put in place: {done.stderr.strip()}", hint="see its last line"
        )


def _put_cards(node: disk.Disk, ids: tuple[str, ...], programs: Path, driver: str) -> None:
    found = [figures.cards()[one] for one in ids]
    made = cards.state(node.node, found, cards.driver(found, driver))
    layout.create(node.root / STATE, made)
    cards.files(node.root, made, programs)


def _take_out(node: disk.Disk, leader: processes.Process | None) -> None:
    if leader and (node.root / _PROGRAMS / "setup").exists():
        subprocess.run([*boot.enter(leader.pid), "systemctl", "stop", _FAN], check=False, capture_output=True, timeout=30)
        setup(leader, "remove")
    for path in (MARK, cards.TOOL, cards.library()):
        (node.root / path).unlink(missing_ok=True)
    cards.remove_unit(node.root, _UNIT, _WANTED_BY)
    boards.remove(node.root)
    for folder in (HOME, _PROGRAMS):
        shutil.rmtree(node.root / folder, ignore_errors=True)


def _start_fan(root: Path, leader: processes.Process) -> None:
    if (root / "usr/lib/systemd/system" / _FAN).exists():
        subprocess.run([*boot.enter(leader.pid), "systemctl", "start", _FAN], check=False, capture_output=True, timeout=30)
