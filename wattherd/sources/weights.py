"""A GGUF from the web in the controller's cache: fetched once, resumed, checked, and named by its sha256.

An address is remembered with the sha256 that it gave, so that a second run asks nobody. Imports requests only when it has to fetch.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wattherd import errors
from wattherd.gguf import check
from wattherd.sources import cache as caches
from wattherd.sources import links

if TYPE_CHECKING:
    import requests

    from wattherd.sources import index

Judge = Callable[[Path, str], None]
NOT_FETCHED = "source-not-fetched"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetcher:
    """How files come from the web in one run. `token` gives a secret, and is asked only when something has to be fetched.

    With `fetches` False only what is in the cache can be had.
    """

    cache: Path
    on_bytes: caches.OnBytes
    token: Callable[[], str] | None = None
    fetches: bool = True

    def __repr__(self) -> str:
        return f"Fetcher(cache={self.cache})"

    @property
    def folder(self) -> Path:
        return self.cache / "models"

    def must_fetch(self, what: str) -> None:
        if not self.fetches:
            raise errors.Problem(NOT_FETCHED, f"{what} is not in this controller's cache yet", hint="a deploy fetches it, or add --fetch")

    def held(self, key: str, pinned: str) -> tuple[Path, str] | None:
        """What the cache has for this pin, or else under this address."""
        said = self._memory.get(key).get("sha256")
        sha256 = pinned or (said if isinstance(said, str) else "")
        path = self.folder / f"{sha256}.gguf"
        if sha256 and path.is_file() and caches.digest(path, caches.digests(self.cache), self.on_bytes) == sha256:
            return path, sha256
        return None

    def chosen(self, wanted: links.Quantised) -> links.WebFile:
        """Which file a quantisation stands for; asked once, then remembered."""
        said = self._memory.get(str(wanted)).get("path")
        if isinstance(said, str):
            return links.on_hub(wanted.repository, said, wanted.revision)
        self.must_fetch(str(wanted))
        from wattherd.sources import hub

        with self._session(links.endpoint()) as session:
            found = hub.choose(session, wanted, token=self.token is not None)
        self._memory.put(str(wanted), {"path": found.path})
        return found

    def missing(self, files: list[links.WebFile]) -> list[links.WebFile]:
        self.must_fetch(files[0].key)
        from wattherd.sources import hub

        with self._session(files[0].url) as session:
            return [file for file in files if hub.is_missing(session, file, token=self.token is not None)]

    def fetch(self, file: links.WebFile, pinned: str, judge: Judge) -> tuple[Path, str]:
        """The file by its digest in the cache. `judge` is given it before it gets its name, and may raise."""
        held = self.held(file.key, pinned)
        if held is None:
            self.must_fetch(file.key)
            held = self._download(file, pinned, judge)
        if self._memory.get(file.key).get("sha256") != held[1]:
            self._memory.put(file.key, {"sha256": held[1]})
        return held

    @property
    def _memory(self) -> caches.Memory:
        return caches.Memory(self.folder / "addresses.json")

    def _session(self, url: str) -> requests.Session:
        from wattherd.sources import hub

        return hub.open_session(url, self.token() if self.token is not None else "")

    def _download(self, file: links.WebFile, pinned: str, judge: Judge) -> tuple[Path, str]:
        from wattherd.sources import hub, index, transfer

        with self._session(file.url) as session:
            about = hub.look(session, file, token=self.token is not None)
            if pinned and about.sha256 and about.sha256 != pinned:
                raise errors.Problem(
                    "digest-mismatch",
                    f"{file.key} has sha256 {about.sha256} there, and the catalogue pins {pinned}",
                    hint="the publisher has replaced the file: look why, then pin the new digest, or the old revision by '@REVISION'",
                    wanted=pinned,
                    found=about.sha256,
                )
            sha256 = pinned or about.sha256
            offer = index.Offer(file_name=file.file_name, url=file.url, sha256=sha256, size_bytes=about.size_bytes)
            manner = transfer.Manner(
                site=hub.SITE,
                judge=_judge_beginning,
                # The Hub's bytes come from elsewhere, where its ETag means nothing: there the sha256 is the judge.
                validator="" if about.sha256 else about.validator,
                resumes=bool(sha256 or about.validator),
            )
            arrival = self._arrival(file, sha256 or about.validator)
            found = transfer.download(session, offer, arrival, self.on_bytes, manner)
        try:
            judge(arrival, found)
        except errors.Problem:
            arrival.unlink(missing_ok=True)
            raise
        target = self.folder / f"{found}.gguf"
        arrival.replace(target)
        caches.remember_digest(target, found, caches.digests(self.cache))
        return target, found

    def _arrival(self, file: links.WebFile, state: str) -> Path:
        """Where the file grows: a name for this address in this state. What was begun of another state of it goes."""
        folder = self.folder / "arriving"
        with caches.on_disk(self.folder):
            folder.mkdir(parents=True, exist_ok=True)
        address, now = (hashlib.sha256(text.encode()).hexdigest()[:20] for text in (file.url, state))
        target = folder / f"{address}-{now}.gguf"
        for other in folder.glob(f"{address}-*"):
            if not other.name.startswith(target.name):
                _forget(other)
        return target


def _forget(path: Path) -> None:
    """Unless another run is at it."""
    with contextlib.suppress(OSError), open(path, "rb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()


def _judge_beginning(offer: index.Offer, head: bytes) -> None:
    """A page, an LFS pointer or another format is known by its first bytes, before gigabytes of it arrive."""
    from wattherd.sources import web

    check.check_beginning(head, max(offer.size_bytes, len(head)), f"{offer.file_name} from {web.host_of(offer.url)}")
