"""Packs the node program: a reproducible zip of everything below the line, so that equal code has one digest everywhere."""

from __future__ import annotations

import functools
import hashlib
import io
import pathlib
import zipfile
from dataclasses import dataclass

#: What ships, relative to the package: modules and whole folders. The controller packs node/, it never imports it.
SHIPPED = ("__init__.py", "errors.py", "units.py", "records.py", "machine.py", "store.py", "wire", "gguf", "policy", "power", "meters", "resources", "node")
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Program:
    body: bytes
    digest: str

    @property
    def size_bytes(self) -> int:
        return len(self.body)


def modules(package: pathlib.Path) -> list[pathlib.Path]:
    """The files that ship, sorted."""
    found: list[pathlib.Path] = []
    for name in SHIPPED:
        path = package / name
        found += [path] if path.is_file() else sorted(path.rglob("*.py"))
    return sorted(found)


@functools.cache
def program() -> Program:
    """The packed program of this installation; the same bytes on every call and on every machine."""
    package = pathlib.Path(__file__).resolve().parent.parent
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path in modules(package):
            entry = zipfile.ZipInfo(f"{package.name}/{path.relative_to(package).as_posix()}", _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o600 << 16
            archive.writestr(entry, path.read_bytes())
    body = buffer.getvalue()
    return Program(body, hashlib.sha256(body).hexdigest())
