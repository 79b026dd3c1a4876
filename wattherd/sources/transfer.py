"""One file from the web into the cache: resumed after a cut, checked against its sha256, renamed only when it is right.

A partial file lies beside the target and is locked while it grows, so two runs share one download. Imports requests, so it
is itself imported late.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import requests

from wattherd import errors, units
from wattherd.gguf import page
from wattherd.sources import cache, index, web

_BLOCK_BYTES = 64 * 1024
_ROOM_EVERY_BYTES = 64 * 1024 * 1024
#: A cut connection is taken up again at once while each attempt brings something.
_ATTEMPTS = 10
_BEGINNINGS = {".whl": b"PK\x03\x04", ".gz": b"\x1f\x8b", ".gguf": b"GGUF"}


def _no_page(offer: index.Offer, head: bytes) -> None:
    if page.is_page(head):
        host, title = web.host_of(offer.url), page.title(head)
        message = f"{host} answers with a web page{f' (titled {title!r})' if title else ''} in place of {offer.file_name}"
        raise errors.Problem("source-unreachable", message, hint=web.INDEX.between, host=host)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How one file is fetched. `judge` sees the first bytes and raises for what may not be kept.

    `validator` is an ETag or a date: the server sends the rest only of the very file that was begun (If-Range). Without one, and
    without a sha256, nothing tells whether a rest would fit: then `resumes` is False.
    """

    site: web.Site = web.INDEX
    judge: Callable[[index.Offer, bytes], None] = _no_page
    validator: str = ""
    resumes: bool = True


_PLAIN = Manner()


def download(session: requests.Session, offer: index.Offer, target: Path, on_bytes: cache.OnBytes, manner: Manner = _PLAIN) -> str:
    """Leaves the file at `target` and gives its sha256, which is the offer's where that has one.

    Whoever held the lock before may have done the work already.
    """
    with cache.on_disk(target.parent), _partial(target) as handle:
        if target.exists() and (found := _digest(target)) and offer.sha256 in {found, ""}:
            Path(handle.name).unlink()
            return found
        resumed = _forget_foreign(handle, target.suffix, offer.size_bytes, resumes=manner.resumes) > 0
        _fetch(session, offer, handle, on_bytes, manner)
        found = _digest(Path(handle.name))
        if offer.sha256 and found != offer.sha256 and resumed:
            # What lay there was of another file; only a whole download can tell.
            handle.truncate(0)
            _fetch(session, offer, handle, on_bytes, manner)
            found = _digest(Path(handle.name))
        if offer.sha256 and found != offer.sha256:
            Path(handle.name).unlink()
            raise mismatch(offer, found, manner.site)
        cache.keep(handle, target)
        return found


def mismatch(offer: index.Offer, found: str, site: web.Site = web.INDEX) -> errors.Problem:
    host = web.host_of(offer.url)
    message = f"{offer.file_name} from {host} has sha256 {found}, and {site.word} says {offer.sha256}"
    return errors.Problem("digest-mismatch", message, hint=site.mismatch, wanted=offer.sha256, found=found)


@contextlib.contextmanager
def _partial(target: Path) -> Iterator[IO[bytes]]:
    """The partial file, ours alone. It is opened again when the holder before us renamed or removed it."""
    path = target.with_name(target.name + ".partial")
    while True:
        with open(path, "a+b") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if _is_still(path, handle):
                try:
                    yield handle
                finally:
                    if _is_still(path, handle) and not _have(handle):
                        path.unlink()
                return


def _is_still(path: Path, handle: IO[bytes]) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(handle.fileno()))
    return False


def _forget_foreign(handle: IO[bytes], suffix: str, size_bytes: int, *, resumes: bool) -> int:
    """How much of the partial file is worth keeping: never a page or another kind of file, never more than the whole."""
    handle.seek(0)
    start = handle.read(4)
    have = _have(handle)
    if not resumes or not start.startswith(_BEGINNINGS.get(suffix, b"")) or (size_bytes and have > size_bytes):
        handle.truncate(0)
    return _have(handle)


