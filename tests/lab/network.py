"""The lab's wire: one bridge, one cable per node, what can be done to a cable, and whether a node's SSH server speaks."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path

from tests.lab import commands, places
from wattherd.errors import Problem

_LINKS = Path("/sys/class/net")
_ATTEMPT_S = 0.5
_PAUSE_S = 0.05
_SSH_PORT = 22


def make_bridge(lab: places.Places) -> None:
    if not _exists(lab.bridge):
        _refuse_taken(lab)
        commands.run(["ip", "link", "add", lab.bridge, "type", "bridge", "stp_state", "0", "forward_delay", "0"])
    commands.run(["ip", "address", "replace", f"{lab.gateway}/24", "dev", lab.bridge])
    commands.run(["ip", "link", "set", lab.bridge, "up"])


def connect(lab: places.Places, node: str) -> None:
    """Put a cable back that a test pulled or that lost its bridge."""
    if _exists(lab.link(node)):
        commands.run(["ip", "link", "set", lab.link(node), "master", lab.bridge, "up"])


def disconnect(lab: places.Places, node: str) -> None:
    commands.run(["ip", "link", "set", lab.link(node), "down"])


def remove_link(lab: places.Places, node: str) -> None:
    """A killed node's cable goes with its network namespace, some time later: not to wait for that, it is taken away now."""
    if _exists(lab.link(node)):
        commands.run(["ip", "link", "delete", lab.link(node)], check=False)


def remove_bridge(lab: places.Places) -> None:
    for port in cables(lab):
        commands.run(["ip", "link", "delete", port], check=False)
    if _exists(lab.bridge):
        commands.run(["ip", "link", "delete", lab.bridge])


def cables(lab: places.Places) -> tuple[str, ...]:
    """The links on the lab's bridge."""
    ports = _LINKS / lab.bridge / "brif"
    return tuple(sorted(port.name for port in ports.iterdir())) if ports.is_dir() else ()


def shape(lab: places.Places, node: str, leader: int, rate: str) -> None:
    """Limit what the node receives and what it sends; `rate` as tc writes it, for example 200mbit."""
    limit = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", "400ms")
    commands.run(["tc", "qdisc", "replace", "dev", lab.link(node), *limit])
    commands.run(["nsenter", "-t", str(leader), "-n", "tc", "qdisc", "replace", "dev", "host0", *limit])


def unshape(lab: places.Places, node: str, leader: int) -> None:
    commands.run(["tc", "qdisc", "delete", "dev", lab.link(node), "root"], check=False)
    commands.run(["nsenter", "-t", str(leader), "-n", "tc", "qdisc", "delete", "dev", "host0", "root"], check=False)


def wait_for_ssh(address: str, timeout_s: float, alive: Callable[[], bool]) -> bool:
    """Connect until the server's banner comes; False where the time is over or the node is no longer alive."""
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        if speaks(address):
            return True
        if not alive():
            return False
        time.sleep(_PAUSE_S)  # a refused connection returns at once: the node's port is the event, and it can only be asked
    return False


def speaks(address: str, timeout_s: float = _ATTEMPT_S) -> bool:
    """Does an SSH server greet whoever connects?"""
    with contextlib.suppress(OSError), connection(address, timeout_s) as wire:
        return wire.recv(4) == b"SSH-"
    return False


def connection(address: str, timeout_s: float) -> socket.socket:
    """A TCP connection to a node's SSH port."""
    return socket.create_connection((address, _SSH_PORT), timeout=timeout_s)


def _refuse_taken(lab: places.Places) -> None:
    """Another network of this machine may already own the addresses."""
    routes = json.loads(commands.run(["ip", "-json", "route", "show", "to", "match", lab.gateway]).stdout or "[]")
    taken = next((route for route in routes if route.get("dst") not in (None, "default")), None)
    if taken:
        message = f"the lab's network {lab.network} is already used here, by {taken.get('dev', 'an unnamed link')}"
        raise Problem("lab-failed", message, hint="choose another lab network with WATTHERD_LAB_NAME, or take that link down")


def _exists(link: str) -> bool:
    return (_LINKS / link).exists()
