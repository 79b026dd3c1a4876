"""OpenSSH host certificates: read one, and say what speaks against it.

Owns the format (PROTOCOL.certkeys) and the checks of a client: host type, principals, the window of time, critical options and the
authority's signature. Which authorities are trusted for which host is known_hosts' business; `now` comes from the caller.
"""

from __future__ import annotations

import datetime as dt
import struct
from dataclasses import dataclass

import paramiko

from wattherd.link import noise

SUFFIX = "-cert-v01@openssh.com"
_HOST_KIND = 2
_FOR_EVER = (1 << 64) - 1
_KEY_FIELDS = {
    "ssh-ed25519": 1,
    "ssh-rsa": 2,
    "ecdsa-sha2-nistp256": 2,
    "ecdsa-sha2-nistp384": 2,
    "ecdsa-sha2-nistp521": 2,
}
#: SHA-1 signatures by an RSA authority are refused, as OpenSSH does since 8.2.
_SIGNATURES = {
    "ssh-ed25519": {"ssh-ed25519"},
    "ssh-rsa": {"rsa-sha2-256", "rsa-sha2-512"},
    "ecdsa-sha2-nistp256": {"ecdsa-sha2-nistp256"},
    "ecdsa-sha2-nistp384": {"ecdsa-sha2-nistp384"},
    "ecdsa-sha2-nistp521": {"ecdsa-sha2-nistp521"},
}


@dataclass(frozen=True)
class Certificate:
    """The fields that matter to a client. `key` is the plain public key that the certificate is about."""

    key: bytes
    kind: int
    key_id: str
    principals: tuple[str, ...]
    valid_after_s: int
    valid_before_s: int
    critical_options: tuple[str, ...]
    authority: bytes
    signed: bytes
    signature: bytes


class _Fields:
    """Reads the length-prefixed fields of a key blob; ValueError when they do not fit."""

    def __init__(self, blob: bytes) -> None:
        self._blob = blob
        self.offset = 0

    def take(self, size: int) -> bytes:
        end = self.offset + size
        if end > len(self._blob):
            raise ValueError("it is cut short")
        taken = self._blob[self.offset : end]
        self.offset = end
        return taken

    def string(self) -> bytes:
        return self.take(struct.unpack(">I", self.take(4))[0])

    def number(self, layout: str) -> int:
        value: int = struct.unpack(layout, self.take(struct.calcsize(layout)))[0]
        return value

    def rest(self) -> int:
        return len(self._blob) - self.offset


def blob_type(blob: bytes) -> str:
    """The type that a public key or certificate says it has; "" when it is not one."""
    try:
        name = _Fields(blob).string()
    except ValueError:
        return ""
    return name.decode("ascii", "replace") if name.isascii() else ""


def is_certificate(blob: bytes) -> bool:
    return blob_type(blob).endswith(SUFFIX)


def read(blob: bytes) -> Certificate:
    """Take a certificate apart. ValueError when it is not one or is damaged."""
    fields = _Fields(blob)
    plain_type = fields.string().decode("ascii", "replace").removesuffix(SUFFIX)
    if plain_type not in _KEY_FIELDS:
        raise ValueError(f"certificates for keys of type {noise.plain(plain_type)} are not understood")
    fields.string()  # the nonce
    parts = [plain_type.encode(), *(fields.string() for _ in range(_KEY_FIELDS[plain_type]))]
    fields.number(">Q")  # the serial
    kind = fields.number(">I")
    key_id = fields.string().decode("utf-8", "replace")
    principals = tuple(name.decode("utf-8", "replace") for name in _strings(fields.string()))
    after_s, before_s = fields.number(">Q"), fields.number(">Q")
    options = tuple(name.decode("utf-8", "replace") for name in _strings(fields.string())[::2])
    fields.string()  # extensions: none concern a host
    fields.string()  # reserved
    authority = fields.string()
    signed = blob[: fields.offset]
    signature = fields.string()
    if fields.rest():
        raise ValueError("something follows its signature")
    key = b"".join(struct.pack(">I", len(part)) + part for part in parts)
    return Certificate(key, kind, key_id, principals, after_s, before_s, options, authority, signed, signature)


def objection(certificate: Certificate, name: str, now: float) -> str:
    """Why this certificate does not prove that a host is called name; "" when it does. Its authority must already be trusted."""
    window = _outside_window(certificate, now)
    checks = (
        (certificate.kind != _HOST_KIND, "it is a certificate for users, not for hosts"),
        # Before any of its words is looked at: they are a stranger's until the authority has vouched for them.
        (not _signature_holds(certificate), "the signature of its authority is wrong or of a kind that is not accepted"),
        (
            bool(certificate.critical_options),
            f"it has critical options that no client understands: {_listed(certificate.critical_options)}",
        ),
        (bool(window), window),
        (not certificate.principals, "it names no host; sign it again with ssh-keygen -h -n NAME"),
    )
    for fails, reason in checks:
        if fails:
            return reason
    is_named = any(fits(principal, name) for principal in certificate.principals)
    return "" if is_named else f"it is for {_listed(certificate.principals)}, not for {name}"


def _outside_window(certificate: Certificate, now: float) -> str:
    if now < certificate.valid_after_s:
        return f"it is valid only from {_instant(certificate.valid_after_s)}"
    if now >= certificate.valid_before_s and certificate.valid_before_s != _FOR_EVER:
        return f"it expired at {_instant(certificate.valid_before_s)}"
    return ""


def _listed(names: tuple[str, ...]) -> str:
    return noise.plain(", ".join(names))


def fits(pattern: str, text: str) -> bool:
    """Match as OpenSSH does: only * and ? are special, the brackets of [host]:port stand for themselves, case does not matter."""
    wanted, given = pattern.lower(), text.lower()
    at = place = 0
    star, retry = -1, 0
    # A regular expression would take ages for a pattern of many stars, and a stranger may have written the pattern.
    while place < len(given):
        if at < len(wanted) and wanted[at] == "*":
            star, retry = at, place
            at += 1
        elif at < len(wanted) and wanted[at] in {"?", given[place]}:
            at += 1
            place += 1
        elif star >= 0:
            retry += 1
            at, place = star + 1, retry
        else:
            return False
    return not wanted[at:].strip("*")


def _strings(blob: bytes) -> list[bytes]:
    fields = _Fields(blob)
    found = []
    while fields.rest():
        found.append(fields.string())
    return found


def _signature_holds(certificate: Certificate) -> bool:
    authority_type = blob_type(certificate.authority)
    try:
        fields = _Fields(certificate.signature)
        if fields.string().decode("ascii", "replace") not in _SIGNATURES.get(authority_type, ()) or not fields.string() or fields.rest():
            return False
        key = paramiko.PKey.from_type_string(authority_type, certificate.authority)
        return bool(key.verify_ssh_sig(certificate.signed, paramiko.Message(certificate.signature)))
    except (paramiko.SSHException, ValueError, TypeError):
        return False


def _instant(seconds: int) -> str:
    try:
        return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return "a time beyond the calendar"
