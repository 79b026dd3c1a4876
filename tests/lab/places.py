"""Where a lab lives: its name, folders, bridge and addresses, all read from the environment once and passed on as a value.

Two labs may stand beside each other (WATTHERD_LAB_NAME): they share the cache of images and keys, nothing else.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from wattherd.errors import Problem

Say = Callable[[str], None]

DEFAULT_NAME = "wattherd"
NAMED = ("titan", "atlas", "orin")
MOST_NODES = 50
CHECKOUT = Path(__file__).resolve().parents[2]
_INTERFACE_NAME_MOST = 15
_OVERLAY_BREAKS_ON = re.compile(r"[\s,:\\\"]")


def quiet(_line: str) -> None:
    """The listener of those who do not want to hear."""


@dataclass(frozen=True)
class Places:
    """One lab's folders and names. `cache` outlives `down`; `disks` are the folders in which node disks may lie."""

    name: str
    cache: Path
    inventory: Path
    third_octet: int

    @property
    def disks(self) -> tuple[Path, ...]:
        """In order of preference: beside the image, or on the machine's own disk where overlayfs refuses the cache's file system."""
        inside = Path() if self.name == DEFAULT_NAME else Path(self.name)
        return (self.cache / inside / "nodes", Path("/var/lib/wattherd-lab") / self.name / "nodes")

    @property
    def key(self) -> Path:
        return self.cache / "id_ed25519"

    @property
    def host_keys(self) -> Path:
        return self.cache / "hostkeys"

    @property
    def ccache(self) -> Path:
        return self.cache / "ccache"

    @property
    def run(self) -> Path:
        """Marks and locks that must not outlive the machine's own uptime; shared by all labs."""
        return Path("/run/wattherd-lab")

    @property
    def bridge(self) -> str:
        return f"br-{self.name}"[:_INTERFACE_NAME_MOST]

    @property
    def gateway(self) -> str:
        return f"10.213.{self.third_octet}.1"

    @property
    def network(self) -> ipaddress.IPv4Network:
        return ipaddress.ip_network(f"10.213.{self.third_octet}.0/24")  # type: ignore[return-value] # a v4 text gives a v4 network

    def address(self, number: int) -> str:
        return f"10.213.{self.third_octet}.{number}"

    def machine(self, node: str) -> str:
        """The node's name on this machine: links and control groups of two labs must not collide."""
        return node if self.name == DEFAULT_NAME else f"{node}-{_digest(self.name)[:3]}"

    def link(self, node: str) -> str:
        """The host's end of the node's network cable, as systemd-nspawn names it."""
        return f"vb-{self.machine(node)}"[:_INTERFACE_NAME_MOST]


def here(environ: Mapping[str, str] | None = None) -> Places:
    """The lab that this process's environment asks for."""
    given = os.environ if environ is None else environ
    name = given.get("WATTHERD_LAB_NAME", DEFAULT_NAME)
    if not re.fullmatch(r"[a-z][a-z0-9]{0,11}", name):
        raise Problem("lab-failed", f"WATTHERD_LAB_NAME is {name!r}", hint="use up to 12 lower-case letters and digits: it names a bridge")
    cache = _cache_folder(given) / "lab"
    if _OVERLAY_BREAKS_ON.search(str(cache)):
        message = f"the cache folder {cache} has a space, comma, colon or backslash in its name, which overlay mounts cannot carry"
        raise Problem("lab-failed", message, hint="set WATTHERD_CACHE to a folder with a plain name")
    octet = 7 if name == DEFAULT_NAME else 8 + int(_digest(name), 16) % 240
    return Places(name=name, cache=cache, inventory=_inventory(given, name, cache), third_octet=octet)


def names(count: int) -> tuple[str, ...]:
    """titan, atlas, orin, then node-04 and so on."""
    if not 1 <= count <= MOST_NODES:
        raise Problem("lab-failed", f"a lab has 1 to {MOST_NODES} nodes, not {count}", hint=f"give --nodes a number from 1 to {MOST_NODES}")
    return NAMED[:count] + tuple(f"node-{number:02d}" for number in range(len(NAMED) + 1, count + 1))


def number_of(node: str) -> int | None:
    """The last part of a standard node's address, or None for a node with a name of its own."""
    if node in NAMED:
        return 11 + NAMED.index(node)
    numbered = re.fullmatch(r"node-(\d\d)", node)
    return 10 + int(numbered[1]) if numbered else None


def _cache_folder(given: Mapping[str, str]) -> Path:
    if given.get("WATTHERD_CACHE"):
        return Path(given["WATTHERD_CACHE"]).absolute()
    return Path(given.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "wattherd"


def _inventory(given: Mapping[str, str], name: str, cache: Path) -> Path:
    if given.get("WATTHERD_LAB_INVENTORY"):
        return Path(given["WATTHERD_LAB_INVENTORY"]).absolute()
    return CHECKOUT / "inventory" / "lab.yaml" if name == DEFAULT_NAME else cache / name / "lab.yaml"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]
