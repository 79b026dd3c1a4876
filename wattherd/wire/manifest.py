"""The ordered list of what one node should be: machine-written, authoritative, the same text for the same meaning.

Knows the shape of an entry, not what its type does: `wattherd.resources` turns an entry into a resource.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Mapping, Tuple

from wattherd import errors
from wattherd.records import dataclass
from wattherd.wire import fields

VERSION = 1


@dataclass(frozen=True)
class Entry:
    """One wanted resource. `spec` holds the fields of its type; `id` is repeated so that every reader can name it."""

    id: str
    type: str
    role: str
    spec: Mapping[str, object]
    tags: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    host: str
    resources: Tuple[Entry, ...]
    manifest: int = VERSION


def encode(value: Manifest) -> bytes:
    """Canonical bytes: sorted keys, no clock, so equal meanings have equal digests."""
    return json.dumps(to_plain(value), sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode()


def to_plain(value: Manifest) -> Mapping[str, Any]:
    plain: Mapping[str, Any] = {**fields.plain(value), "manifest": value.manifest}
    return plain


def decode(body: bytes) -> Manifest:
    try:
        document = fields.document(fields.parsed(body.decode("utf-8")), "manifest")
    except ValueError as error:
        raise errors.Problem("manifest-invalid", f"the manifest is not JSON: {error}") from error
    if fields.integer(document, "manifest") != VERSION:
        raise errors.Problem("protocol-mismatch", f"manifest version {document['manifest']} is not {VERSION}")
    value = fields.build(Manifest, document, "manifest")
    seen = set()
    for entry in value.resources:
        if entry.id in seen:
            raise errors.Problem(
                "manifest-invalid", f"{entry.id} is listed twice", hint="two roles, or two lines of one, ask for the same thing"
            )
        seen.add(entry.id)
    return value


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
