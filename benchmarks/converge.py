"""A converge that changes nothing, side by side: Wattherd, the bare script, and with --peers Ansible and pyinfra.

`python benchmarks/converge.py --nodes 20 [--repeat 5] [--peers] [--json]`, as root. Boots a lab of its own and takes it down again;
with --nodes-from it borrows nodes of the lab that is up. All tools are asked for the same 28 things (noop/state.py), in turns (A, B, A,
B …), so that a noisy machine is noisy for all. A run that changes anything is a failure of the benchmark, not a figure.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # a script's own folder comes first; the packages lie beside it

from benchmarks.noop import contenders, herd, measure, state  # noqa: E402
from wattherd.errors import Problem  # noqa: E402

_TOOLS = ("wattherd", "bare", "ansible", "pyinfra")
Runs = dict[str, list[measure.Cost]]


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def measured(asked: argparse.Namespace, folder: Path) -> tuple[Runs, dict[str, str]]:
    nodes = (
        herd.lent(asked.nodes_from, asked.nodes, folder, Path(state.SYSCTL[0]).name)
        if asked.nodes_from
        else herd.own(asked.nodes, folder, say)
    )
    if asked.peers:
        from benchmarks.noop import peers
    with nodes as found:
        say("bringing the nodes to the common state (not timed)")
        ours = contenders.wattherd(found, folder)
        try:
            fielded = [ours, contenders.bare(found, folder)]
            if asked.peers:
                fielded += peers.made_ready(found, folder, say)
            for one in fielded[:2]:
                one.run(found)  # once for nothing: the node program and the remembered digests are there from now on
            return _in_turns(fielded, found, asked.repeat), _versions(fielded)
        finally:
            if asked.nodes_from:
                contenders.remove(ours, found)
                if asked.peers:
                    peers.leave(found)


def _in_turns(fielded: Sequence[contenders.Contender], nodes: herd.Herd, repeat: int) -> Runs:
    runs: Runs = {one.name: [] for one in fielded}
    for turn in range(repeat):
        for one in fielded:
            if one.repeat is None or turn < one.repeat:
                cost = one.run(nodes)
                runs[one.name].append(cost)
                say(f"  {turn + 1}/{repeat}  {one.name:<9} {cost.wall_s:7.2f} s   load {os.getloadavg()[0]:.1f}")
    return runs


def _versions(fielded: Sequence[contenders.Contender]) -> dict[str, str]:
    said = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=False).stderr
    found = {"python": platform.python_version(), "openssh": said.split(",")[0].strip()}
    found |= {name: metadata.version(name) for name in ("wattherd", "fabric", "paramiko")}
    return {**found, **{name: version for one in fielded for name, version in one.versions.items()}}


def document(runs: Runs, versions: Mapping[str, str], nodes: int) -> dict[str, object]:
    noop = {name: round(statistics.median(cost.wall_s for cost in runs[name]), 3) if runs.get(name) else None for name in _TOOLS}
    wattherd, bare = noop["wattherd"], noop["bare"]
    return {
        "noop": noop,
        "ratio": round(wattherd / bare, 3) if wattherd and bare else None,
        "nodes": nodes,
        "versions": dict(versions),
        "runs": {name: [asdict(cost) for cost in costs] for name, costs in runs.items()},
    }


def table(runs: Runs, versions: Mapping[str, str], nodes: int) -> str:
    base = statistics.median(cost.wall_s for cost in runs["bare"])
    lines = [f"a converge that changes nothing, {nodes} nodes; seconds, median (least..most)", ""]
    lines.append(f"{'':<10}{'wall':>24}{'of bare':>9}{'CPU here':>24}{'CPU of all nodes':>24}{'runs':>6}")
    for name, costs in runs.items():
        walls = [cost.wall_s for cost in costs]
        nodes_cpu = [cost.nodes_cpu_s for cost in costs if cost.nodes_cpu_s is not None]
        shown = f"{name:<10}{_spread(walls):>24}{statistics.median(walls) / base:>9.2f}{_spread([cost.cpu_s for cost in costs]):>24}"
        lines.append(f"{shown}{_spread(nodes_cpu):>24}{len(costs):>6}")
    lines += ["", ", ".join(f"{name} {version}" for name, version in versions.items())]
    return "\n".join(lines)


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}..{max(values):.2f})" if values else "-"


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--peers", action="store_true", help="also Ansible and pyinfra, once each: minutes")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--nodes-from", type=int, metavar="N", help="borrow nodes N, N+1 … of the lab that is up (1 is titan)")
    return parser.parse_args()


def main() -> int:
    asked = _asked()
    try:
        with tempfile.TemporaryDirectory(prefix="wattherd-noop-") as folder:
            runs, versions = measured(asked, Path(folder))
    except Problem as problem:
        say(f"{problem.message} ({problem.code})\n  -> {problem.hint}" if problem.hint else f"{problem.message} ({problem.code})")
        return 1
    print(json.dumps(document(runs, versions, asked.nodes), indent=2) if asked.json else table(runs, versions, asked.nodes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
