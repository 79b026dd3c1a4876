"""Before any host is touched: every source and model that the selected hosts name, as verified files on this controller."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from wattherd import inventory, material, role
from wattherd.verbs import project

OnBytes = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Staged:
    """A file that a node may ask for by its digest; `what` is its name in progress lines."""

    path: pathlib.Path
    what: str


@dataclass(frozen=True)
class Sources:
    """What was resolved, by digest for the wire and by name for the roles."""

    folders: tuple[pathlib.Path, ...]
    files: Mapping[str, Staged] = field(default_factory=dict)
    archives: Mapping[str, material.Archive] = field(default_factory=dict)
    models: Mapping[str, material.Model] = field(default_factory=dict)

    def role_host(self, host: inventory.Host) -> role.Host:
        return role.Host(
            name=host.name,
            groups=host.groups,
            settings=host.settings,
            variables=host.variables,
            folders=self.folders,
            models=self.models,
            archive=self.archives.get(host.name),
        )


def sources(here: project.Project, loaded: inventory.Inventory, hosts: Sequence[inventory.Host], on_bytes: OnBytes) -> Sources:
    """Resolve each distinct source once. Raises the Problem of the first that cannot be had: nothing is half done then."""
    files: dict[str, Staged] = {}
    archives: dict[str, material.Archive] = {}
    resolved: dict[object, material.Archive] = {}
    for host in hosts:
        setting = host.settings.llama_cpp
        if setting is None or "llama_cpp" not in host.settings.roles:
            continue
        key = (setting.source, setting.sha256, setting.build_number, setting.commit)
        if key not in resolved:
            from wattherd.sources import resolve

            found = resolve.archive(setting, here.cache, here.root, functools.partial(on_bytes, setting.source))
            files[found.archive.sha256] = Staged(found.path, "source")
            resolved[key] = found.archive
        archives[host.name] = resolved[key]
    models = {name: _model(here, loaded, name, files, on_bytes) for name in _model_names(hosts)}
    return Sources(here.template_folders, files, archives, models)


def _model_names(hosts: Sequence[inventory.Host]) -> list[str]:
    """Every model that a selected host holds or serves, once, in first-seen order."""
    names: dict[str, None] = {}
    for host in hosts:
        if "models" in host.settings.roles or "server" in host.settings.roles:
            names |= dict.fromkeys(host.settings.model_names)
    return list(names)


def _model(here: project.Project, loaded: inventory.Inventory, name: str, files: dict[str, Staged], on_bytes: OnBytes) -> material.Model:
    from wattherd.sources import resolve

    found = resolve.model(name, loaded.catalogue[name], here.cache, here.root, functools.partial(on_bytes, name))
    for digest, path in found.paths.items():
        files[digest] = Staged(path, f"model {name}")
    return found.model
