"""The words of `python -m tests.lab simulate|fault|hold|release|driver-reload`: one node's simulated hardware by hand."""

from __future__ import annotations

import argparse

from tests.lab import places
from tests.lab.simulated import faults, operations


def add(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    simulate = verbs.add_parser("simulate", help="put cards or a board into a node")
    simulate.add_argument("node")
    simulate.add_argument("kind", help="2x3090, p40, orin-nx, any id of cards.yaml or boards.yaml, several with +, or none")
    simulate.add_argument("--driver", default="", help="another driver version than the one that the card was seen with")
    fault = verbs.add_parser("fault", help="break a card, the driver or a tool; clear mends it")
    fault.add_argument("node")
    fault.add_argument("card", help="an index, the beginning of a UUID, or all")
    fault.add_argument("fault", help=f"clear, or one of: {', '.join(sorted(faults.NAMES))}")
    hold = verbs.add_parser("hold", help="let another user's process hold a card")
    hold.add_argument("node")
    hold.add_argument("card")
    hold.add_argument("--user", default="carol")
    hold.add_argument("--memory-mib", type=int, default=6000)
    release = verbs.add_parser("release", help="end what hold started")
    release.add_argument("node")
    release.add_argument("pid", nargs="?", type=int)
    verbs.add_parser("driver-reload", help="unload and load the driver").add_argument("node")


def run(asked: argparse.Namespace, say: places.Say) -> None:
    if asked.verb == "simulate":
        operations.simulate(asked.node, asked.kind, asked.driver)
        say(f"{asked.node}: {asked.kind}")
    elif asked.verb == "fault":
        faults.set_fault(asked.node, asked.card, asked.fault)
        say(f"{asked.node} {asked.card}: {asked.fault}")
    elif asked.verb == "hold":
        say(f"{asked.node}: process {operations.hold(asked.node, asked.card, asked.user, asked.memory_mib)} holds {asked.card}")
    elif asked.verb == "release":
        operations.release(asked.node, asked.pid)
        say(f"{asked.node}: released")
    else:
        operations.reload(asked.node)
        say(f"{asked.node}: driver loaded anew")
