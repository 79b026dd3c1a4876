"""The nodes that are measured on: a lab of the benchmark's own, or some of a lab that is up; and root's way in, for what is not timed.

A deploy takes away what an earlier one made and this one does not want, so nodes that hold somebody else's deployment are refused.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path

from tests.lab import disk, fleet, places
from wattherd.errors import Problem

OWN_LAB = "noop"
#: OpenSSH's own first choice costs ten times the CPU here and is what none of the others uses: one kind for all, as in the peers' figures.
KEX = "curve25519-sha256"
_AT_ONCE = 8
_MINE_OR_NOBODYS = "cd /var/lib/wattherd 2>/dev/null || exit 0; ! test -s owned.json || grep -q -e '^{{}}$' -e {mark} owned.json"


@dataclass(frozen=True)
class Node:
    name: str
    address: str
    leader: int


@dataclass(frozen=True)
class Herd:
    """`ssh` are the options of OpenSSH that lead to any of the nodes."""

    nodes: tuple[Node, ...]
    key: Path
    known_hosts: Path

    @property
    def ssh(self) -> tuple[str, ...]:
        options = (
            *("IdentitiesOnly=yes", f"UserKnownHostsFile={self.known_hosts}", "StrictHostKeyChecking=yes"),
            *("BatchMode=yes", "LogLevel=ERROR", f"KexAlgorithms={KEX}"),
        )
        return ("-F", "/dev/null", "-i", str(self.key), *(word for option in options for word in ("-o", option)))

    def each(self, script: str, given: bytes = b"") -> dict[str, str]:
        """Run a shell script as root on every node; what it printed, by the node's name."""

        def ask(node: Node) -> str:
            argv = ["ssh", *self.ssh, f"root@{node.address}", script]
            done = subprocess.run(argv, input=given, capture_output=True, timeout=600, check=False)
            if done.returncode:
                raise Problem("lab-node-failed", f"{node.name}: {done.stderr.decode(errors='replace').strip() or script}")
            return done.stdout.decode()

        with futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            return dict(zip((node.name for node in self.nodes), pool.map(ask, self.nodes), strict=True))


@contextlib.contextmanager
def own(count: int, folder: Path, say: places.Say) -> Iterator[Herd]:
    """Nodes that nobody else uses, gone again at the end."""
    lab = places.here({**os.environ, "WATTHERD_LAB_NAME": OWN_LAB, "WATTHERD_LAB_INVENTORY": ""})
    try:
        up = fleet.up(count, say, ccache=False, lab=lab)
        yield _herd(lab, up.nodes[:count], folder)
    finally:
        fleet.down(say, lab=lab)


@contextlib.contextmanager
def lent(first: int, count: int, folder: Path, mark: str) -> Iterator[Herd]:
    """Nodes of the lab that is up, from number `first` on. `mark` is a word of this benchmark's own deployments."""
    lab = places.here()
    names = places.names(first + count - 1)[first - 1 :]
    found = {node.name: node for node in fleet.status(lab=lab).nodes if node.state == "up"}
    missing = [name for name in names if name not in found]
    if missing:
        raise Problem("lab-failed", f"not up in the lab: {', '.join(missing)}", hint=f"invoke lab.up --nodes {first + count - 1}")
    herd = _herd(lab, tuple(found[name] for name in names), folder)
    try:
        herd.each(_MINE_OR_NOBODYS.format(mark=mark))
    except Problem as problem:
        message = f"{problem.message.partition(':')[0]} holds a deployment of somebody else, which this benchmark would remove"
        raise Problem("lab-failed", message, hint="name bare nodes, or leave --nodes-from away: then it boots its own") from problem
    yield herd


def _herd(lab: places.Places, nodes: tuple[fleet.Node, ...], folder: Path) -> Herd:
    shown = []
    for node in nodes:
        public = (lab.host_keys / node.name / "ssh_host_ed25519_key.pub").read_text().split()
        shown.append(f"{node.address} {public[0]} {public[1]}\n")
    known_hosts = folder / "known_hosts"
    known_hosts.write_text("".join(shown))
    disk.make_key(lab)
    return Herd(tuple(Node(node.name, node.address, node.pid) for node in nodes), lab.key, known_hosts)
