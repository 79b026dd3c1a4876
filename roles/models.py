"""The GGUF files that a host holds: each by its digest in the node's store, and a readable name that points at it."""

from __future__ import annotations

from collections.abc import Iterator

from wattherd.role import Artifact, Directory, Facts, Host, Resource

FOLDER = "/var/lib/wattherd/models"


def path_of(name: str) -> str:
    return f"{FOLDER}/{name}.gguf"


def resources(host: Host, facts: Facts) -> Iterator[Resource]:
    del facts
    yield Directory(path=FOLDER)
    for name in dict.fromkeys([*host.settings.models, *(one.model for one in host.settings.serve)]):
        model = host.model(name)
        yield Artifact(path=path_of(name), kind="file", digest=model.sha256, size_bytes=model.size_bytes)