def _fetch(session: requests.Session, offer: index.Offer, handle: IO[bytes], on_bytes: cache.OnBytes, manner: Manner) -> None:
    error: Exception = ConnectionError()
    for _ in range(_ATTEMPTS):
        before = _have(handle)
        if offer.size_bytes and before >= offer.size_bytes:
            return
        cache.check_room(Path(handle.name).parent, offer.size_bytes - before)
        try:
            _receive(session, offer, handle, on_bytes, manner)
        except requests.HTTPError as status:
            raise web.problem(offer.file_name, offer.url, status, site=manner.site) from None
        except web.BROKEN as cut:
            error = cut
        else:
            if _have(handle) >= offer.size_bytes:
                return
        if _have(handle) <= before:
            break
    have = _have(handle)
    kept = f" ({units.size(have)} of {units.size(offer.size_bytes)} have arrived and are kept)" if have and offer.size_bytes else ""
    raise web.problem(offer.file_name, offer.url, error, kept, manner.site) from None


def _receive(session: requests.Session, offer: index.Offer, handle: IO[bytes], on_bytes: cache.OnBytes, manner: Manner) -> None:
    """One answer of the server, from where the partial file ends where the server can do that."""
    start = _have(handle)
    # Bytes as they lie on the server: a transfer encoding of its own would make ranges mean something else.
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={start}-"} if start else {})}
    if start and manner.validator:
        headers["If-Range"] = manner.validator
    with session.get(offer.url, headers=headers, stream=True, timeout=web.TIMEOUT_S) as response:
        if response.status_code == requests.codes.requested_range_not_satisfiable and start:
            if response.headers.get("Content-Range", "").endswith(f"/{start}"):
                return
            handle.truncate(0)
            raise ConnectionError
        response.raise_for_status()
        _check_way(offer, response)
        if start and not _goes_on(response, start):
            handle.truncate(0)
            if response.status_code == requests.codes.partial_content:
                raise ConnectionError
            start = 0
        length = response.headers.get("Content-Length", "")
        total = offer.size_bytes or (start + int(length) if length.isdecimal() else 0)
        _store(response, offer, handle, total, on_bytes, manner)


def _check_way(offer: index.Offer, response: requests.Response) -> None:
    """Begun over TLS and led on without it: anybody on the way can exchange the file, and only a digest would tell."""
    hops = [one.url for one in (*response.history, response)]
    if not offer.sha256 and offer.url.startswith("https:") and not all(url.startswith("https:") for url in hops):
        raise errors.Problem(
            "source-forbidden",
            f"{web.host_of(offer.url)} leads to an address without TLS for {offer.file_name}, and no sha256 says which file is right",
            hint="write its sha256 beside the source, or an address that gives the file itself",
            host=web.host_of(offer.url),
        )


def _goes_on(response: requests.Response, start: int) -> bool:
    return response.status_code == requests.codes.partial_content and response.headers.get("Content-Range", "").startswith(
        f"bytes {start}-"
    )


def _store(response: requests.Response, offer: index.Offer, handle: IO[bytes], total: int, on_bytes: cache.OnBytes, manner: Manner) -> None:
    done = _have(handle)
    while block := response.raw.read(_BLOCK_BYTES, decode_content=False):
        if done == 0:
            manner.judge(offer, block)
        handle.write(block)
        done += len(block)
        if not total and done % _ROOM_EVERY_BYTES < len(block):
            # Nobody has said how long it is: it may be endless, and the disk is not for it alone.
            cache.check_room(Path(handle.name).parent, _ROOM_EVERY_BYTES)
        if offer.size_bytes and done > offer.size_bytes:
            # Longer than it may be: stop here, the digest will say the rest.
            break
        on_bytes(done, total)
    handle.flush()


def _have(handle: IO[bytes]) -> int:
    handle.flush()
    return os.fstat(handle.fileno()).st_size


def _digest(path: Path) -> str:
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
