"""`invoke remove` on the node: what Wattherd created goes, by an empty manifest; then its own store, releases and records.

Caches (program, compiler cache) stay: they may be deleted at any time and harm nobody. Models and releases do not.
"""

from __future__ import annotations

from wattherd import machine as machines
from wattherd import store
from wattherd.node import converge
from wattherd.wire import event, manifest

#: Wattherd's own folders, which no role has to list and nobody else writes to.
PLACES = (store.HOME, "/opt/wattherd", "/var/cache/wattherd/build")


def leave(machine: machines.Machine, host: str, emit: converge.Emit, *, check: bool) -> converge.Tally:
    """Converge to nothing; when that went through, take the places away too. A failure keeps them: they say what is left."""
    empty = manifest.Manifest(host=host, resources=())
    tally = converge.Run(machine, converge.Job(empty, manifest.encode(empty), check=check), emit).converge()
    if tally.counts["failed"]:
        return tally
    tally.generation = None
    for place in PLACES:
        if machine.is_dir(place):
            _take(machine, place, emit, check=check)
            tally.add("changed")
    return tally


def _take(machine: machines.Machine, place: str, emit: converge.Emit, *, check: bool) -> None:
    if not check:
        machine.remove_tree(place)
    emit(event.changed(f"directory:{place}", "remove", {}, check=check))
