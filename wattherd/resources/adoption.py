"""Files that are on the node already: found by size, then by sha256, in folders that the inventory names. Reads only.

What is found is used where it lies. It is never copied (it may be as large as the disk has left), never linked into the store (its
owner may rewrite it), and never changed or deleted.
"""

from __future__ import annotations

import os
import posixpath
import stat
from typing import Iterator, Sequence

from wattherd import errors
from wattherd import machine as machines

#: Bounds for a walk through somebody's folders: Hugging Face's own cache is five deep.
_MOST_DEEP = 6
_MOST_FILES = 20_000


def find(machine: machines.Machine, folders: Sequence[str], digest: str, size_bytes: int) -> str:
    """The place of a file with this content that the server may read; '' where there is none."""
    for folder in folders:
        for place in _files(machine, folder, size_bytes):
            # Reading 40 GB takes minutes, so size and rights come first; the digest is then remembered.
            if not hidden(machine, place) and machine.digest(place) == digest:
                return place
    return ""


def hidden(machine: machines.Machine, place: str) -> str:
    """Why a server that runs as a user of its own cannot read this file; '' when it can."""
    if place.startswith(("/home/", "/root/", "/run/user/")):
        return "it lies under a home folder, which servers are not shown"
    real = os.path.realpath(machine.path(place))
    found = os.stat(real)
    if not found.st_mode & stat.S_IROTH:
        return f"others may not read it (mode {stat.S_IMODE(found.st_mode):04o})"
    above = os.path.dirname(real)
    while above not in ("/", machine.root, ""):
        if not os.stat(above).st_mode & stat.S_IXOTH:
            return f"others may not enter the folder {above[len(machine.root) :]}"
        above = os.path.dirname(above)
    return ""


def check_readable(machine: machines.Machine, place: str) -> None:
    reason = hidden(machine, place)
    if reason:
        raise errors.Problem(
            "permission",
            f"{place} is there, but a server could not read it: {reason}",
            hint=f"chmod o+r {place}, o+x its folders, or keep models outside of home folders, such as under /srv",
        )


def _files(machine: machines.Machine, folder: str, size_bytes: int) -> Iterator[str]:
    seen = 0
    pending = [(folder, 0)]
    while pending:
        here, depth = pending.pop(0)
        for name in _names(machine, here):
            seen += 1
            if seen > _MOST_FILES:
                return
            place = posixpath.join(here, name)
            try:
                found = os.stat(machine.path(place))
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode) and found.st_size == size_bytes:
                yield place
            elif stat.S_ISDIR(found.st_mode) and depth < _MOST_DEEP and not os.path.islink(machine.path(place)):
                pending.append((place, depth + 1))


def _names(machine: machines.Machine, folder: str) -> list[str]:
    try:
        return machine.names(folder)
    except OSError:
        return []
