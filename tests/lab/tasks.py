"""`invoke lab.up`, `lab.status`, `lab.test`, `lab.cuda`, `lab.down`: the lab fleet of this checkout."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

from invoke.collection import Collection

from tests.lab import fleet, places
from wattherd import units
from wattherd.tasks.flags import Common, command, number

_FLAGS = ("verbose", "json")
#: Compiling for an hour takes what nothing else wants.
_LOW = 15


@command(_FLAGS, help={"nodes": "how many nodes: titan, atlas, orin, then node-04 …"})
def up(common: Common, *, nodes: str = "3") -> int:
    """Boot real Debian nodes on this machine (as root): systemd, sshd, a bridge of their own."""
    return _show(common, fleet.up(number("nodes", nodes, places.MOST_NODES), common.screen.say))


@command(_FLAGS)
def status(common: Common) -> int:
    """Which nodes are up, at which address."""
    return _show(common, fleet.status())


@command(_FLAGS)
def down(common: Common) -> int:
    """Switch the nodes off and leave nothing behind but caches."""
    return _show(common, fleet.down(common.screen.say))


@command(("verbose",), help={"k": "only tests whose name matches"}, name="test")
def tests(common: Common, *, k: str = "") -> int:
    """Run the lab tests (as root)."""
    chosen = ["-k", k] if k else []
    return subprocess.run([sys.executable, "-m", "pytest", "-m", "lab and not quiet", *chosen], cwd=common.root, check=False).returncode


@command(_FLAGS)
def cuda(common: Common) -> int:
    """Compile the CUDA build of the real source whole, without a card (an hour or two; the second time minutes)."""
    from tests.lab import cuda as building

    os.nice(max(0, _LOW - os.nice(0)))
    found = building.compile_whole(common.screen.say)
    rows = dataclasses.asdict(found)
    if common.screen.as_json:
        common.screen.document(rows)
    common.screen.table(("figure", "value"), [(name, str(value)) for name, value in rows.items()])
    return 0


def _show(common: Common, found: fleet.Status) -> int:
    if common.screen.as_json:
        common.screen.document(dataclasses.asdict(found))
    rows = [(node.name, node.address, node.state, str(node.pid or ""), node.simulated) for node in found.nodes]
    if rows:
        common.screen.table(("node", "address", "state", "pid", "simulated hardware"), rows)
        common.screen.say(f"clocks of simulated cards slow real servers {found.slowed}", "dim")
    common.screen.say(f"{units.plural(len(rows), 'node')} in {units.duration(found.seconds)}", "dim")
    return 0


namespace = Collection(up, status, down, tests, cuda)
