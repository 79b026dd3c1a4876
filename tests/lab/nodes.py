"""What a test may do to one node, by its name. The lab must be up; `fleet` sees to that.

Every function takes the lab as `lab=`, and without it the one that the environment names.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.lab import boot as power
from tests.lab import claim, commands, disk, hosts, image, network, places, processes
from tests.lab.simulated import plugging
from wattherd.errors import Problem

_NAME = re.compile(r"[a-z][a-z0-9-]{0,7}")
_OWN_NAMES_FROM = 201
_REACHED_S = 5.0


def run(
    name: str, argv: Sequence[str], *, text: str = "", check: bool = True, timeout_s: float = 120, lab: places.Places | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program inside the node as root, not through SSH. `text` is its standard input."""
    node = _disk(lab or places.here(), name)
    argv = [*power.enter(_leader(node).pid), *argv]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, errors="replace", input=text, timeout=timeout_s)
    if check and done.returncode:
        message = f"{name}: {argv[-1]} ended with {done.returncode}: {commands.tail(done.stderr or done.stdout)}"
        raise Problem("lab-node-failed", message, hint=f"the command was: {' '.join(argv)}", node=name)
    return done


def leader(name: str, *, lab: places.Places | None = None) -> int:
    """The node's pid 1 as this machine counts; another one after each boot."""
    return _leader(_disk(lab or places.here(), name)).pid


def root(name: str, *, lab: places.Places | None = None) -> Path:
    """The node's file system, readable here whether the node is on or off."""
    return _disk(lab or places.here(), name).root


def power_off(name: str, *, lab: places.Places | None = None) -> None:
    """A power cut: everything in the node is killed at once; its disk stays."""
    where = lab or places.here()
    power.cut(where, name, Path(_disk(where, name).folder))


def shut_down(name: str, *, lab: places.Places | None = None) -> None:
    """Off as `systemctl poweroff` does it; its disk stays."""
    where = lab or places.here()
    power.shut(where, name, Path(_disk(where, name).folder))


def boot(name: str, *, lab: places.Places | None = None) -> None:
    """Power for a node that is off, with the disk it has; returns when it answers. A running node stays as it is."""
    where = lab or places.here()
    power.ensure(where, _disk(where, name))


def reboot(name: str, *, lab: places.Places | None = None) -> None:
    """`systemctl reboot`, until the node answers again."""
    before = leader(name, lab=lab)
    run(name, ["systemctl", "reboot"], check=False, lab=lab)
    wait_rebooted(name, before, lab=lab)


def wait_rebooted(name: str, before: int, *, timeout_s: float = power.READY_S, lab: places.Places | None = None) -> None:
    """Wait until a node that somebody else reboots answers again; `before` is its `leader` of before."""
    power.wait_ready(_disk(lab or places.here(), name), not_leader=before, timeout_s=timeout_s)


def wipe(name: str, *, lab: places.Places | None = None) -> None:
    """A bare machine again: the same name, address, host keys and simulated hardware, nothing that was ever written to it."""
    where = lab or places.here()
    node = _disk(where, name)
    hardware = plugging.kind(node.root)
    power.shut(where, name, Path(node.folder))
    disk.prepare(where, node)
    plugging.put(where, node, *hardware)
    power.ensure(where, node)


def stop_sshd(name: str, *, lab: places.Places | None = None) -> None:
    """New connections are refused."""
    run(name, ["systemctl", "stop", "ssh.service"], lab=lab)


def start_sshd(name: str, *, lab: places.Places | None = None) -> None:
    run(name, ["systemctl", "start", "ssh.service"], lab=lab)


def freeze_sshd(name: str, *, lab: places.Places | None = None) -> None:
    """TCP connects, and then the server never says a word."""
    run(name, ["systemctl", "kill", "--kill-who=main", "--signal=STOP", "ssh.service"], lab=lab)


def thaw_sshd(name: str, *, lab: places.Places | None = None) -> None:
    run(name, ["systemctl", "kill", "--kill-who=main", "--signal=CONT", "ssh.service"], lab=lab)


def block(name: str, *, lab: places.Places | None = None) -> None:
    """Pull the network cable: packets vanish without an answer."""
    network.disconnect(lab or places.here(), name)


def unblock(name: str, *, lab: places.Places | None = None) -> None:
    """Plug it in again; returns when the node can be reached, if its SSH server is willing."""
    where = lab or places.here()
    network.connect(where, name)
    network.wait_for_ssh(_disk(where, name).address, _REACHED_S, lambda: True)


def shape(name: str, rate: str, *, lab: places.Places | None = None) -> None:
    """Limit what the node receives and what it sends, each to `rate` ("200mbit", "1gbit")."""
    network.shape(lab or places.here(), name, leader(name, lab=lab), rate)


def unshape(name: str, *, lab: places.Places | None = None) -> None:
    network.unshape(lab or places.here(), name, leader(name, lab=lab))


def add(name: str, suite: str = image.SUITE, *, lab: places.Places | None = None, say: places.Say = places.quiet) -> str:
    """One more node in a lab that is up, of another Debian if wanted; its address. A name of one's own gets an address from .201 on."""
    where = lab or places.here()
    if not _NAME.fullmatch(name):
        raise Problem("lab-failed", f"{name!r} is no name for a lab node", hint="use up to 8 lower-case letters, digits and hyphens")
    tree = image.make(suite, lab=where, say=say)
    with claim.alone(where, say):
        node = disk.find(where, name) or fresh(where, name, tree)
        power.ensure(where, node)
        hosts.write(where)
    return node.address


def remove(name: str, *, lab: places.Places | None = None, say: places.Say = places.quiet) -> None:
    """Take one node away, with all that was written to it."""
    where = lab or places.here()
    with claim.alone(where, say):
        folder = Path(_disk(where, name).folder)
        power.shut(where, name, folder)
        disk.remove(folder)
        hosts.write(where)


def fresh(lab: places.Places, name: str, tree: Path, *, ccache: bool = True) -> disk.Disk:
    """A new bare disk for a node of this name."""
    number = places.number_of(name) or _free_number(lab)
    node = disk.Disk(name, lab.address(number), str(tree), str(disk.choose(lab) / name), ccache=ccache)
    power.cut(lab, name, Path(node.folder))
    disk.prepare(lab, node)
    plugging.put(lab, node, plugging.USUAL.get(name, ""))
    return node


def _free_number(lab: places.Places) -> int:
    taken = {int(node.address.rpartition(".")[2]) for node in disk.every(lab)}
    return next(number for number in range(_OWN_NAMES_FROM, 255) if number not in taken)


def _disk(lab: places.Places, name: str) -> disk.Disk:
    commands.require_root()
    node = disk.find(lab, name)
    if node is None:
        known = ", ".join(other.node for other in disk.every(lab)) or "none"
        raise Problem("lab-failed", f"the lab has no node {name} (it has: {known})", hint="bring it up with lab.up", node=name)
    return node


def _leader(node: disk.Disk) -> processes.Process:
    found = processes.of(node.root).leader
    if found is None:
        raise Problem("lab-node-failed", f"{node.node} is off", hint="boot it first: nodes.boot", node=node.node)
    return found
