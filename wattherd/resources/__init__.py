"""The types a manifest may name. A new type is one file and one line in PLACES (docs/how-to/resource.md).

A type's module is loaded when the first entry of that type is met: no session pays for what its manifest does not name.
"""

from __future__ import annotations

import importlib
import typing
from typing import Dict, FrozenSet, Optional, Tuple, Type

from wattherd import errors
from wattherd import machine as machines
from wattherd.resources import base
from wattherd.wire import fields, manifest

#: type -> module of this room, and its class.
PLACES: Dict[str, Tuple[str, str]] = {
    "user": ("user", "User"),
    "directory": ("directory", "Directory"),
    "file": ("file", "File"),
    "secret": ("secret", "Secret"),
    "symlink": ("symlink", "Symlink"),
    "package": ("package", "Package"),
    "driver": ("driver", "Driver"),
    "haproxy": ("haproxy", "Haproxy"),
    "flags": ("flags", "Flags"),
    "unit": ("unit", "Unit"),
    "artifact": ("artifact", "Artifact"),
    "weights": ("weights", "Weights"),
    "build": ("build", "Build"),
    "power-policy": ("power", "PowerPolicy"),
    "power": ("power", "Power"),
    "program": ("program", "Program"),
    "jetson": ("jetson", "Jetson"),
}


def kind(name: str) -> Optional[Type[base.Resource]]:
    """The class of a type; None for one that is not known here."""
    if name not in PLACES:
        return None
    module, member = PLACES[name]
    return typing.cast("Type[base.Resource]", getattr(importlib.import_module(f"wattherd.resources.{module}"), member))


def types() -> Tuple[Type[base.Resource], ...]:
    """All of them, loaded."""
    return tuple(found for found in map(kind, PLACES) if found is not None)


def decode(entry: manifest.Entry) -> base.Resource:
    """The resource that an entry describes; `manifest-invalid` when the type, a field or the id is not what we know."""
    found = kind(entry.type)
    if found is None:
        raise errors.Problem("manifest-invalid", f"{entry.id}: no type '{entry.type}' here", hint="the node program is of another version")
    made = fields.build(found, entry.spec, entry.id)
    if made.id != entry.id:
        raise errors.Problem("manifest-invalid", f"{entry.id} describes {made.id}")
    return made


def encode(resource: base.Resource, *, role: str, tags: Tuple[str, ...] = ()) -> manifest.Entry:
    return manifest.Entry(id=resource.id, type=resource.TYPE, role=role, tags=tags, spec=fields.plain(resource))


def needs(
    machine: machines.Machine, wanted: manifest.Manifest, only: Optional[FrozenSet[str]] = None, coming: FrozenSet[str] = frozenset()
) -> Dict[str, Dict[str, int]]:
    """What the store lacks for this manifest: resource id -> digest -> size in bytes. Builds of a fingerprint in `coming` want nothing."""
    found: Dict[str, Dict[str, int]] = {}
    for entry in wanted.resources:
        if (only is None or entry.id in only) and entry.spec.get("fingerprint") not in coming:
            missing = dict(decode(entry).needs(machine))
            if missing:
                found[entry.id] = missing
    return found
