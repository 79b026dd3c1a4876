"""The benchmark's big file: compared by its sha256, which the node remembers while size, mtime, ctime and inode stay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from wattherd.role import Artifact, Facts, Host, Resource


def resources(host: Host, facts: Facts) -> Iterator[Resource]:
    del facts
    yield Artifact(
        path=str(host.variables["app_blob"]),
        digest=str(host.variables["blob_sha256"]),
        size_bytes=cast("int", host.variables["blob_bytes"]),
        mode="0640",
    )
