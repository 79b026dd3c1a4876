"""A release's folder on disk: unpacked from a .tar.gz without trusting it, and marked so that a half or changed one is seen.

The marker `release.json` is written last: what the archive said of itself, the blob it came from, and every file with its
size. Knows nothing of builds, of which release is in use, or of where the archive came from.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
from typing import IO, TYPE_CHECKING, Dict, List, Mapping, Optional, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.wire import fields

if TYPE_CHECKING:
    import tarfile

MARKER = "release.json"
_MARKER_LIMIT_BYTES = 8 * 1024 * 1024


def unpack(machine: machines.Machine, archive: str, folder: str, *, sync: bool = False) -> Dict[str, int]:
    """Unpack into `folder`, which must not exist, and give {path: size} of files and links. The caller removes what a failure left.

    Only files, folders and links that stay inside are made; modes become 0755 or 0644. Symbolic links are made last and
    each is followed, so that no file is ever written through one and none leads out, alone or together with others.
    """
    import tarfile  # with bz2 and lzma 2 ms of every session, and few sessions unpack
    import zlib

    root = machine.path(folder)
    os.makedirs(root)
    sizes: Dict[str, int] = {}
    links: List[Tuple[str, str]] = []
    try:
        with machines.no_space(folder), tarfile.open(machine.path(archive), "r|gz") as tar:
            for member in tar:
                _one(tar, member, root, sizes, links, sync=sync)
        for name, target in links:
            _link(root, name, target, sizes)
        _refuse_escapes(root, links)
    except (tarfile.TarError, EOFError, zlib.error, FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise _corrupt(f"it is not a sound .tar.gz: {error}") from error
    if sync:
        _sync_folders(root)
    return sizes


def _one(
    tar: tarfile.TarFile, member: tarfile.TarInfo, root: str, sizes: Dict[str, int], links: List[Tuple[str, str]], *, sync: bool
) -> None:
    name = _inside(member.name)
    place = os.path.join(root, name)
    if member.isdir():
        os.makedirs(place, exist_ok=True)
        return
    if not name:
        raise _corrupt("it holds a file without a name")
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if member.issym():
        links.append((name, member.linkname))
    elif member.islnk():
        import shutil

        original = os.path.join(root, _inside(member.linkname))
        if not os.path.isfile(original):
            raise _corrupt(f"{name} is a link to {member.linkname!r}, which does not come before it")
        shutil.copy(original, place)
        sizes[name] = os.path.getsize(place)
    elif member.isreg():
        stream = tar.extractfile(member)
        if stream is None:
            raise _corrupt(f"{name} has no content")
        sizes[name] = _write(stream, place, 0o755 if member.mode & 0o111 else 0o644, sync=sync)
    else:
        raise _corrupt(f"{name} is neither a file, a folder nor a link")


def _write(stream: IO[bytes], place: str, mode: int, *, sync: bool) -> int:
    import shutil

    handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as sink:
        shutil.copyfileobj(stream, sink, 256 * 1024)
        sink.flush()
        os.fchmod(sink.fileno(), mode)
        if sync:
            os.fsync(sink.fileno())
        return sink.tell()


def _inside(name: str) -> str:
    """The name as it may be used under a folder; a name that leads out of it is refused."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise _corrupt(f"the name {name[:200]!r} leads out of the folder")
    return "/".join(parts)


def _link(root: str, name: str, target: str, sizes: Dict[str, int]) -> None:
    led = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    if not target or target.startswith("/") or led == ".." or led.startswith("../"):
        raise _corrupt(f"the link {name} -> {target[:200]!r} leads out of the folder")
    os.symlink(target, os.path.join(root, name))
    sizes[name] = len(os.fsencode(target))


def _refuse_escapes(root: str, links: List[Tuple[str, str]]) -> None:
    """Links can lead out together although each one looks harmless: so each is followed to its end."""
    inside = os.path.realpath(root)
    for name, target in links:
        end = os.path.realpath(os.path.join(root, name))
        if end != inside and not end.startswith(inside + os.sep):
            raise _corrupt(f"the link {name} -> {target[:200]!r} leads out of the folder by way of another link")


def _sync_folders(root: str) -> None:
    for folder, _, _ in os.walk(root):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def mark(machine: machines.Machine, folder: str, digest: str, build: str, sizes: Mapping[str, int]) -> None:
    """Write the marker, around what the archive said of itself in a marker of its own. `build` may be unknown ("")."""
    told = _read(machine, folder) or {}
    if build and told.get("build", build) != build:
        raise errors.Problem(
            "artifact-corrupt", f"the release recorded for build {build} says that it is {told['build']}", hint="build it again"
        )
    files = [{"path": name, "size_bytes": size} for name, size in sorted(sizes.items()) if name != MARKER]
    document = {"build": build, **told, "digest": digest, "files": files}
    machine.write(f"{folder}/{MARKER}", json.dumps(document, sort_keys=True, indent=1).encode())


def is_half(name: str) -> bool:
    """A folder that was being made or taken away beside its place, in the name that this is done under, when the power went."""
    return name.startswith(".") and name.endswith((".new", ".old"))


def is_marked(machine: machines.Machine, folder: str) -> bool:
    return machine.exists(f"{folder}/{MARKER}")


def marker(machine: machines.Machine, folder: str) -> fields.Document:
    """What the marker says, empty when it cannot be read: the folder is then one to unpack anew."""
    found = _read(machine, folder) or {}
    return found if isinstance(found.get("digest"), str) else {}


def gap(machine: machines.Machine, folder: str, told: fields.Document) -> str:
    """The first file that is missing or has another size than the marker says, in words; empty when the folder is whole."""
    try:
        rows = fields.objects(told, "files")
        wanted = {fields.text(row, "path"): fields.integer(row, "size_bytes") for row in rows}
    except errors.Problem:
        return f"{MARKER} cannot be read"
    for name, size in wanted.items():
        found = machine.lstat(f"{folder}/{name}")
        if found is None:
            return f"{name} is missing"
        if found.st_size != size:
            return f"{name} has {found.st_size} bytes, not {size}"
    return ""


def _read(machine: machines.Machine, folder: str) -> Optional[fields.Document]:
    found = machine.lstat(f"{folder}/{MARKER}")
    if found is not None and found.st_size <= _MARKER_LIMIT_BYTES:
        with contextlib.suppress(ValueError, errors.Problem, OSError):
            return fields.document(json.loads(machine.read(f"{folder}/{MARKER}") or b""), MARKER)
    return None


def _corrupt(words: str) -> errors.Problem:
    return errors.Problem(
        "artifact-corrupt", f"the archive was refused: {words}", hint="build or fetch it again; nothing of it was put in place"
    )
