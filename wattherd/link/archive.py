"""Packs the node program: a reproducible zip of everything below the line, so that equal code has one digest everywhere.

NVML's binding goes with it as it was installed here, with its licence on top; a node loads it only in the child that reads the cards.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import io
import pathlib
import zipfile
from dataclasses import dataclass

from wattherd import errors

#: What ships, relative to the package: modules and whole folders. The controller packs node/, it never imports it.
SHIPPED = (
    "__init__.py",
    "errors.py",
    "units.py",
    "records.py",
    "local.py",
    "process.py",
    "machine.py",
    "store.py",
    "wire",
    "gguf",
    "policy",
    "power",
    "meters",
    "resources",
    "node",
)
#: The distribution of NVML's binding, and its one module. A package that is called like the module is a shell around it, never packed.
BINDING, BINDING_MODULE = "nvidia-ml-py", "pynvml.py"
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


def binding() -> pathlib.Path:
    """The file of NVML's binding. Raises `tool-missing` where its distribution is not installed whole."""
    try:
        found = pathlib.Path(str(importlib.metadata.distribution(BINDING).locate_file(BINDING_MODULE)))
    except importlib.metadata.PackageNotFoundError:
        found = pathlib.Path(BINDING_MODULE)
    if not found.is_file():
        raise errors.Problem(
            "tool-missing",
            f"the Python package {BINDING} is not installed here, and every node needs its {BINDING_MODULE}",
            hint=f"pip install {BINDING}",
        )
    return found


@functools.cache
def program() -> Program:
    """The packed program of this installation; the same bytes on every call and on every machine."""
    package = pathlib.Path(__file__).resolve().parent.parent
    files = [(f"{package.name}/{path.relative_to(package).as_posix()}", path) for path in modules(package)]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, path in [(BINDING_MODULE, binding()), *files]:
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o600 << 16
            archive.writestr(entry, path.read_bytes())
    body = buffer.getvalue()
    return Program(body, hashlib.sha256(body).hexdigest())
