"""What the controller has resolved for a host: the source of a build and the files of a model, by digest.

Made by `sources`, read by roles. Knows neither where the files lie on the controller nor what a role makes of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Where the node keeps readable names for what lies in its store by digest.
MODELS = "/var/lib/wattherd/models"


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """The source of a build, a .tar.gz by its sha256."""

    name: str
    sha256: str
    size_bytes: int
    build_number: int = 0
    commit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file by its sha256; `file_name` is its name for people."""

    sha256: str
    size_bytes: int
    file_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model of the catalogue: its GGUF (all parts, in order), what stands beside it, and what its header says. 0 and '' are unknown.

    `place` is the path on the node of a model that is used where it lies; empty for one that Wattherd puts there.
    """

    name: str
    files: tuple[File, ...]
    place: str = ""
    projector: File | None = None
    adapters: Mapping[str, File] = field(default_factory=dict)
    draft: str = ""
    context: int = 0

    @property
    def size_bytes(self) -> int:
        """Of all parts together."""
        return sum(one.size_bytes for one in self.files)

    @property
    def path(self) -> str:
        """What --model is given on the node: the file, or the first part."""
        return self.place or self.part_path(0)

    def part_path(self, index: int) -> str:
        """llama.cpp finds the other parts by their names, so a split model keeps the form that it knows."""
        if len(self.files) == 1:
            return f"{MODELS}/{self.name}.gguf"
        return f"{MODELS}/{self.name}/{self.name}-{index + 1:05}-of-{len(self.files):05}.gguf"

    @property
    def projector_path(self) -> str:
        return f"{MODELS}/{self.name}.mmproj.gguf"

    def adapter_path(self, name: str) -> str:
        return f"{MODELS}/{self.name}.lora-{name}.gguf"

    def artifact_ids(self) -> tuple[str, ...]:
        """The ids of the resources that make up this model on a node: a server that uses it was started from them."""
        paths = [self.part_path(index) for index in range(len(self.files))] if not self.place else [self.place]
        paths += [self.projector_path] if self.projector else []
        paths += [self.adapter_path(name) for name in self.adapters]
        return tuple(f"artifact:{path}" for path in paths)
