"""The node's content-addressed store and its index of builds: where bulk bytes wait until a resource uses them.

A blob is in the store only under the sha256 that was computed while it was written; a partial one lies beside it and is
resumed. Knows nothing of models, releases or SSH.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
from typing import Dict, Iterator, Mapping, Optional

from wattherd import errors, units
from wattherd import machine as machines
from wattherd.wire import facts, fields

HOME = "/var/lib/wattherd"
#: One writer per node: a session, or the keeper.
LOCK = "/run/wattherd.lock"
BLOBS = HOME + "/store"
BUILDS = HOME + "/builds"
#: Readable names for models, each a link to its blob or to where it lies.
MODELS = HOME + "/models"
#: Where releases lie unpacked, and the link that leads to the one in use.
RELEASES = "/opt/wattherd/releases"
CURRENT = "/opt/wattherd/current"
#: What stays free on the file system after a blob has arrived: logs, spool and the operating system need room too.
MARGIN_BYTES = 256 * 1024 * 1024
#: A cut link or a power cut loses at most this much of what had arrived.
SYNC_BYTES = 64 * 1024 * 1024
#: flock has no limit of its own: between two tries.
_LOCK_PAUSE_S = 0.2
_DIGEST = r"[0-9a-f]{64}\Z"
_FINGERPRINT = r"[0-9a-z][0-9a-z.-]{7,79}\Z"


def blob(digest: str) -> str:
    """The blob's place. The digest comes from the other side, so its form is checked before it becomes a path."""
    if not re.match(_DIGEST, digest):
        raise errors.Problem("manifest-invalid", f"not a sha256: {digest[:80]!r}")
    return f"{BLOBS}/{digest}"


def partial(digest: str) -> str:
    return blob(digest) + ".partial"


def has(machine: machines.Machine, digest: str) -> bool:
    return machine.exists(blob(digest))


def size_bytes(machine: machines.Machine, digest: str) -> int:
    found = machine.lstat(blob(digest))
    return found.st_size if found else 0


def missing(machine: machines.Machine, wanted: Mapping[str, int]) -> Dict[str, int]:
    return {digest: size for digest, size in wanted.items() if not has(machine, digest)}


def verified(machine: machines.Machine, digest: str, name: str) -> str:
    """The blob's place, after its content was compared with its name. A damaged blob is removed, so that the next run fetches it again."""
    if not has(machine, digest):
        raise errors.Problem(
            "artifact-missing",
            f"{name} is not in this node's store",
            hint="the controller stages it before a deploy: run the deploy again",
            digest=digest,
        )
    found = machine.digest(blob(digest))
    if found != digest:
        discard(machine, digest)
        raise errors.Problem(
            "artifact-corrupt",
            f"{name} was damaged in this node's store (its sha256 is {found[:12]}…, not {digest[:12]}…) and was removed",
            hint="deploy again and it is fetched anew; if it comes back, look at the disk: dmesg, smartctl -a",
            digest=digest,
        )
    return blob(digest)


def discard(machine: machines.Machine, digest: str) -> None:
    machine.unlink(blob(digest))
    machine.sync_folder(BLOBS)


def check_room(machine: machines.Machine, wanted: Mapping[str, int]) -> None:
    """`disk-full` before a byte moves when the missing blobs and the margin do not fit. What a partial holds is counted as there."""
    todo_bytes = 0
    for digest, size in missing(machine, wanted).items():
        begun = machine.lstat(partial(digest))
        todo_bytes += max(0, size - (begun.st_size if begun else 0))
    free_bytes = machine.free_bytes(BLOBS)
    if todo_bytes and todo_bytes + MARGIN_BYTES > free_bytes:
        raise errors.Problem(
            "disk-full",
            f"{units.size(todo_bytes)} must go into {BLOBS}: {units.size(free_bytes)} are free, {units.size(MARGIN_BYTES)} must stay so",
            hint="free space there, or give /var/lib/wattherd a larger file system; nothing was copied",
            needed_bytes=todo_bytes,
            free_bytes=free_bytes,
        )


