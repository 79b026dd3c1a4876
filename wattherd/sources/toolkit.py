"""Toolkits as wheels: which sets are pinned, and one wheel of a set as a verified file in the controller's cache.

The digests stand in toolkits.pins, so a role can name a toolkit without any network, and nothing else can arrive under its name.
A wheel is fetched when the first node asks for it. Knows no host and no card.
"""

from __future__ import annotations

import functools
import re
import threading
from pathlib import Path

from wattherd import errors, material
from wattherd.sources import cache as caches
from wattherd.sources import pypi, spec

_PINS = Path(__file__).with_name("toolkits.pins")
_HEAD = re.compile(r"\[(\S+) (\S+) (\S+) (\S+)\]\Z")
_PIN = re.compile(r"([0-9a-f]{64}) (\d+) (\S+)==(\S+) (\S+\.whl)\Z")
_one_at_a_time = threading.Lock()


@functools.cache
def offers() -> tuple[material.Toolkit, ...]:
    """Every pinned set, the newest of a name first, as the file lists them."""
    found: list[material.Toolkit] = []
    for block in _PINS.read_text().split("\n\n"):
        head, *rows = [line for line in block.splitlines() if line and not line.startswith("#")] or [""]
        named = _HEAD.match(head)
        if named is not None:
            name, version, architecture, inside = named.groups()
            wheels = tuple(_file(row) for row in rows)
            found.append(material.Toolkit(name=name, version=version, architecture=architecture, inside=inside, wheels=wheels))
    return tuple(found)


def wheel(file: material.File, cache: Path, on_bytes: caches.OnBytes) -> Path:
    """The wheel, from the cache or from the user's index. Nodes ask at the same time for the same files, so one at a time."""
    release = _releases()[file.sha256]
    with _one_at_a_time:
        try:
            return pypi.wheel(release, cache, on_bytes, suffix=file.file_name, sha256=file.sha256).path
        except errors.Problem as problem:
            if problem.code == "digest-mismatch":
                hint = "what your index has under this name is not what Wattherd was tested with; nothing was kept"
                raise errors.Problem(problem.code, problem.message, hint=hint, **problem.context) from problem
            raise


@functools.cache
def _releases() -> dict[str, spec.Release]:
    pins = [found for line in _PINS.read_text().splitlines() if (found := _PIN.match(line))]
    return {found[1]: spec.Release(project=found[3], version=found[4]) for found in pins}


def _file(row: str) -> material.File:
    found = _PIN.match(row)
    if found is None:
        raise errors.Problem("internal", f"{_PINS.name} has a line that is no pin: {row[:80]}")
    return material.File(sha256=found[1], size_bytes=int(found[2]), file_name=found[5])
