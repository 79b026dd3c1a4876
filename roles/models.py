"""The GGUF files that a host holds: each by its digest in the node's store, and a readable name that points at it."""

from __future__ import annotations

from collections.abc import Iterator

from wattherd.role import Artifact, Directory, Facts, Host, Resource

FOLDER = "/var/lib/wattherd/models"


def resources(host: Host, facts: Facts) -> Iterator[Resource]:
    del facts
    yield Directory(path=FOLDER)
    for name in host.settings.model_names:
        model = host.model(name)
        for index, part in enumerate(model.files):
            yield Artifact(path=model.part_path(index), kind="file", digest=part.sha256, size_bytes=part.size_bytes)
