"""`python -m tests.lab up|down|status [--nodes N]`: the lab without Invoke."""

from __future__ import annotations

import argparse
import sys

from tests.lab import fleet
from wattherd.errors import Problem


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    parser.add_argument("verb", choices=("up", "down", "status"))
    parser.add_argument("--nodes", type=int, default=3, help="how many nodes `up` boots (default: 3)")
    asked = parser.parse_args()
    try:
        done = fleet.up(asked.nodes, _say) if asked.verb == "up" else fleet.down(_say) if asked.verb == "down" else fleet.status()
    except Problem as problem:
        _say(f"{problem}\n-> {problem.hint}")
        return 1
    for node in done.nodes:
        _say(f"{node.name:10} {node.address:14} {node.state:5} {node.pid or ''}")
    _say(f"{len(done.nodes)} nodes, {done.seconds:.1f} s")
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
