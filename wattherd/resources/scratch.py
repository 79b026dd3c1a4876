"""A folder for a while in Wattherd's own program cache, the one place that a check may write to. Knows nothing of what is laid there."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Iterator

from wattherd import machine as machines

CACHE = "/var/cache/wattherd"


@contextlib.contextmanager
def folder(machine: machines.Machine, kind: str, name: str = "") -> Iterator[str]:
    """A path where nothing is yet, this process' own, and nothing is again afterwards. What killed ones of this kind left goes first."""
    for left in machine.names(CACHE):
        found = re.match(rf"{re.escape(kind)}-(?:.*-)?([0-9]+)\Z", left)
        if found and not machine.exists(f"/proc/{found.group(1)}"):
            with contextlib.suppress(OSError):  # another may be sweeping too
                machine.remove_tree(f"{CACHE}/{left}")
    path = "-".join(word for word in (f"{CACHE}/{kind}", name, str(os.getpid())) if word)
    if machine.exists(path):
        machine.remove_tree(path)
    try:
        yield path
    finally:
        if machine.exists(path):
            machine.remove_tree(path)
