"""The types a manifest may name. A new type is one file and one line in TYPES (docs/how-to/resource.md)."""

from __future__ import annotations

from typing import Tuple, Type

from wattherd import errors
from wattherd.resources import artifact, base, build, directory, driver, file, flags, haproxy, package, secret, symlink, unit, user, weights
from wattherd.wire import fields, manifest

TYPES: Tuple[Type[base.Resource], ...] = (
    user.User,
    directory.Directory,
    file.File,
    secret.Secret,
    symlink.Symlink,
    package.Package,
    driver.Driver,
    haproxy.Haproxy,
    flags.Flags,
    unit.Unit,
    artifact.Artifact,
    weights.Weights,
    build.Build,
)


def decode(entry: manifest.Entry) -> base.Resource:
    """The resource that an entry describes; `manifest-invalid` when the type, a field or the id is not what we know."""
    for kind in TYPES:
        if entry.type == kind.TYPE:
            made = fields.build(kind, entry.spec, entry.id)
            if made.id != entry.id:
                raise errors.Problem("manifest-invalid", f"{entry.id} describes {made.id}")
            return made
    raise errors.Problem("manifest-invalid", f"{entry.id}: no type '{entry.type}' here", hint="the node program is of another version")


def encode(resource: base.Resource, *, role: str, tags: Tuple[str, ...] = ()) -> manifest.Entry:
    return manifest.Entry(id=resource.id, type=resource.TYPE, role=role, tags=tags, spec=fields.plain(resource))
