"""What lies on this node and nothing refers to any more: blobs, half-arrived blobs, releases, names of models. Listed; removed when asked.

In use is what the node manages now, and what the newest generations name: the current one and the one before, which a rollback goes
back to. Only things under Wattherd's own names and marks are ever looked at.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import Any, Dict, Iterator, List, Mapping, Optional, Set

from wattherd import errors, store
from wattherd import machine as machines
from wattherd.node import generations
from wattherd.records import dataclass
from wattherd.resources import toolkit, tree

MODELS = store.MODELS
_FOLDERS: Mapping[str, str] = {store.RELEASES: "release", toolkit.HOME: "toolkit"}
#: The current generation and the one before it.
KEPT_GENERATIONS = 2
#: What arrived just now may be of a deploy that has staged its files and not activated them yet.
GRACE_S = 3600.0
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_PARTIAL = re.compile(r"([0-9a-f]{64})\.partial\Z")


@dataclass(frozen=True)
class Left:
    """One thing that nothing refers to. `kind` is model, release, toolkit, file or partial; `name` is what it was called, if known."""

    kind: str
    path: str
    size_bytes: int
    name: str = ""


@dataclass(frozen=True)
class Used:
    """What must stay: digests, fingerprints of builds, and paths."""

    words: Set[str]
    paths: Set[str]
    names: Mapping[str, str]


def find(machine: machines.Machine) -> List[Left]:
    """Everything that could go, in the order in which it may go: names before what they lead to."""
    used = _used(machine)
    return [*_links(machine, used), *_folders(machine, used), *_blobs(machine, used)]


def remove(machine: machines.Machine, left: Left) -> bool:
    """False when it is there still, since somebody is writing it."""
    if tree.is_half(posixpath.basename(left.path)):
        machine.remove_tree(left.path)
    elif left.kind == "partial":
        return _remove_partial(machine, left.path)
    elif left.kind in _FOLDERS.values():
        old = f"{posixpath.dirname(left.path)}/.{posixpath.basename(left.path)}.old"
        if machine.exists(old):
            machine.remove_tree(old)
        machine.rename(left.path, old)
        machine.remove_tree(old)
    else:
        machine.unlink(left.path)
        machine.sync_folder(posixpath.dirname(left.path))
        _forget_build(machine, posixpath.basename(left.path))
    return True


def _used(machine: machines.Machine) -> Used:
    """Every text in a manifest counts, whatever its type and field: what is named like a digest there is in use."""
    words: Set[str] = set()
    paths: Set[str] = set()
    names: Dict[str, str] = {}
    kept = generations.numbers(machine)
    for number in reversed(kept):
        try:
            record = generations.read(machine, number)
        except (errors.Problem, ValueError) as error:
            if number in kept[-KEPT_GENERATIONS:]:
                raise errors.Problem(
                    "generation-missing",
                    f"generation {number} cannot be read, so nobody knows what it needs; nothing was looked at",
                    hint="deploy again, which records a new one",
                ) from error
            continue
        spec = record.manifest.get("resources")
        if number in kept[-KEPT_GENERATIONS:]:
            _gather(spec, words, paths)
        _name(spec, names)
    for row in generations.Owned.load(machine).rows.values():
        if row.get("kept") and _is_build(row):
            continue
        _gather(row.get("entry"), words, paths)
        _name([row.get("entry")], names)
    for fingerprint in [word for word in words if not _DIGEST.match(word)]:
        built = store.recorded(machine, fingerprint) if re.match(r"[0-9a-z][0-9a-z.-]{7,79}\Z", fingerprint) else None
        words.update([built.digest] if built is not None else [])
    current = machine.readlink(store.CURRENT)
    paths.update([posixpath.normpath(posixpath.join(posixpath.dirname(store.CURRENT), current))] if current else [])
    return Used(words, paths, names)


def _is_build(row: Mapping[str, object]) -> bool:
    """Such a row is kept for as long as the store has the release: it must not in turn keep the release, or neither would ever go."""
    entry = row.get("entry")
    return isinstance(entry, Mapping) and entry.get("type") == "build"


def _gather(value: Any, words: Set[str], paths: Set[str]) -> None:
    if isinstance(value, str):
        if value.startswith("/"):
            paths.add(value)
        elif len(value) <= 80:
            words.add(value)
    elif isinstance(value, Mapping):
        for key, held in value.items():
            # Digests may be keys too: of the wheels of a toolkit, for one.
            _gather(key, words, paths)
            _gather(held, words, paths)
    elif isinstance(value, (list, tuple)):
        for held in value:
            _gather(held, words, paths)


def _name(entries: Any, names: Dict[str, str]) -> None:
    """What a digest was called in any manifest that this node still has, the newest word first."""
    for entry in entries if isinstance(entries, list) else []:
        spec = entry.get("spec") if isinstance(entry, Mapping) else None
        if isinstance(spec, Mapping) and isinstance(spec.get("digest"), str) and isinstance(spec.get("path"), str):
            names.setdefault(spec["digest"], posixpath.basename(spec["path"]))
        if isinstance(spec, Mapping) and isinstance(spec.get("source"), str):
            names.setdefault(spec["source"], "source of a build")


def _links(machine: machines.Machine, used: Used) -> Iterator[Left]:
    """Names that lead into the store. A name that leads elsewhere, or a real file, is somebody else's."""
    for folder in (MODELS, *(f"{MODELS}/{name}" for name in machine.names(MODELS) if _is_own_folder(machine, f"{MODELS}/{name}"))):
        for name in machine.names(folder):
            path = f"{folder}/{name}"
            target = machine.readlink(path) or ""
            if target.startswith(store.BLOBS + "/") and path not in used.paths:
                yield Left("model", path, 0, name)


