"""The GGUF files that a host holds, by readable names: sent ones lead into the node's store, those in place lead to where they lie."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from wattherd.role import MODELS, Artifact, Directory, Facts, Host, Model, Resource, Weights, held_models
from wattherd.role import ModelFile as File


def resources(host: Host, facts: Facts) -> Iterator[Resource]:
    del facts
    yield Directory(path=MODELS)
    for name in held_models(host.settings, lambda name: host.model(name).draft):
        yield from _model(host, host.model(name))


def _model(host: Host, model: Model) -> Iterator[Resource]:
    if len(model.files) > 1:
        yield Directory(path=posixpath.dirname(model.path))
    if model.files[0].place:
        yield _in_place(model.paths, model.files, "model", model)
    else:
        for path, part in zip(model.paths, model.files, strict=True):
            yield _sent(host, path, part)
    beside = [("projector", model.projector_path, model.projector)] if model.projector else []
    for kind, path, file in [*beside, *(("adapter", model.adapter_path(name), file) for name, file in model.adapters.items())]:
        yield _in_place((path,), (file,), kind) if file.place else _sent(host, path, file)


def _sent(host: Host, path: str, file: File) -> Artifact:
    return Artifact(path=path, kind="file", digest=file.sha256, size_bytes=file.size_bytes, adopt=host.settings.model_folders)


def _in_place(paths: tuple[str, ...], files: tuple[File, ...], kind: str, said: Model | None = None) -> Weights:
    """What the catalogue says of a model goes along, so that the node can compare it with the header."""
    return Weights(
        paths=paths,
        places=tuple(file.place for file in files),
        digests=tuple(file.sha256 for file in files if file.sha256),
        kind=kind,
        architecture=said.architecture if said else "",
        quantisation=said.quantisation if said else "",
        context=said.context if said else 0,
    )
