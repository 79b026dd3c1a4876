"""Known hosts: which keys a host is known by, and what to think of the key that it shows.

Owns the format of known_hosts (patterns, hashes, markers, lines that ssh can never match) and the verdict, which follows OpenSSH's
own rules so that the control session and the bulk channel always agree. Connects to nothing and writes nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wattherd import errors
from wattherd.link import certificates

DEFAULT_PORT = 22
AUTHORITY = "@cert-authority"
REVOKED = "@revoked"
_SALTED = "|1|"
_SHA1_BYTES = 20

State = Literal["known", "unknown", "changed", "revoked"]


@dataclass(frozen=True)
class Entry:
    """One usable line. `marker` is "", @cert-authority or @revoked."""

    path: Path
    line: int
    marker: str
    names: str
    key: bytes

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}"

    @property
    def key_type(self) -> str:
        return certificates.blob_type(self.key)


@dataclass(frozen=True)
class Broken:
    """A line that can never match, and why."""

    path: Path
    line: int
    reason: str

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True)
class Verdict:
    """What to think of a key. `entries` are the lines that decided; `detail` says what speaks against a certificate."""

    state: State
    entries: tuple[Entry, ...] = ()
    detail: str = ""


def fingerprint(key: bytes) -> str:
    """As ssh prints it: SHA256:… without padding. A certificate has the fingerprint of its plain key."""
    if certificates.is_certificate(key):
        key = certificates.read(key).key
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def token(name: str, port: int) -> str:
    """The name under which known_hosts files a host."""
    return name.lower() if port == DEFAULT_PORT else f"[{name.lower()}]:{port}"


class Book:
    """The lines of several known_hosts files together."""

    def __init__(self, entries: Iterable[Entry], broken: Iterable[Broken] = ()) -> None:
        self.broken = tuple(broken)
        self._plain: dict[str, list[Entry]] = {}
        self._hashed: list[tuple[bytes, bytes, Entry]] = []
        self._patterns: list[Entry] = []
        for entry in entries:
            salted = _salt_and_hash(entry.names)
            if salted:
                self._hashed.append((*salted, entry))
            elif set(entry.names) & set("*?!"):
                self._patterns.append(entry)
            else:
                for name in set(entry.names.lower().split(",")):
                    self._plain.setdefault(name, []).append(entry)

    def entries(self, name: str, port: int) -> tuple[Entry, ...]:
        """Every line whose names match exactly this host and port, in no order that matters."""
        wanted = token(name, port)
        hashed = (e for salt, digest, e in self._hashed if hmac.compare_digest(hmac.digest(salt, wanted.encode(), "sha1"), digest))
        return (*self._plain.get(wanted, ()), *hashed, *(entry for entry in self._patterns if _matches(entry.names, wanted)))

    def key_types(self, name: str, port: int) -> tuple[str, ...]:
        """The types to ask this host for: certificates first where an authority is trusted for it, then those it is known by."""
        entries = self._usable(name, port)
        signed = any(entry.marker == AUTHORITY for entry in entries)
        plain = tuple(dict.fromkeys(entry.key_type for entry in entries if not entry.marker))
        return (*((certificates.SUFFIX,) if signed else ()), *plain)

    def verdict(self, name: str, port: int, key: bytes, now: float) -> Verdict:
        """Known only when a line vouches for this very key, or an authority for a certificate that holds; revocation always wins."""
        certificate = None
        detail = ""
        if certificates.is_certificate(key):
            try:
                certificate = certificates.read(key)
            except ValueError as error:
                return Verdict("unknown", detail=f"its certificate cannot be read: {error}")
        plain = certificate.key if certificate else key
        entries = self._usable(name, port)
        revoked = tuple(e for e in entries if e.marker == REVOKED and e.key in {plain, certificate.authority if certificate else plain})
        if revoked:
            return Verdict("revoked", revoked)
        if certificate:
            vouching = tuple(e for e in entries if e.marker == AUTHORITY and e.key == certificate.authority)
            detail = certificates.objection(certificate, name, now) if vouching else "no @cert-authority line names its authority"
            if not detail:
                return Verdict("known", vouching)
        return self._plain_verdict(name, port, plain, detail)

    def _plain_verdict(self, name: str, port: int, key: bytes, detail: str) -> Verdict:
        same = tuple(entry for entry in self._usable(name, port) if not entry.marker and entry.key == key)
        if same:
            return Verdict("known", same)
        others = tuple(entry for entry in self.entries(name, port) if not entry.marker)
        # A host that shows a key of a type it is not known by no longer has the key it was known by: we asked for that one first.
        alike = tuple(entry for entry in others if entry.key_type == certificates.blob_type(key)) or others
        return Verdict("changed", alike, detail) if alike else Verdict("unknown", detail=detail)

    def _usable(self, name: str, port: int) -> tuple[Entry, ...]:
        """Lines for host and port, then lines for the host without its port: ssh accepts a match there too, though never an objection."""
        exact = self.entries(name, port)
        return exact if port == DEFAULT_PORT else (*exact, *self.entries(name, DEFAULT_PORT))


class Library:
    """Reads known_hosts files, each once while it stays the same. The project's own file is part of every book."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self._read: dict[Path, tuple[object, tuple[Entry, ...], tuple[Broken, ...]]] = {}
        self._bound: dict[tuple[object, ...], Book] = {}

    def book(self, files: Iterable[Path]) -> Book:
        paths = tuple(dict.fromkeys((*files, self.project)))
        pages = [self._pages(path) for path in paths]
        key = tuple(zip(paths, (stamp for stamp, _, _ in pages), strict=True))
        if key not in self._bound:
            self._bound[key] = Book((e for _, entries, _ in pages for e in entries), (b for _, _, broken in pages for b in broken))
        return self._bound[key]

    def _pages(self, path: Path) -> tuple[object, tuple[Entry, ...], tuple[Broken, ...]]:
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if self._read.get(path, (None,))[0] != stamp:
                self._read[path] = (stamp, *parse(path, path.read_text("utf-8", "replace")))
        except (FileNotFoundError, NotADirectoryError):
            return None, (), ()
        except OSError as error:
            raise errors.Problem("ssh-config", f"cannot read {path}: {error.strerror}", hint="host keys are looked up there") from error
        return self._read[path]


