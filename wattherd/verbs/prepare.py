"""Before any host is touched: every source and model that the selected hosts name, as verified files on this controller."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from wattherd import inventory, material, role
from wattherd.link import archive
from wattherd.serving.secrets import Book
from wattherd.sources import toolkit
from wattherd.verbs import models, project, secrets

OnBytes = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Staged:
    """A file that a node may ask for by its digest; `what` is its name in progress lines."""

    path: pathlib.Path
    what: str
    fetch: Callable[[], pathlib.Path] | None = None

    def here(self) -> pathlib.Path:
        """Where it lies; what was left where it is until somebody asks for it is fetched now."""
        return self.fetch() if self.fetch is not None else self.path


@dataclass(frozen=True)
class Sources:
    """What was resolved, by digest for the wire and by name for the roles."""

    folders: tuple[pathlib.Path, ...]
    secrets: Book
    files: Mapping[str, Staged] = field(default_factory=dict)
    archives: Mapping[str, material.Archive] = field(default_factory=dict)
    models: Mapping[str, material.Model] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def role_host(self, host: inventory.Host) -> role.Host:
        return role.Host(
            name=host.name,
            groups=host.groups,
            settings=host.settings,
            variables=host.variables,
            folders=self.folders,
            models=self.models,
            archive=self.archives.get(host.name),
            secrets=self.secrets,
            toolkits=toolkit.offers(),
            program=archive.program().digest,
        )


def sources(here: project.Project, loaded: inventory.Inventory, hosts: Sequence[inventory.Host], on_bytes: OnBytes) -> Sources:
    """Resolve each distinct source once. Raises the Problem of the first that cannot be had: nothing is half done then."""
    held = secrets.book(here.root)
    secrets.read_all(held, hosts)
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
    catalogue = models.every(here, loaded, hosts, held, on_bytes)
    files |= {digest: Staged(path, f"model {name}") for name, digest, path in catalogue.files}
    files |= toolkit_files(here.cache, on_bytes)
    return Sources(here.template_folders, held, files, archives, catalogue.models, catalogue.notes)


def toolkit_files(cache: pathlib.Path, on_bytes: OnBytes) -> dict[str, Staged]:
    """Wheels that a node may ask for. None is fetched before one does: a CUDA toolkit is 600 MB that most runs never need."""
    return {
        file.sha256: Staged(
            cache / "sources" / file.file_name,
            file.file_name.split("-")[0],
            functools.partial(toolkit.wheel, file, cache, functools.partial(on_bytes, file.file_name)),
        )
        for offer in toolkit.offers()
        for file in offer.wheels
    }
