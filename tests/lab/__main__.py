"""`python -m tests.lab up|down|status [--nodes N]`: the lab without Invoke; simulate, fault, hold … are for its simulated hardware."""

from __future__ import annotations

import argparse
import sys

from tests.lab import fleet
from tests.lab.simulated import commandline
from wattherd.errors import Problem


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="boot the nodes")
    up.add_argument("--nodes", type=int, default=3, help="how many nodes `up` boots (default: 3)")
    for verb, does in (("down", "switch all off"), ("status", "which nodes are up")):
        verbs.add_parser(verb, help=does)
    commandline.add(verbs)
    asked = parser.parse_args()
    try:
        if asked.verb not in {"up", "down", "status"}:
            commandline.run(asked, _say)
            return 0
        done = fleet.up(asked.nodes, _say) if asked.verb == "up" else fleet.down(_say) if asked.verb == "down" else fleet.status()
    except Problem as problem:
        _say(f"{problem}\n-> {problem.hint}")
        return 1
    for node in done.nodes:
        _say(f"{node.name:10} {node.address:14} {node.state:5} {node.pid or '':<8} {node.simulated}".rstrip())
    _say(f"{len(done.nodes)} nodes, {done.seconds:.1f} s; clocks of simulated cards slow real servers {done.slowed}")
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
