"""Files in the controller's cache: digests remembered by stat, small memories in JSON, arriving files, room on the disk.

Safe for threads and for two runs at once: every write is a rename. Knows nothing of indexes, wheels or models.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

from wattherd import errors, units

#: Called with the bytes done and the bytes in all (0 where that is unknown); begins again for each step of a resolve.
OnBytes = Callable[[int, int], None]
BLOCK_BYTES = 1024 * 1024
#: What stays free on the disk when a file has arrived.
_MARGIN_BYTES = 64 * 1024 * 1024
_GRAIN_S = 2


class Memory:
    """A JSON file of small documents by key. It only spares work: what cannot be read or written is forgotten, never an error."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, key: str) -> Mapping[str, object]:
        found = self._load().get(key)
        return found if isinstance(found, dict) else {}

    def put(self, key: str, value: Mapping[str, object]) -> None:
        with contextlib.suppress(OSError, errors.Problem):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(self._path.with_suffix(".lock"), "wb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                write(self._path, {**self._load(), key: dict(value)})

    def _load(self) -> dict[str, object]:
        with contextlib.suppress(OSError, ValueError, RecursionError):
            loaded = json.loads(self._path.read_bytes())
            return loaded if isinstance(loaded, dict) else {}
        return {}


def digests(cache: Path) -> Memory:
    return Memory(cache / "digests.json")


def known_digest(path: Path, memory: Memory) -> str:
    """The sha256 of the file as it lies there, from memory; '' when it has to be read."""
    known = memory.get(str(path.absolute()))
    sha256 = known.get("sha256")
    return sha256 if isinstance(sha256, str) and known.get("stat") == identity(path) else ""


def digest(path: Path, memory: Memory, on_bytes: OnBytes) -> str:
    """The file's sha256: read once, then remembered while size, mtime, ctime and inode stay."""
    known = known_digest(path, memory)
    if known:
        return known
    with unchanged(path):
        found = path.stat()
        value = _read_digest(path, found.st_size, on_bytes)
    # A file changed within the clock's own grain of now could change again unseen: such a digest is not kept.
    if all(abs(time.time() - instant) > _GRAIN_S for instant in (found.st_mtime, found.st_ctime)):
        remember_digest(path, value, memory)
    return value


def remember_digest(path: Path, sha256: str, memory: Memory) -> None:
    """For a file that this run wrote itself, digest in hand; nobody else writes in the cache."""
    memory.put(str(path.absolute()), {"sha256": sha256, "stat": identity(path)})


def identity(path: Path) -> list[int]:
    """What changes when a file does; [] where none is."""
    try:
        found = path.stat()
    except OSError:
        return []
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


@contextlib.contextmanager
def unchanged(path: Path) -> Iterator[None]:
    """`source-changed` when the file is another one at the end of the block: what was said about it would hold for neither."""
    before = identity(path)
    yield
    if identity(path) != before:
        raise errors.Problem("source-changed", f"{path} changed while it was read", hint="run again when the file is complete", path=path)


@contextlib.contextmanager
def arriving(folder: Path) -> Iterator[IO[bytes]]:
    """A temporary file in `folder`, removed at the end of the block unless `keep` gave it its name."""
    with on_disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".arriving-", delete=False) as handle:
            try:
                yield handle
            finally:
                Path(handle.name).unlink(missing_ok=True)


def keep(handle: IO[bytes], target: Path) -> None:
    """The bytes reach the disk before the name does: a power cut leaves no empty file under a good name."""
    handle.flush()
    os.fsync(handle.fileno())
    Path(handle.name).chmod(0o644)
    Path(handle.name).replace(target)


def write(path: Path, document: Mapping[str, object]) -> None:
    with arriving(path.parent) as handle:
        handle.write(json.dumps(document, sort_keys=True, indent=1).encode())
        keep(handle, path)


def check_room(folder: Path, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if needed_bytes > 0 and needed_bytes + _MARGIN_BYTES > free_bytes:
        message = f"{units.size(needed_bytes)} must arrive in {folder} on this machine, and {units.size(free_bytes)} are free"
        raise _full(message, folder, needed_bytes=needed_bytes, free_bytes=free_bytes)


@contextlib.contextmanager
def on_disk(folder: Path) -> Iterator[None]:
    """A full disk and a folder that is not ours, said as problems."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise _full(f"the disk under {folder} on this machine is full", folder) from error
        if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            hint = "WATTHERD_CACHE names another folder"
            raise errors.Problem("permission", f"{folder} cannot be written: {error.strerror}", hint=hint, path=folder) from error
        raise


def _full(message: str, folder: Path, **figures: int) -> errors.Problem:
    return errors.Problem("disk-full", message, hint="free space there, or let WATTHERD_CACHE name a larger disk", path=folder, **figures)


def _read_digest(path: Path, size_bytes: int, on_bytes: OnBytes) -> str:
    summing = hashlib.sha256()
    done_bytes = 0
    with open(path, "rb") as handle:
        # A file that grows is not followed to its end; `unchanged` refuses it.
        while done_bytes <= size_bytes and (block := handle.read(BLOCK_BYTES)):
            summing.update(block)
            done_bytes += len(block)
            on_bytes(done_bytes, size_bytes)
    return summing.hexdigest()