def parse(path: Path, text: str) -> tuple[tuple[Entry, ...], tuple[Broken, ...]]:
    """The usable and the broken lines of one file."""
    entries: list[Entry] = []
    broken: list[Broken] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        marker = words.pop(0) if words[0].startswith("@") else ""
        reason, key = _read_words(marker, words)
        if reason:
            broken.append(Broken(path, number, reason))
        else:
            entries.append(Entry(path, number, marker, words[0], key))
    return tuple(entries), tuple(broken)


def _read_words(marker: str, words: list[str]) -> tuple[str, bytes]:
    """What is wrong with a line, or its key."""
    if marker not in {"", AUTHORITY, REVOKED}:
        return f"the marker {marker} means nothing", b""
    if len(words) < 3:
        return "names, key type and key are not all there", b""
    reason = _wrong_names(words[0])
    try:
        key = base64.b64decode(words[2], validate=True)
    except binascii.Error:
        return reason or "the key is not base64", b""
    if certificates.blob_type(key) != words[1]:
        return reason or f"the key is not of type {words[1]}", b""
    return reason, key


def _wrong_names(names: str) -> str:
    if names.startswith(f"[{_SALTED}"):
        return "the port stands outside the hash, so ssh never matches this line (an old ssh-keyscan -H -p wrote it): scan again"
    if names.startswith("|") and _salt_and_hash(names) is None:
        return "the hashed name is damaged"
    return ""


def _salt_and_hash(names: str) -> tuple[bytes, bytes] | None:
    parts = names.split("|")
    if len(parts) != 4 or not names.startswith(_SALTED):
        return None
    try:
        salt, digest = (base64.b64decode(part, validate=True) for part in parts[2:])
    except binascii.Error:
        return None
    return (salt, digest) if len(digest) == _SHA1_BYTES else None


def _matches(names: str, wanted: str) -> bool:
    patterns = names.split(",")
    if any(pattern.startswith("!") and certificates.fits(pattern[1:], wanted) for pattern in patterns):
        return False
    return any(certificates.fits(pattern, wanted) for pattern in patterns if not pattern.startswith("!"))
