"""A blob of the store in its place: a model as a link to the blob, or a release unpacked into a folder.

Content is what counts: the state is the sha256 that was found, not the one that was asked for. Knows nothing of how a
blob came into the store or of which release is to be used.
"""

from __future__ import annotations

import os
import posixpath
import stat
from typing import AbstractSet, ClassVar, List, Mapping, Optional, Tuple

from wattherd import errors, store
from wattherd import machine as machines
from wattherd.records import dataclass
from wattherd.resources import adoption, base, tree


@dataclass(frozen=True)
class Artifact(base.Resource):
    """`kind` file: `path` becomes a link to the blob `digest` with `mode`. `kind` tree: `path` becomes the folder in the blob's .tar.gz.

    A tree is named by `digest`, or by the fingerprint of its `build`, whose digest only this node's store may know.
    `keep` releases beside each other survive a removal, the newest ones, and always the one in use. A file with this content in one of
    the folders `adopt` is used where it lies: then the link leads there, and no blob is needed.
    """

    TYPE: ClassVar[str] = "artifact"

    path: str
    kind: str = "file"
    digest: str = ""
    size_bytes: int = 0
    build: str = ""
    mode: str = "0644"
    keep: int = 2
    adopt: Tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or posixpath.normpath(self.path) != self.path or self.path == "/":
            raise errors.Problem("manifest-invalid", f"{self.id}: the path must be absolute and plain")
        if self.kind not in ("file", "tree") or not (self.digest or (self.build and self.kind == "tree")):
            raise errors.Problem("manifest-invalid", f"{self.id}: a file needs a digest, a tree a digest or a build")

    @property
    def id(self) -> str:
        return f"artifact:{self.path}"

    @property
    def _parent(self) -> str:
        return posixpath.dirname(self.path)

    @property
    def _name(self) -> str:
        return posixpath.basename(self.path)

    def wanted(self) -> base.State:
        if self.kind == "file":
            return {"digest": self.digest, "mode": self.mode}
        return {"digest": self.digest} if self.digest else {"build": self.build}

    def actual(self, machine: machines.Machine) -> Optional[base.State]:
        return self._actual_file(machine) if self.kind == "file" else self._actual_tree(machine)

    def _actual_file(self, machine: machines.Machine) -> Optional[base.State]:
        """A link is followed to its blob; a file that is not ours counts by its content, so that a model already there is used."""
        found = machine.lstat(self.path)
        if found is None:
            return None
        held = self._held(machine) or self.path
        behind = machine.lstat(held)
        if behind is None:
            return {"digest": "(the link leads nowhere)", "mode": ""}
        if not stat.S_ISREG(behind.st_mode):
            return {"digest": "(not a file)", "mode": ""}
        # Whose file it is decides whose rights count: those of a file of somebody else are never changed, only used.
        theirs = not held.startswith(store.BLOBS + "/") and not adoption.hidden(machine, held)
        return {"digest": machine.digest(held), "mode": self.mode if theirs else machine.mode_text(behind)}

    def _held(self, machine: machines.Machine) -> Optional[str]:
        target = machine.readlink(self.path)
        return None if target is None else posixpath.normpath(posixpath.join(self._parent, target))

    def _actual_tree(self, machine: machines.Machine) -> Optional[base.State]:
        found = machine.lstat(self.path)
        if found is None:
            return None
        key = "digest" if self.digest else "build"
        if not stat.S_ISDIR(found.st_mode):
            return {key: "(not a folder)"}
        told = tree.marker(machine, self.path)
        gap = tree.gap(machine, self.path, told) if told else "not marked as a release"
        return {key: f"({gap})"} if gap else {key: told.get(key)}

    def preflight(self, machine: machines.Machine, state: Optional[base.State]) -> None:
        """What is in the way and was not made by this resource is never replaced."""
        found = machine.lstat(self.path)
        if found is None:
            return
        if self.kind == "file":
            ours = stat.S_ISLNK(found.st_mode) or (state is not None and state["digest"] == self.digest)
        else:
            ours = stat.S_ISDIR(found.st_mode) and (tree.is_marked(machine, self.path) or not machine.names(self.path))
        if not ours:
            raise errors.Problem(
                "file-conflict",
                f"{self.path} is in the way and was not put there by Wattherd",
                hint=f"look at it, then move it away: mv {self.path} {self.path}.old",
            )

    def needs(self, machine: machines.Machine) -> Mapping[str, int]:
        """A blob that is there but damaged is needed too: whoever receives it replaces the damaged one."""
        if not self.digest or not base.delta(self.wanted(), self.actual(machine)):
            return {}
        if store.has(machine, self.digest) and machine.digest(store.blob(self.digest)) == self.digest:
            return {}
        if self._adoptable(machine):
            return {}
        return {self.digest: self.size_bytes}

    def replaces(self, machine: machines.Machine) -> Tuple[str, ...]:
        """A link that is put back leads to the same blob; a blob that is damaged is another one afterwards."""
        if self.kind == "tree":
            return (self.path,) if machine.exists(self.path) else ()
        blob = store.blob(self.digest)
        return (blob,) if not store.has(machine, self.digest) or machine.digest(blob) != self.digest else ()

    def fix(self, machine: machines.Machine, delta: base.Delta, tell: base.Tell) -> None:
        if self.kind == "tree":
            self._fix_tree(machine, tell)
        elif "digest" in delta:
            self._fix_file(machine, tell)
        else:
            held = self._held(machine) or self.path
            if not held.startswith(store.BLOBS + "/"):
                adoption.check_readable(machine, held)
            machine.chmod(held, int(self.mode, 8))

    def _adoptable(self, machine: machines.Machine) -> str:
        """A file of the node's owner with this content; '' where there is none, or where the store has its own."""
        if self.kind != "file" or not self.adopt or store.has(machine, self.digest):
            return ""
        return adoption.find(machine, self.adopt, self.digest, self.size_bytes)

    def _fix_file(self, machine: machines.Machine, tell: base.Tell) -> None:
        found = self._adoptable(machine)
        if found:
            tell(f"{self._name}: {found} has its sha256 and is used where it lies")
            machine.make_dirs(self._parent)
            machine.symlink(self.path, found)
            return
        if store.has(machine, self.digest):
            tell(f"comparing {self._name} with its sha256", 0, store.size_bytes(machine, self.digest), "bytes")
        blob = store.verified(machine, self.digest, self._name)
        if machine.mode_text(os.stat(machine.path(blob))) != self.mode:
            machine.chmod(blob, int(self.mode, 8))
        machine.make_dirs(self._parent)
        machine.symlink(self.path, blob)

    def _fix_tree(self, machine: machines.Machine, tell: base.Tell) -> None:
        """Unpack beside, then rename: a power cut leaves the old folder, the new one, or none, which the next run sees."""
        digest = self._tree_digest(machine)
        blob = store.verified(machine, digest, self._name)
        new, old = f"{self._parent}/.{self._name}.new", f"{self._parent}/.{self._name}.old"
        for leftover in (new, old):
            _remove(machine, leftover)
        machine.make_dirs(self._parent)
        tell(f"unpacking {self._name}", 0, store.size_bytes(machine, digest), "bytes")
        try:
            sizes = tree.unpack(machine, blob, new, sync=True)
            tree.mark(machine, new, digest, self.build, sizes)
        except BaseException:
            _remove(machine, new)
            raise
        if machine.exists(self.path):
            machine.rename(self.path, old)
        machine.rename(new, self.path)
        _remove(machine, old)

    def _tree_digest(self, machine: machines.Machine) -> str:
        if self.digest:
            return self.digest
        found = store.built(machine, self.build)
        if found is None:
            raise errors.Problem(
                "artifact-missing",
                f"no release of build {self.build} is on this node",
                hint="a build or a shipped release must come first: deploy builders and nodes together",
            )
        return found.digest

    # -- removal

    def ours(self, machine: machines.Machine) -> bool:
        return self._leads_to_ours(machine) if self.kind == "file" else tree.is_marked(machine, self.path)

    def _leads_to_ours(self, machine: machines.Machine) -> bool:
        """A link that Wattherd made: to a blob of the store, or to a file that it found in a folder it was told to look in."""
        held = self._held(machine) or ""
        return held.startswith(tuple(f"{folder}/" for folder in (store.BLOBS, *self.adopt)))

    def kept(self, machine: machines.Machine, gone: AbstractSet[str] = frozenset(), made: AbstractSet[str] = frozenset()) -> str:
        """Why `remove` would leave this artifact where it is, in words; empty when it would go."""
        if self.kind == "file":
            return "" if self._leads_to_ours(machine) or not machine.exists(self.path) else f"{self.path} is not a link that Wattherd made"
        if machine.exists(self.path) and not tree.is_marked(machine, self.path):
            return f"{self.path} is not marked as a release"
        using = self._links_to_it(machine)
        if using and using not in gone and using not in made:
            return f"{using} points to it"
        there = [name for name in self._releases(machine) if f"{self._parent}/{name}" not in gone]
        # The newest of all is the one that this run unpacks.
        coming = [posixpath.basename(path) for path in sorted(made) if posixpath.dirname(path) == self._parent]
        releases = there + [name for name in coming if name not in there]
        if self._name in releases and self._name not in releases[: -self.keep or None]:
            return f"one of the newest {self.keep} releases, kept for a rollback"
        return ""

    def remove(self, machine: machines.Machine, tell: base.Tell) -> None:
        """A release stays while it is in use or among the newest `keep`. Of a model the link goes; its blob stays for a rollback."""
        reason = self.kept(machine)
        if reason:
            tell(f"{self._name} stays: {reason}")
        elif self.kind == "file":
            machine.unlink(self.path)
        else:
            old = f"{self._parent}/.{self._name}.old"
            _remove(machine, old)
            if machine.exists(self.path):
                machine.rename(self.path, old)
            _remove(machine, old)

    def _releases(self, machine: machines.Machine) -> List[str]:
        """Names of the marked folders here, the newest last."""
        found = []
        for name in machine.names(self._parent):
            mark = machine.lstat(f"{self._parent}/{name}/{tree.MARKER}")
            if mark is not None and not name.startswith("."):
                found.append((mark.st_mtime_ns, name))
        return [name for _, name in sorted(found)]

    def _links_to_it(self, machine: machines.Machine) -> str:
        """A link beside the releases, or beside their folder (`current`), that points to this one."""
        for folder in (self._parent, posixpath.dirname(self._parent)):
            for name in machine.names(folder):
                target = machine.readlink(posixpath.join(folder, name))
                if target is not None and posixpath.normpath(posixpath.join(folder, target)) == self.path:
                    return posixpath.join(folder, name)
        return ""


def _remove(machine: machines.Machine, path: str) -> None:
    if machine.exists(path):
        machine.remove_tree(path)
