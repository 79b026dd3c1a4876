"""Makes a release out of a build folder: products in bin/, a list of what is in it, and one archive, the same bytes each time.

Nothing of the clock, the machine or the user enters the archive, so equal builds have equal digests. Knows nothing of
cmake, units or of where a release will be unpacked.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import struct
import tarfile
import zlib
from typing import Any, Dict, List, Mapping, Sequence

from wattherd import errors, store
from wattherd import machine as machines
from wattherd.node import elf, libraries
from wattherd.resources import build, tree

FOLDER = "bin"
#: Level 1: a release is packed once and unpacked on every node, and levels above cost much and save little on machine code.
_LEVEL = 1
#: RFC 1952: deflate, no flags, no time, no extra flags, no operating system. gzip.GzipFile's own header differs by version.
_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"


def gather(machine: machines.Machine, built: str, products: Sequence[str], folder: str) -> List[str]:
    """Copy the products into `folder`/bin under their own names. A link to another product stays a link (libx.so -> libx.so.1)."""
    target = f"{machine.path(folder)}/{FOLDER}"
    os.makedirs(target)
    sources: Dict[str, str] = {}
    for product in products:
        for path in _matches(machine.path(built), product):
            sources[os.path.basename(path)] = path
    for name, path in sources.items():
        led = os.readlink(path) if os.path.islink(path) else ""
        if led and "/" not in led and led in sources:
            os.symlink(led, f"{target}/{name}")
        else:
            shutil.copyfile(path, f"{target}/{name}")
            os.chmod(f"{target}/{name}", 0o755 if os.access(path, os.X_OK) else 0o644)
    return sorted(sources)


def _matches(built: str, product: str) -> List[str]:
    """Files that a product's path or pattern means; one that means nothing fails the build, since a release would lack it."""
    if product.startswith("/") or ".." in product.split("/"):
        raise errors.Problem("manifest-invalid", f"the product {product!r} lies outside the build folder")
    found = sorted(path for path in glob.glob(os.path.join(glob.escape(built), product)) if os.path.isfile(path))
    if not found:
        raise errors.Problem(
            "build-failed",
            f"the build ended well, but made no {product}",
            hint="compare the role's targets and products with this version: it may have renamed them",
        )
    return found


def describe(machine: machines.Machine, wanted: build.Build, folder: str) -> Mapping[str, Any]:
    """Write release.json into the folder: what was asked for, and each file with size and sha256. No clock, no path, no host."""
    files = []
    for name in sorted(os.listdir(machine.path(f"{folder}/{FOLDER}"))):
        path = f"{folder}/{FOLDER}/{name}"
        real = machine.path(path)
        if not os.path.islink(real):
            row: Dict[str, Any] = {"path": f"{FOLDER}/{name}", "size_bytes": os.path.getsize(real), "sha256": _sha256(machine, path)}
            found = elf.read(real)
            needs = sorted(libraries.newest_of(found).values()) if found else []
            files.append({**row, **({"needs": needs} if needs else {})})
    document = {
        "build": wanted.fingerprint,
        "name": wanted.name,
        "description": wanted.description,
        "source": wanted.source,
        "options": dict(wanted.options),
        "targets": list(wanted.targets),
        "needs": list(libraries.versions(machine, f"{folder}/{FOLDER}")),
        "files": files,
    }
    machine.write(f"{folder}/{tree.MARKER}", json.dumps(document, sort_keys=True, indent=1).encode())
    return document


def _sha256(machine: machines.Machine, path: str) -> str:
    summing = hashlib.sha256()
    for block in machine.blocks(path):
        summing.update(block)
    return summing.hexdigest()


def pack(machine: machines.Machine, folder: str, name: str) -> str:
    """The folder as a .tar.gz in the store; gives its digest. A leftover of a run that was cut off is written over."""
    store.prepare(machine)
    place = f"{store.BLOBS}/{name}.packing"
    with store.locked(machine, place, errors.Problem("node-busy", f"{name} is being packed by another build")) as handle:
        arrival = store.Arrival(machine, place, handle)
        arrival.clear()
        try:
            _archive(machine.path(folder), arrival)
            return arrival.settle()
        except BaseException:
            machine.unlink(place)
            raise


def _archive(root: str, arrival: store.Arrival) -> None:
    sink = _Gzip(arrival)
    with tarfile.open(mode="w|", fileobj=sink, format=tarfile.GNU_FORMAT) as archive:  # type: ignore[call-overload,unused-ignore]
        for name in _names(root):
            _add(archive, root, name)
    sink.end()


def _names(root: str) -> List[str]:
    found: List[str] = []
    for folder, folders, files in os.walk(root):
        found += [os.path.relpath(os.path.join(folder, name), root) for name in folders + files]
    return sorted(found)


def _add(archive: tarfile.TarFile, root: str, name: str) -> None:
    """By hand: TarFile.gettarinfo would take time, owner and hard links from the file system."""
    path = os.path.join(root, name)
    entry = tarfile.TarInfo(name)
    if os.path.islink(path):
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, os.readlink(path), 0o777
        archive.addfile(entry)
    elif os.path.isdir(path):
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(entry)
    else:
        entry.size, entry.mode = os.path.getsize(path), 0o755 if os.access(path, os.X_OK) else 0o644
        with open(path, "rb") as stream:
            archive.addfile(entry, stream)


class _Gzip:
    """A gzip member with a fixed header, as a thing that tarfile can write to."""

    def __init__(self, arrival: store.Arrival) -> None:
        self._arrival = arrival
        self._deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._sum = 0
        self._size = 0
        arrival.write(_GZIP_HEADER)

    def write(self, data: bytes) -> int:
        self._sum = zlib.crc32(data, self._sum)
        self._size += len(data)
        self._arrival.write(self._deflate.compress(data))
        return len(data)

    def end(self) -> None:
        self._arrival.write(self._deflate.flush())
        self._arrival.write(struct.pack("<II", self._sum, self._size & 0xFFFFFFFF))