def _is_own_folder(machine: machines.Machine, path: str) -> bool:
    return machine.is_dir(path) and machine.readlink(path) is None


def _folders(machine: machines.Machine, used: Used) -> Iterator[Left]:
    """Releases and toolkits that bear our mark, and what a power cut left of one that was on its way."""
    for folder, kind in _FOLDERS.items():
        for name in machine.names(folder):
            path = f"{folder}/{name}"
            found = machine.lstat(path)
            if tree.is_half(name):
                if found is not None and machine.is_dir(path) and machine.now_s() - found.st_mtime >= GRACE_S:
                    yield Left("partial", path, _tree_bytes(machine, path), name)
            elif path not in used.paths and name not in used.words and tree.is_marked(machine, path):
                yield Left(kind, path, _tree_bytes(machine, path), name)


def _blobs(machine: machines.Machine, used: Used) -> Iterator[Left]:
    """A blob that a name still in use leads to is in use too, whatever the manifests say."""
    led = {posixpath.basename(target) for target in _targets(machine, used)}
    built = {one.digest: one.fingerprint for one in store.builds(machine).values()}
    for name in machine.names(store.BLOBS):
        path = f"{store.BLOBS}/{name}"
        begun = _PARTIAL.match(name)
        digest = begun.group(1) if begun else name
        found = machine.lstat(path)
        if not _DIGEST.match(digest) or digest in used.words or digest in led or found is None:
            continue
        if machine.now_s() - found.st_mtime < GRACE_S:
            continue
        known = used.names.get(digest) or (f"release {built[digest]}" if digest in built else "")
        yield Left("partial" if begun else ("model" if known.endswith(".gguf") else "file"), path, found.st_size, known)


def _targets(machine: machines.Machine, used: Used) -> Iterator[str]:
    for path in used.paths:
        target = machine.readlink(path)
        if target is not None and target.startswith(store.BLOBS + "/"):
            yield target


def _tree_bytes(machine: machines.Machine, path: str) -> int:
    total = 0
    for folder, _, names in os.walk(machine.path(path)):
        total += sum(os.lstat(os.path.join(folder, name)).st_size for name in names)
    return total


def _remove_partial(machine: machines.Machine, path: str) -> bool:
    busy: Optional[errors.Problem] = errors.Problem("node-busy", f"{posixpath.basename(path)} is being received")
    try:
        with store.locked(machine, path, busy):
            machine.unlink(path)
    except errors.Problem:
        return False
    return True


def _forget_build(machine: machines.Machine, digest: str) -> None:
    """The record of a build whose blob is gone would promise what cannot be shipped."""
    for name in machine.names(store.BUILDS):
        if name.endswith(".json") and re.match(r"[0-9a-z][0-9a-z.-]{7,79}\Z", name[:-5]):
            found = store.recorded(machine, name[:-5])
            if found is not None and found.digest == digest:
                machine.unlink(f"{store.BUILDS}/{name}")
