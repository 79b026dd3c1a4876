"""`invoke demo`: the main job on the lab, step by step, with the very commands that a person would type."""

from __future__ import annotations

import subprocess
import sys
import time

from wattherd import units
from wattherd.tasks.flags import Common, command

_STEPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Three real Debian nodes boot on this machine: systemd, sshd, a bridge of their own.", ("lab.up",)),
    ("Nobody is trusted unseen: their host keys are fetched, shown and recorded.", ("trust", "--hosts", "lab", "--yes")),
    ("What would a deploy change? A check writes nothing.", ("deploy", "--hosts", "gpu-fleet", "--check")),
    (
        "The deploy: llama.cpp is built once, shipped to the other nodes, and serves a real model on each. The build takes minutes.",
        ("deploy", "--hosts", "gpu-fleet"),
    ),
    ("A second run finds nothing to do.", ("deploy", "--hosts", "gpu-fleet")),
    ("And the model answers, from each node.", ("ask", "--hosts", "gpu-fleet", "Say hello in one short sentence.")),
    (
        "What each card may draw, and what it draws with the model resident. These cards are simulated.",
        ("power-status", "--hosts", "gpu-fleet"),
    ),
)


@command(("verbose",))
def demo(common: Common) -> int:
    """The main job on the lab: bare nodes to a served model that answers, its cards held at their power (root needed)."""
    begun_s = time.monotonic()
    for words, step in _STEPS:
        common.screen.say(f"\n{words}", "bold")
        common.screen.say(f"$ invoke {' '.join(step)}", "dim")
        code = subprocess.run([sys.executable, "-m", "invoke", *step], cwd=common.root, check=False).returncode
        if code:
            common.screen.say(f"\nThe demo stopped: `invoke {step[0]}` ended with exit code {code}. Its own words are above.", "red")
            return code
    common.screen.say(f"\nDone in {units.duration(time.monotonic() - begun_s)}. The fleet stays up until invoke lab.down.")
    return 0
