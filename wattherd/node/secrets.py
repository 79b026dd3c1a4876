"""Secrets on their way into this node, and out of it: received apart from the manifest, kept while a generation names them.

Knows digests and bytes, never what they are for.
"""

from __future__ import annotations

import contextlib
import stat
from typing import IO, Dict, FrozenSet, Iterator, Mapping, Optional, Set, Tuple

from wattherd import errors, resources
from wattherd import machine as machines
from wattherd.node import generations
from wattherd.resources import base, secret
from wattherd.wire import fields, frame, manifest


def lacking(machine: machines.Machine, wanted: manifest.Manifest, only: Optional[FrozenSet[str]]) -> Dict[str, str]:
    """Resource id -> digest of every secret whose content is not kept here yet."""
    return {one.id: one.digest for one in _secrets(wanted) if (only is None or one.id in only) and not machine.exists(one.kept_path)}


def lost(machine: machines.Machine, wanted: manifest.Manifest) -> Tuple[str, ...]:
    """Secrets that neither stand in their place nor are kept here: only a controller could bring them."""
    kept = set(lacking(machine, wanted, None))
    return tuple(one.id for one in _secrets(wanted) if one.id in kept and base.delta(one.wanted(), one.actual(machine)))


def receive(source: IO[bytes], count: int) -> bytes:
    """The bytes behind the verb's line. All are taken off the stream, also of what is refused: none may be read as a verb and told of."""
    body = frame.read_bytes(source, min(max(count, 0), secret.LIMIT_BYTES))
    left = count - len(body)
    while left > 0:
        left -= len(frame.read_bytes(source, min(left, secret.LIMIT_BYTES)))
    if not 0 < count <= secret.LIMIT_BYTES:
        raise errors.Problem("secret-invalid", f"a secret of {count} bytes was refused: one has at most {secret.LIMIT_BYTES}")
    return body


def keep(machine: machines.Machine, wanted: manifest.Manifest, resource_id: str, body: bytes) -> None:
    """Keep a secret under the digest that the manifest gives it. The words of a refusal hold nothing of it."""
    one = next((one for one in _secrets(wanted) if one.id == resource_id), None)
    if one is None:
        raise errors.Problem("manifest-invalid", f"a secret came for {resource_id[:200]}, which the manifest does not name")
    if not one.fits(body):
        raise errors.Problem("secret-invalid", f"the secret that came for {one.id} is not the one that the manifest names")
    machine.make_dirs(secret.KEPT, 0o700)
    machine.chmod(secret.KEPT, 0o700)
    machine.write(one.kept_path, body, mode=0o600, owner=(0, 0))


def prune(machine: machines.Machine, wanted: manifest.Manifest) -> None:
    """Delete every secret that neither this manifest nor a kept generation nor the record of what is managed names.

    What stays is root's alone, whatever somebody made of its rights meanwhile.
    """
    for path, mode in ((secret.KEPT, 0o700), *((f"{secret.KEPT}/{name}", 0o600) for name in machine.names(secret.KEPT))):
        found = machine.lstat(path)
        if found is not None and not stat.S_ISLNK(found.st_mode) and machine.mode_text(found) != f"{mode:04o}":
            machine.chmod(path, mode)
    left = set(machine.names(secret.KEPT)) - {one.digest for one in _secrets(wanted)}
    for name in left - _remembered(machine) if left else ():
        machine.unlink(f"{secret.KEPT}/{name}")


def _secrets(wanted: manifest.Manifest) -> Iterator[secret.Secret]:
    for entry in wanted.resources:
        if entry.type == secret.Secret.TYPE:
            made = resources.decode(entry)
            if isinstance(made, secret.Secret):
                yield made


def _remembered(machine: machines.Machine) -> Set[str]:
    found: Set[str] = set()
    for number in generations.numbers(machine):
        with contextlib.suppress(errors.Problem):
            found.update(_digest(entry) for entry in fields.objects(generations.read(machine, number).manifest, "resources"))
    for row in generations.Owned.load(machine).rows.values():
        with contextlib.suppress(errors.Problem):
            found.add(_digest(fields.document(row.get("entry"), "entry")))
    return found


def _digest(entry: Mapping[str, object]) -> str:
    if entry.get("type") != secret.Secret.TYPE:
        return ""
    return fields.text(fields.document(entry.get("spec"), "spec"), "digest", "")
