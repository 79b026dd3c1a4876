"""The catalogue on this controller: every model that some hosts need, resolved and compared; and what `invoke models` shows of it."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from wattherd import errors, inventory, material, role
from wattherd.gguf import kinds
from wattherd.inventory import names
from wattherd.serving import held, lint, memory
from wattherd.serving.secrets import Book
from wattherd.verbs import project
from wattherd.wire import facts

if TYPE_CHECKING:
    from wattherd.sources import models as sources

OnBytes = Callable[[str, int, int], None]

_MOST_NAMED = 10


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """Models by name; `files` are name, digest and place on this controller; `notes` are for the operator to read."""

    models: Mapping[str, material.Model]
    files: tuple[tuple[str, str, pathlib.Path], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Row:
    """One entry of the catalogue as `invoke models` shows it. '' and 0 are unknown; `problem` is why its header is not known."""

    name: str
    source: str
    title: str = ""
    architecture: str = ""
    quantisation: str = ""
    kind: str = ""
    parameters: int = 0
    context: int = 0
    size_bytes: int = 0
    license: str = ""
    draft: str = ""
    sha256: tuple[str, ...] = ()
    tensor_types: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    problem: errors.Problem | None = None

    @property
    def parts(self) -> int:
        return len(self.sha256)


def every(
    here: project.Project, loaded: inventory.Inventory, hosts: Sequence[inventory.Host], secrets: Book, on_bytes: OnBytes
) -> Resolved:
    """Resolve each model that a host of these holds, once. Draft models are compared with those that they draft for."""
    from wattherd.sources import models

    found: dict[str, sources.ResolvedModel] = {}
    for host in hosts:
        if not {"models", "server"} & set(host.settings.roles):
            continue
        for name in held.held_models(host.settings, lambda name: entry_of(loaded.catalogue, name).draft or ""):
            if name not in found:
                found[name] = _one(here, name, entry_of(loaded.catalogue, name), secrets, functools.partial(on_bytes, name), fetches=True)
    for one in found.values():
        if one.model.draft in found:
            models.check_draft(one, found[one.model.draft])
    return Resolved(
        models={name: one.model for name, one in found.items()},
        files=tuple((name, digest, path) for name, one in found.items() for digest, path in one.paths.items()),
        notes=tuple(f"model {name}: {note}" for name, one in found.items() for note in one.notes),
    )


def contexts(host: role.Host) -> list[str]:
    """What each server's context comes to: in total, and for one request."""
    served = host.settings.serve if "server" in host.settings.roles else ()
    rows = [(_label(server, name), options, host.models[name]) for server in served for name, options in _served(server)]
    return [f"{label}: {lint.context(options, model.context).words}" for label, options, model in rows]


def doubts(host: role.Host, told: facts.Facts, *, plans: bool = False) -> list[str]:
    """Warnings about what this host would serve, from headers and facts; raises the Problem of what cannot work there.

    With `plans`, also what is odd about options that work.
    """
    words: list[str] = []
    for server in host.settings.serve if "server" in host.settings.roles else ():
        where = f"{host.name}: {server.name}"
        for name, options in _served(server):
            model = host.models[name]
            kinds.check_option(where, model.pooling, options.kind)
            if options.draft is not None and not model.draft:
                raise errors.Problem(
                    "model-mismatch",
                    f"{where}: {name} is to be served with a draft model, and its entry in models.yaml names none",
                    hint=f"write draft: NAME in the entry {name}, or take draft: away from the server",
                )
            if plans:
                words += [f"{_label(server, name)}: {one}" for one in lint.warnings(options, model.context)]
        found = memory.check(host.name, server, host.models, told.memory_bytes, _card_bytes(host, told))
        words += [one.partition(": ")[2] if one.startswith(f"{host.name}: ") else one for one in found]
    return words


def _label(server: inventory.settings.Serve, model: str) -> str:
    return f"{server.name}, model {model}" if server.router is not None else server.name


def _served(server: inventory.settings.Serve) -> list[tuple[str, inventory.settings.Options]]:
    if server.router is not None:
        return [(one.model, one) for one in server.router.models]
    return [(server.model or "", server)]


def _card_bytes(host: role.Host, told: facts.Facts) -> int | None:
    """None where the CPU serves, and on a Jetson, whose GPU has no memory of its own. 0 when one card's size is not known."""
    backend = host.settings.llama_cpp.backend if host.settings.llama_cpp is not None else "auto"
    cards = [card for card in told.gpus if card.vendor == "nvidia"]
    if backend == "cpu" or told.jetson or not cards:
        return None
    return sum(card.memory_mib for card in cards) * 1024 * 1024 if all(card.memory_mib for card in cards) else 0


def show(
    here: project.Project, loaded: inventory.Inventory, asked: Sequence[str], secrets: Book, on_bytes: OnBytes, *, fetches: bool
) -> list[Row]:
    """Each entry, or those asked for, with what its header says. One that cannot be read is a row that says why."""
    chosen = asked or sorted(loaded.catalogue)
    return [
        _row(here, name, entry_of(loaded.catalogue, name), secrets, functools.partial(on_bytes, name), fetches=fetches) for name in chosen
    ]


def entry_of(catalogue: inventory.settings.Catalogue, name: str) -> inventory.settings.Model:
    if name not in catalogue:
        hint = names.meant(name, catalogue) or f"it has: {', '.join(sorted(catalogue)[:_MOST_NAMED]) or 'none'}"
        raise errors.Problem("unknown-model", f"models.yaml has no model '{name}'", hint=hint)
    return catalogue[name]


def _one(
    here: project.Project,
    name: str,
    entry: inventory.settings.Model,
    secrets: Book,
    on_bytes: Callable[[int, int], None],
    *,
    fetches: bool,
) -> sources.ResolvedModel:
    from wattherd.sources import models

    token = entry.token
    read = None if token is None else (lambda: secrets.token(token).reveal().decode())
    return models.model(name, entry, here.cache, here.root, on_bytes, token=read, fetches=fetches)


def _row(
    here: project.Project,
    name: str,
    entry: inventory.settings.Model,
    secrets: Book,
    on_bytes: Callable[[int, int], None],
    *,
    fetches: bool,
) -> Row:
    said = Row(
        name=name,
        source=entry.source,
        architecture=entry.architecture or "",
        quantisation=entry.quantisation or "",
        context=entry.context or 0,
        license=entry.license or "",
        draft=entry.draft or "",
        sha256=entry.parts or ((entry.sha256,) if entry.sha256 else ()),
    )
    try:
        found = _one(here, name, entry, secrets, on_bytes, fetches=fetches)
    except errors.Problem as problem:
        return replace(said, problem=problem)
    header, model = found.header, found.model
    if header is None:
        return replace(said, notes=found.notes)
    return replace(
        said,
        title=header.name,
        architecture=header.architecture,
        quantisation=header.file_type,
        kind=header.pooling if header.pooling not in {"", "none"} else "chat",
        parameters=header.parameters,
        context=header.context_length,
        size_bytes=model.size_bytes,
        license=entry.license or header.license,
        sha256=tuple(file.sha256 for file in model.files),
        tensor_types=header.tensor_types,
        notes=found.notes,
    )
