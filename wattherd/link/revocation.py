"""RevokedHostKeys: the user's own list of keys that must never be accepted, as lines of keys or in ssh-keygen's binary form.

Owns the reading of such a list. One that cannot be read revokes everything, as in ssh.
"""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

from wattherd import errors
from wattherd.link import certificates

_BINARY = b"SSHKRL\n\0"
_ANSWER_S = 20.0


def is_revoked(key: bytes, revoked_keys: Path) -> bool:
    try:
        listed = revoked_keys.read_bytes()
    except OSError as error:
        raise _unreadable(revoked_keys, error.strerror or "") from error
    if listed.startswith(_BINARY):
        return _asked(key, revoked_keys)
    certificate = certificates.read(key) if certificates.is_certificate(key) else None
    shown = {base64.b64encode(one) for one in ((certificate.key, certificate.authority) if certificate else (key,))}
    return bool(shown & set(listed.split()))


def _asked(key: bytes, revoked_keys: Path) -> bool:
    """Only ssh-keygen knows the binary form: it answers with its exit status."""
    line = f"{certificates.blob_type(key)} {base64.b64encode(key).decode()}\n"
    try:
        argv = ("ssh-keygen", "-Q", "-f", str(revoked_keys), "/dev/stdin")
        done = subprocess.run(argv, input=line.encode(), capture_output=True, timeout=_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unreadable(revoked_keys, str(error)) from error
    return done.returncode != 0


def _unreadable(path: Path, reason: str) -> errors.Problem:
    return errors.Problem(
        "ssh-config", f"cannot read the revoked host keys in {path}: {reason}", hint="see RevokedHostKeys in ~/.ssh/config"
    )
