"""Getting to know a host: fetch the keys that it shows, and record those that a person has agreed to.

Owns the project's own known_hosts file. Fetching logs in nowhere but at jump hosts that are already trusted; recording never replaces
a key unless it is told to. Asks nobody anything: that is the verb's business.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wattherd import errors
from wattherd.link import certificates, hostkeys, keys, route, ssh

#: Kinds of key, each with the algorithms under which a machine offers it.
_KINDS = (
    ("ssh-ed25519", ("ssh-ed25519",)),
    ("ecdsa-sha2-nistp256", ("ecdsa-sha2-nistp256",)),
    ("ecdsa-sha2-nistp384", ("ecdsa-sha2-nistp384",)),
    ("ecdsa-sha2-nistp521", ("ecdsa-sha2-nistp521",)),
    ("ssh-rsa", ("rsa-sha2-512", "rsa-sha2-256")),
)


@dataclass(frozen=True)
class Found:
    """A key that a machine shows. `name` is what known_hosts calls the machine, `hop` what a person does."""

    hop: str
    name: str
    key_type: str
    key: str
    fingerprint: str
    state: hostkeys.State
    where: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        return f"{self.name} {self.key_type} {self.key}"


def fetch(
    path: route.Route,
    library: hostkeys.Library,
    *,
    now: float,
    files: keys.KeyFiles | None = None,
    connect_timeout_s: float = ssh.CONNECT_TIMEOUT_S,
) -> list[Found]:
    """The keys of the target; or of the first jump host that is not trusted yet, because nothing behind it can be asked before it is."""
    way = ssh.Way(path, library, now=now, files=files, connect_timeout_s=connect_timeout_s)
    try:
        for hop in path.hops:
            found = _of_machine(way, hop, path.title(hop))
            if not any(one.state == "known" for one in found):
                return found
            way.enter(hop)
        return _of_machine(way, path.target, path.target.label)
    finally:
        way.close()


def record(known_hosts: Path, found: Iterable[Found], *, replace: bool = False) -> list[Found]:
    """Write the keys that are not known yet; returns those written. A second time changes nothing.

    Problem("host-key-changed") when one contradicts what is known, unless `replace`: then its machine's old lines go.
    """
    wanted = [one for one in found if one.state in {"unknown", "changed"}]
    changed = [one for one in wanted if one.state == "changed"]
    if changed and not replace:
        raise errors.Problem(
            "host-key-changed",
            f"{changed[0].hop} shows {changed[0].fingerprint} and is known by another key: {', '.join(changed[0].where)}",
            hint="find out why first; trust records no changed key on its own",
            hop=changed[0].hop,
        )
    known_hosts.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(known_hosts):
        old = known_hosts.read_text("utf-8").splitlines() if known_hosts.exists() else []
        kept = _without(old, {one.name for one in changed})
        lines = [*kept, *dict.fromkeys(one.line for one in wanted if one.line not in kept)]
        if lines != old:
            _write(known_hosts, lines)
    return [one for one in wanted if one.line not in old]


def _of_machine(way: ssh.Way, hop: route.Hop, title: str) -> list[Found]:
    """One exchange per kind of key that the machine has; the kind that we know it by is asked for first."""
    known = way.known(hop)
    first = way.show(hop, way.known_types(hop))
    shown = {_kind(first.key): first.key}
    for kind, algorithms in _KINDS:
        if kind not in shown and set(algorithms) & set(first.offered):
            key = way.show(hop, (kind,)).key
            shown.setdefault(_kind(key), key)
    verdicts = {kind: way.judge(hop, key) for kind, key in shown.items()}
    # A machine that proves itself by one key may add others. Otherwise a new kind is as suspicious as a new key.
    proven = any(verdict.state == "known" for verdict in verdicts.values())
    return [_found(hop, title, shown[kind], verdict, known, proven=proven) for kind, verdict in verdicts.items()]


def _found(hop: route.Hop, title: str, key: bytes, verdict: hostkeys.Verdict, known: Sequence[hostkeys.Entry], *, proven: bool) -> Found:
    plain = certificates.read(key).key if certificates.is_certificate(key) else key
    kind = certificates.blob_type(plain)
    is_new_kind = verdict.state == "changed" and not any(entry.key_type == kind and not entry.marker for entry in known)
    return Found(
        hop=title,
        name=hostkeys.token(*hop.known_as),
        key_type=kind,
        key=base64.b64encode(plain).decode(),
        fingerprint=hostkeys.fingerprint(key),
        state="unknown" if is_new_kind and proven else verdict.state,
        where=tuple(entry.where for entry in verdict.entries),
    )


def _kind(key: bytes) -> str:
    return certificates.blob_type(key).removesuffix(certificates.SUFFIX)


def _without(lines: Sequence[str], names: set[str]) -> list[str]:
    """Without the plain keys of these machines; lines of several names lose only these."""
    kept = []
    for line in lines:
        first, _, rest = line.partition(" ")
        left = [name for name in first.split(",") if name.lower() not in names]
        if line.startswith(("#", "@")) or not rest or len(left) == len(first.split(",")):
            kept.append(line)
        elif left:
            kept.append(f"{','.join(left)} {rest}")
    return kept


@contextlib.contextmanager
def _locked(known_hosts: Path) -> Iterator[None]:
    """Two commands at once write one after the other. The lock is a file of its own: the other one is replaced under it."""
    with known_hosts.with_name(known_hosts.name + ".lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _write(known_hosts: Path, lines: Sequence[str]) -> None:
    number, name = tempfile.mkstemp(dir=known_hosts.parent, prefix=f".{known_hosts.name}.")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as handle:
            handle.write("\n".join(lines) + "\n")
            handle.flush()
            os.fsync(handle.fileno())
        Path(name).replace(known_hosts)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
