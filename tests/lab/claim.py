"""What a lab takes of the whole machine: its name (one lab of a name at a time) and wider kernel limits, put back when the last lab goes.

Marks and old values lie in /run: they live exactly as long as the bridge and the kernel settings themselves.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.lab import commands, places
from wattherd.errors import Problem

# Every node's systemd, udev and journal hold a few inotify instances, all counted for the same root.
_AT_LEAST: Mapping[Path, int] = {
    Path("/proc/sys/fs/inotify/max_user_instances"): 8192,
    Path("/proc/sys/fs/inotify/max_user_watches"): 524288,
}


@contextlib.contextmanager
def alone(lab: places.Places, say: places.Say) -> Iterator[None]:
    """One command at a time changes a lab. The lock goes with the process that holds it, however that ends.

    Programs started by `commands.run` inherit it: where a command was killed, the next one waits until its last program has ended too.
    """
    lab.cache.mkdir(parents=True, exist_ok=True)
    with (lab.cache / f"{lab.name}.lock").open("w") as held:
        os.set_inheritable(held.fileno(), True)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting: another run is changing the lab")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def take(lab: places.Places) -> None:
    refuse_others(lab)
    commands.write(_mark(lab), f"{lab.cache}\n")
    for limit, wanted in _AT_LEAST.items():
        old = limit.read_text().strip()
        if int(old) < wanted:
            commands.write(lab.run / limit.name, f"{old}\n")
            with contextlib.suppress(OSError):  # a container may not be allowed to; a few nodes fit into the old limits
                limit.write_text(f"{wanted}\n")


def refuse_others(lab: places.Places) -> None:
    """A lab of this name that was booted from another cache has the same bridge and links: it is not ours to touch."""
    owner = _mark(lab).read_text().strip() if _mark(lab).is_file() else str(lab.cache)
    if owner != str(lab.cache):
        message = f"a lab named {lab.name!r} is up from another cache folder, {Path(owner).parent}"
        raise Problem("lab-failed", message, hint=f"use that one (WATTHERD_CACHE={Path(owner).parent}), or another WATTHERD_LAB_NAME")


def taken(lab: places.Places) -> bool:
    """Is this lab up, or about to be?"""
    return _mark(lab).is_file()


def release(lab: places.Places) -> None:
    _mark(lab).unlink(missing_ok=True)
    if any((lab.run / "up").glob("*")):
        return
    for limit in _AT_LEAST:
        kept = lab.run / limit.name
        if kept.exists():
            limit.write_text(kept.read_text())
            kept.unlink()
    for folder in (lab.run / "up", lab.run):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _mark(lab: places.Places) -> Path:
    return lab.run / "up" / lab.name
