"""Which SSH algorithms to offer, and in which order. Pure: names in, names out.

Owns three choices: ask a host first for the kind of key that it is known by, spend little on key exchange and on bulk encryption, and
let the user's explicit lists stand above both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from wattherd import errors
from wattherd.link import certificates

_RSA = ("rsa-sha2-512", "rsa-sha2-256")
_CURVE = ("curve25519-sha256", "curve25519-sha256@libssh.org")
#: Post-quantum first where it is cheap. sntrup761, the default of OpenSSH 9, costs ten times the processor time of these.
_CHEAP_KEX = ("mlkem768x25519-sha256", *_CURVE)
_FAST_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com", "aes128-ctr", "aes256-ctr")
_CPU_INFO = Path("/proc/cpuinfo")


def host_keys(supported: Sequence[str], known: Sequence[str], explicit: Sequence[str]) -> tuple[str, ...]:
    """`known` as hostkeys.Book.key_types gives it. Certificates are asked for only where an authority is trusted."""
    if explicit:
        return tuple(name for name in explicit if name in supported)
    plain = [name for name in supported if not name.endswith(certificates.SUFFIX)]
    signed = [name + certificates.SUFFIX for name in plain] if certificates.SUFFIX in known else []
    first = [name for kind in known for name in (_RSA if kind == "ssh-rsa" else (kind,)) if name in plain]
    return tuple(dict.fromkeys((*signed, *first, *plain)))


def only(supported: Sequence[str], explicit: Sequence[str]) -> tuple[str, ...]:
    """The supported ones among an explicit list, in its order; all supported ones where nothing is explicit."""
    if not explicit:
        return tuple(supported)
    wanted = [twin for name in explicit for twin in (_CURVE if name in _CURVE else (name,))]
    return tuple(dict.fromkeys(name for name in wanted if name in supported))


def demand(offered: Iterable[str], what: str, explicit: Sequence[str], title: str) -> tuple[str, ...]:
    """Refuse an explicit list of which the control session can do nothing."""
    found = tuple(offered)
    if not found:
        raise errors.Problem(
            "ssh-config",
            f"{title}: none of these {what} is possible on the control session: {', '.join(explicit)}",
            hint=f"add another to {what} for this host in ~/.ssh/config",
        )
    return found


def bulk_kex(client: Sequence[str]) -> tuple[str, ...]:
    """The installed ssh's own list with the cheap ones first."""
    return tuple(dict.fromkeys((*(name for name in _CHEAP_KEX if name in client), *client)))


def bulk_ciphers(*, fast_aes: bool) -> tuple[str, ...]:
    """AES in GCM moves half as much again as ChaCha20 where the processor knows AES, and much less where it does not."""
    return _FAST_CIPHERS if fast_aes else tuple(sorted(_FAST_CIPHERS, key=lambda name: not name.startswith("chacha20")))


def has_fast_aes(cpu_info: Path = _CPU_INFO) -> bool:
    """Whether this processor has instructions for AES. Where nothing says so (macOS), it has."""
    try:
        lines = cpu_info.read_text("utf-8", "replace").splitlines()
    except OSError:
        return True
    return any("aes" in line.split() for line in lines if line.startswith(("flags", "Features")))
