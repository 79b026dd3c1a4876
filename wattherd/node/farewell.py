"""`invoke remove` on the node: what Wattherd created goes, by an empty manifest; then its own releases, blobs and records.

Only what is Wattherd's by its name and mark is deleted, and a folder only when nothing is left in it. Caches (program, compiler
cache) stay: they may be deleted at any time and harm nobody.
"""

from __future__ import annotations

import re
from typing import Iterator, List

from wattherd import machine as machines
from wattherd import store, units
from wattherd.node import converge, generations
from wattherd.power import wanted
from wattherd.resources import program, secret, toolkit, tree
from wattherd.wire import event, manifest

RELEASES = store.RELEASES
#: Folders of the node program's own, the deepest first.
FOLDERS = (
    store.BLOBS,
    store.BUILDS,
    secret.KEPT,
    generations.FOLDER,
    f"{store.HOME}/pending",
    wanted.STATE,
    store.HOME,
    RELEASES,
    toolkit.HOME,
    program.HOME,
    "/opt/wattherd",
)
_BLOB = re.compile(r"[0-9a-f]{64}(\.partial|\.lock)?\Z")
#: Also one that was cut short while it was written (machine.write).
_RECORD = re.compile(r"[0-9a-z.-]+\.json(\.wattherd-[0-9]+)?\Z")
_HALF = re.compile(r"[a-z-]+(\.json)?\.wattherd-[0-9]+\Z")
#: What is remembered of power, a damaged one that was put aside, and one that was cut short while it was written.
_POWER = re.compile(r"[0-9a-z-]+\.(json|store)(\.damaged|\.wattherd-[0-9]+)?\Z")


def leave(machine: machines.Machine, host: str, emit: converge.Emit, *, check: bool) -> converge.Tally:
    """Converge to nothing, then take what is our own. After a failure, or where something of ours had to stay, the store stays too."""
    empty = manifest.Manifest(host=host, resources=())
    run = converge.Run(machine, converge.Job(empty, manifest.encode(empty), check=check, last=True), emit)
    tally = run.converge()
    if tally.counts["failed"]:
        return tally
    tally.generation = None
    mine = list(_own(machine))
    for path in mine:
        if not check:
            _delete(machine, path)
    gone = set(mine)
    left = _rest(machine, gone, check=check)
    for entry_id, words in run.put_off.items():
        path = entry_id.partition(":")[2]
        if path.startswith("/") and path not in gone and machine.exists(path) and path not in FOLDERS:
            tally.add("skipped")
            emit(event.skipped(entry_id, f"no longer wanted, but kept: {words}"))
    if mine:
        tally.add("changed")
        emit(event.changed(f"directory:{store.HOME}", "remove", {}, check=check))
    for folder, count in left:
        tally.add("skipped")
        emit(event.skipped(f"directory:{folder}", f"kept: {units.plural(count, 'thing')} in it that Wattherd did not make"))
    return tally


def _own(machine: machines.Machine) -> Iterator[str]:
    """Releases and toolkits with our mark, or half made, blobs under a digest's name, and records of ours."""
    for folder in (RELEASES, toolkit.HOME):
        for name in machine.names(folder):
            if tree.is_half(name) or tree.is_marked(machine, f"{folder}/{name}"):
                yield f"{folder}/{name}"
    yield from program.own(machine)
    records = ((store.BUILDS, _RECORD), (generations.FOLDER, _RECORD), (wanted.STATE, _POWER), (store.HOME, _HALF))
    own = ((store.BLOBS, _BLOB), (secret.KEPT, _BLOB), *records)
    for folder, mine in own:
        yield from (f"{folder}/{name}" for name in machine.names(folder) if mine.match(name))
    for path in (generations.OWNED, generations.JOURNAL, generations.UNSETTLED):
        if machine.exists(path):
            yield path


def _delete(machine: machines.Machine, path: str) -> None:
    if machine.is_dir(path) and machine.readlink(path) is None:
        machine.remove_tree(path)
    else:
        machine.unlink(path)


def _rest(machine: machines.Machine, mine: set[str], *, check: bool) -> List[tuple[str, int]]:
    """Take the folders that are empty now (or would be); give those that are not, with how many foreign things are in them."""
    left: List[tuple[str, int]] = []
    for folder in FOLDERS:
        if not machine.is_dir(folder):
            continue
        foreign = [name for name in machine.names(folder) if f"{folder}/{name}" not in mine]
        if foreign:
            left.append((folder, len(foreign)))
        else:
            mine.add(folder)
            if not check:
                machine.rmdir(folder)
    return left
