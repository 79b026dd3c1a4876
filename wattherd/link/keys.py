"""Private keys on disk and in an agent: what can be offered to a host, and in which order.

Owns the reading of key files (each once for a whole fleet) and the talk with an agent. A key with a passphrase is used only through an
agent: nothing here asks a person. Knows nothing of connections.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko
from paramiko import agent as paramiko_agent
from paramiko import pkey

from wattherd.link import certificates, hostkeys, route

_MAGIC = b"openssh-key-v1\0"
_AGENT_S = 10.0


@dataclass(frozen=True)
class Login:
    """How a machine let us in, so that OpenSSH can do the same: a key file, or the public half of a key that the agent holds."""

    private_key: Path | None = None
    agent_key: bytes = b""
    certificate: Path | None = None


@dataclass(frozen=True)
class Offer:
    """One key for one attempt."""

    title: str
    key: paramiko.PKey
    login: Login


@dataclass(frozen=True)
class Useless:
    """A key file that cannot be offered, and why."""

    title: str
    reason: str


class KeyFiles:
    """Reads key files, each once while it stays the same. Safe to share between threads; the keys it gives are not to be changed."""

    def __init__(self) -> None:
        self._read: dict[tuple[Path, Path | None, int], paramiko.PKey | str] = {}

    def private(self, path: Path, certificate: Path | None = None) -> paramiko.PKey | str:
        """The key, or why it cannot be had."""
        try:
            stamp = path.stat().st_mtime_ns + (certificate.stat().st_mtime_ns if certificate else 0)
        except OSError as error:
            return error.strerror or "cannot be read"
        found = self._read.get((path, certificate, stamp))
        if found is None:
            found = self._read[path, certificate, stamp] = _load(path, certificate)
        return found

    def public(self, path: Path) -> bytes:
        """The public half of a key file, without its passphrase; b"" when neither the file nor the one beside it tells."""
        for candidate in (path.with_name(path.name + ".pub"), path):
            with contextlib.suppress(OSError):
                text = candidate.read_bytes()
                if blob := _public_line(text) or _clear_part(text):
                    return blob
        return b""


class Agent(paramiko_agent.AgentSSH):
    """One conversation with an agent. An agent that cannot be reached holds no keys."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.failure = ""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) if address else None
        if self._socket is None:
            return
        try:
            self._socket.settimeout(_AGENT_S)
            self._socket.connect(address)
            self._connect(self._socket)  # type: ignore[attr-defined]  # the stubs leave out what paramiko's own subclasses call
        except (OSError, paramiko.SSHException) as error:
            self.failure = f"the agent at {address} does not answer ({error})"

    def close(self) -> None:
        if self._socket:
            self._socket.close()


def offers(hop: route.Hop, files: KeyFiles, agent: Agent) -> Iterator[Offer | Useless]:
    """What to try at a machine: the keys that somebody named, then the agent's others, then the usual files of ~/.ssh."""
    held = {_plain(key.blob): key for key in agent.get_keys() if not certificates.is_certificate(key.blob)}
    spent: set[bytes] = set()
    for path in hop.identities:
        yield from _from_file(path, hop, files, held, spent)
    if not hop.identities_only:
        for key in agent.get_keys():
            if _plain(key.blob) not in spent:
                yield _from_agent(key)
        spent.update(held)
    for path in hop.default_identities:
        yield from _from_file(path, hop, files, held, spent)


def _from_file(
    path: Path, hop: route.Hop, files: KeyFiles, held: dict[bytes, paramiko_agent.AgentKey], spent: set[bytes]
) -> Iterator[Offer | Useless]:
    public = files.public(path)
    if public in spent:
        return
    title = f"{path} ({_fingerprint(public)})" if public else str(path)
    reason = ""
    for certificate in (*_certificates_for(public, path, hop), None):
        key = files.private(path, certificate)
        if isinstance(key, paramiko.PKey):
            spent.add(key.asbytes())
            yield Offer(title, key, Login(private_key=path, certificate=certificate))
        else:
            reason = key
    if reason and public in held:
        spent.add(public)
        yield _from_agent(held[public])
    elif reason:
        yield Useless(title, reason)


def _from_agent(key: paramiko_agent.AgentKey) -> Offer:
    if certificates.is_certificate(key.blob):
        # Without this, paramiko would send the plain key under the name of a certificate.
        key.public_blob = pkey.PublicBlob(key.get_name(), key.blob)  # type: ignore[assignment]
    return Offer(f"{key.comment or 'a key'} of the agent ({_fingerprint(key.blob)})", key, Login(agent_key=key.blob))


def _certificates_for(public: bytes, path: Path, hop: route.Hop) -> Iterator[Path]:
    for candidate in dict.fromkeys((*hop.certificates, path.with_name(path.name + "-cert.pub"))):
        with contextlib.suppress(OSError, ValueError):
            if public and certificates.read(_public_line(candidate.read_bytes())).key == public:
                yield candidate


def _load(path: Path, certificate: Path | None) -> paramiko.PKey | str:
    try:
        key = paramiko.PKey.from_path(path)
        key.public_blob = None
        if certificate:
            key.load_certificate(str(certificate))
    except OSError as error:
        return error.strerror or "cannot be read"
    except (TypeError, paramiko.PasswordRequiredException):
        return "has a passphrase and no agent holds it"
    except (ValueError, paramiko.SSHException, pkey.UnknownKeyType):
        return "is not a private key of a kind that can be used here"
    except Exception as error:  # noqa: BLE001 - the parsers below raise whatever their libraries raise; one bad file is not the end
        return f"cannot be read ({type(error).__name__})"
    return key


def _public_line(text: bytes) -> bytes:
    """The blob of a `type base64 comment` line; b"" when the text is anything else."""
    words = text.split(None, 2)
    try:
        blob = base64.b64decode(words[1], validate=True) if len(words) > 1 else b""
    except binascii.Error:
        return b""
    return blob if blob and certificates.blob_type(blob).encode() == words[0] else b""


def _clear_part(text: bytes) -> bytes:
    """The public key that stands unencrypted inside a private key of OpenSSH's own format."""
    try:
        data = base64.b64decode(b"".join(line for line in text.split(b"\n") if not line.startswith(b"-----")))
    except binascii.Error:
        return b""
    if not data.startswith(_MAGIC):
        return b""
    message = paramiko.Message(data[len(_MAGIC) :])
    for _ in range(3):
        message.get_binary()
    message.get_int()
    return message.get_binary()


def _plain(blob: bytes) -> bytes:
    with contextlib.suppress(ValueError):
        return certificates.read(blob).key if certificates.is_certificate(blob) else blob
    return blob


def _fingerprint(blob: bytes) -> str:
    try:
        return hostkeys.fingerprint(blob)
    except ValueError:
        return "a certificate"
