"""Waiting for something on a node that offers no event: looked at often, given up after a while."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.lab import nodes


def until(name: str, script: str, limit_s: float = 60) -> None:
    """Poll until the script succeeds on the node."""
    end_s = time.monotonic() + limit_s
    while nodes.run(name, ["sh", "-c", script], check=False).returncode != 0:
        assert time.monotonic() < end_s, f"never came true on {name}: {script}"
        time.sleep(0.1)


def until_true(ask: Callable[[], bool], limit_s: float = 20) -> None:
    """Ask until the answer is yes."""
    end_s = time.monotonic() + limit_s
    while not ask():
        assert time.monotonic() < end_s, "it never came true"
        time.sleep(0.1)