class Arrival:
    """Bytes on their way into the store: appended to an open file, hashed as they come, forced to disk every SYNC_BYTES.

    `place` lies in the store's folder under a name that is no digest; only `settle` makes it a blob. The caller owns the handle.
    """

    def __init__(self, machine: machines.Machine, place: str, handle: int) -> None:
        self._machine = machine
        self._place = place
        self._handle = handle
        self._summing = hashlib.sha256()
        self._unsynced_bytes = 0
        self.size_bytes = 0

    @property
    def digest(self) -> str:
        return self._summing.hexdigest()

    def clear(self) -> None:
        os.truncate(self._handle, 0)

    def reread(self) -> Iterator[int]:
        """Hash what an earlier arrival left; yields the count so far, since this takes a while. Leaves the position at the end."""
        os.lseek(self._handle, 0, os.SEEK_SET)
        while True:
            block = os.read(self._handle, 1024 * 1024)
            if not block:
                return
            self._summing.update(block)
            self.size_bytes += len(block)
            yield self.size_bytes

    def write(self, data: bytes) -> bool:
        """True when this write was followed by a sync: a good moment to look at the free space."""
        rest = memoryview(data)
        with machines.no_space(self._place):
            while rest:
                written = os.write(self._handle, rest)
                self._summing.update(rest[:written])
                self.size_bytes += written
                rest = rest[written:]
        self._unsynced_bytes += len(data)
        if self._unsynced_bytes < SYNC_BYTES:
            return False
        self.sync()
        return True

    def sync(self) -> None:
        with machines.no_space(self._place):
            os.fsync(self._handle)
        self._unsynced_bytes = 0

    def settle(self) -> str:
        """Name the file by its digest. World-readable: a model is read by the server's own user."""
        os.fchmod(self._handle, 0o644)
        self.sync()
        self._machine.rename(self._place, blob(self.digest))
        # The bytes were hashed as they came: whoever places the blob need not read them once more.
        self._machine.know_digest(blob(self.digest), self.digest)
        self._machine.keep_digests()
        return self.digest


@contextlib.contextmanager
def locked(machine: machines.Machine, path: str, busy: Optional[errors.Problem] = None, wait_s: float = 0.0) -> Iterator[int]:
    """Hold the lock on `path` (made when absent) and give its handle. Another holder is waited for: `wait_s` until `busy` is raised,
    without that for as long as it takes.

    The holder may rename or remove the file before it lets go; a handle on such a file locks nothing, so it is opened again.
    """
    end_s = machine.monotonic_s() + wait_s
    while True:
        handle = os.open(machine.path(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
            except BlockingIOError as error:
                if machine.monotonic_s() >= end_s:
                    raise busy or error from error
                machine.wait(_LOCK_PAUSE_S)
                continue
            found = machine.lstat(path)
            if found is not None and found.st_ino == os.fstat(handle).st_ino:
                yield handle
                return
        finally:
            os.close(handle)


def builds(machine: machines.Machine) -> Mapping[str, facts.Built]:
    """By fingerprint: every build whose blob is really there."""
    names = [name[:-5] for name in machine.names(BUILDS) if name.endswith(".json")]
    found = [built(machine, name) for name in names if re.match(_FINGERPRINT, name)]
    return {one.fingerprint: one for one in found if one is not None}


def built(machine: machines.Machine, fingerprint: str) -> Optional[facts.Built]:
    """The build with this fingerprint, if its blob is really there."""
    found = recorded(machine, fingerprint)
    return found if found is not None and has(machine, found.digest) else None


def recorded(machine: machines.Machine, fingerprint: str) -> Optional[facts.Built]:
    """What was written down of this build, whatever became of its blob; None too when the record cannot be read."""
    _check_fingerprint(fingerprint)
    with contextlib.suppress(ValueError, errors.Problem):
        found = fields.build(facts.Built, fields.document(fields.parsed(machine.read(f"{BUILDS}/{fingerprint}.json") or b""), fingerprint))
        if found.fingerprint == fingerprint and re.match(_DIGEST, found.digest):
            return found
    return None


def record_build(machine: machines.Machine, value: facts.Built) -> None:
    _check_fingerprint(value.fingerprint)
    if not has(machine, value.digest):
        raise errors.Problem("artifact-missing", f"release {value.fingerprint} is not in the store", digest=value.digest)
    machine.make_dirs(BUILDS)
    machine.write(f"{BUILDS}/{value.fingerprint}.json", json.dumps(fields.plain(value), sort_keys=True).encode())


def _check_fingerprint(fingerprint: str) -> None:
    if not re.match(_FINGERPRINT, fingerprint):
        raise errors.Problem("manifest-invalid", f"not a fingerprint: {fingerprint[:80]!r}")


def prepare(machine: machines.Machine) -> None:
    """The store's folders. Models are read by the server's own user, so the blobs are world-readable; only root writes."""
    for folder in (HOME, BLOBS, BUILDS):
        machine.make_dirs(folder)
        machine.chmod(folder, 0o755)
