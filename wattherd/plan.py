"""Host + facts + roles -> manifest. Pure: no clock, no network, no file but the role's own templates."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import sys
from collections.abc import Iterable, Mapping, Sequence

from wattherd import errors, records, resources, role
from wattherd.wire import facts, manifest


def load_roles(folder: pathlib.Path) -> Mapping[str, role.Role]:
    """The roles of a project: every module of roles/ that has `resources`. A broken one is named with its error."""
    found: dict[str, role.Role] = {}
    for path in sorted(folder.glob("*.py")):
        if not path.name.startswith("_"):
            found[path.stem] = _load(path)
    return found


def _load(path: pathlib.Path) -> role.Role:
    spec = importlib.util.spec_from_file_location(f"wattherd_roles.{path.stem}", path)
    if spec is None or spec.loader is None:
        raise errors.Problem("role-invalid", f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise errors.Problem("role-invalid", f"roles/{path.name}: {type(error).__name__}: {error}") from error
    if not callable(getattr(module, "resources", None)):
        raise errors.Problem(
            "role-invalid", f"roles/{path.name} has no function resources(host, facts)", hint="docs/how-to/role.md shows one"
        )
    return module


def manifest_for(host: role.Host, told: facts.Facts, roles: Mapping[str, role.Role]) -> manifest.Manifest:
    """Run the host's roles in their order. The same resource from two roles is an error that names both."""
    entries: dict[str, manifest.Entry] = {}
    for name in host.settings.roles:
        for resource in _ask(name, roles[name], host, told):
            entry = resources.encode(resource, role=name, tags=(name,))
            if entry.id in entries:
                raise errors.Problem(
                    "inventory-conflict",
                    f"{host.name}: {entry.id} is wanted twice, by role {entries[entry.id].role} and by role {name}",
                    hint="take one of the two away",
                )
            entries[entry.id] = entry
    entries = {name: _on_its_release(entry, entries) for name, entry in entries.items()}
    return manifest.Manifest(host=host.name, resources=tuple(_with_inputs(host.name, entry, entries) for entry in entries.values()))


def _on_its_release(entry: manifest.Entry, entries: Mapping[str, manifest.Entry]) -> manifest.Entry:
    """Flags whose program is named through a link (`current`) are for the one that the link will lead to.

    So an upgrade translates and tries them on the new binary before the link is turned, and a rollback on the old one.
    """
    binary = str(entry.spec.get("binary", ""))
    links = [one for one in entries.values() if entry.type == "flags" and one.type == "symlink"]
    link = next((one for one in links if binary.startswith(f"{one.spec['path']}/")), None)
    if link is None:
        return entry
    target = str(link.spec["target"])
    release = entries.get(f"artifact:{target}")
    build = str(release.spec.get("build", "")) if release is not None else ""
    return records.replace(entry, spec={**entry.spec, "binary": target + binary[len(str(link.spec["path"])) :], "build": build})


def _with_inputs(host: str, entry: manifest.Entry, entries: Mapping[str, manifest.Entry]) -> manifest.Entry:
    """Turn a unit's `started_from` (ids) into one digest over what those resources are wanted to be.

    The node then restarts the process when it was started from anything else, and a check can say so beforehand.
    """
    names = entry.spec.get("started_from")
    if entry.type != "unit" or not isinstance(names, list):
        return entry
    for name in names:
        if name not in entries:
            raise errors.Problem(
                "inventory-conflict",
                f"{host}: {entry.id} is started from {name}, which no role of this host makes",
                hint=f"roles here: {', '.join(sorted({one.role for one in entries.values()}))}",
            )
    parts = [json.dumps(entries[name].spec, sort_keys=True) for name in sorted(names)]
    spec = {key: value for key, value in entry.spec.items() if key != "started_from"}
    return records.replace(entry, spec={**spec, "inputs": role.digest_of([str(entry.spec.get("inputs", "")), *parts])})


def _ask(name: str, module: role.Role, host: role.Host, told: facts.Facts) -> Iterable[role.Resource]:
    try:
        return list(module.resources(host, told))
    except errors.Problem:
        raise
    except Exception as error:
        raise errors.Problem("role-invalid", f"role {name} failed on {host.name}: {type(error).__name__}: {error}") from error


def tagged(wanted: manifest.Manifest, tags: Sequence[str], skip: Sequence[str]) -> list[str] | None:
    """The ids that --tags and --skip-tags leave; None when neither limits anything. Unknown tags are refused by `known_tags`."""
    if not tags and not skip:
        return None
    return [entry.id for entry in wanted.resources if (not tags or set(entry.tags) & set(tags)) and not set(entry.tags) & set(skip)]
