"""What the controller has resolved for a host: the source of a build and the files of a model, by digest.

Made by `sources`, read by roles. Knows neither where the files lie on the controller nor what a role makes of them.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field

from wattherd import store
from wattherd.gguf.demand import Demand
from wattherd.gguf.shape import Shape
from wattherd.resources import toolkit

MODELS = store.MODELS


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
    """One file by its sha256; `file_name` is its name for people.

    `place` is where it already lies on the node, to be used there; then sha256 '' and size 0 mean that nobody has pinned them.
    """

    sha256: str
    size_bytes: int
    file_name: str
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model of the catalogue: its GGUF (all parts, in order), what stands beside it, and what its header says. 0 and '' are unknown.

    Of a model that is used where it lies on the node, the controller knows only what the catalogue says.
    """

    name: str
    files: tuple[File, ...]
    projector: File | None = None
    adapters: Mapping[str, File] = field(default_factory=dict)
    draft: str = ""
    context: int = 0
    architecture: str = ""
    quantisation: str = ""
    pooling: str = ""
    pre_tokenizer: str = ""
    tensor_types: tuple[str, ...] = ()
    shape: Shape = field(default_factory=Shape)

    @property
    def demand(self) -> Demand:
        """What the llama.cpp that loads it must know."""
        return Demand(self.architecture, self.pre_tokenizer, self.tensor_types)

    @property
    def size_bytes(self) -> int:
        """Of all parts together."""
        return sum(one.size_bytes for one in self.files)

    @property
    def path(self) -> str:
        """What --model is given on the node: the file, or the first part. Also for a model in place: its name here leads there."""
        return self.part_path(0)

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(self.part_path(index) for index in range(len(self.files)))

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
        found = [resource_id(self.path, self.files[0])] if self.files[0].place else [f"artifact:{path}" for path in self.paths]
        found += [resource_id(self.projector_path, self.projector)] if self.projector else []
        found += [resource_id(self.adapter_path(name), file) for name, file in self.adapters.items()]
        return tuple(found)


def resource_id(path: str, file: File) -> str:
    """A file in place is a resource of another type than one that is sent."""
    return f"{'weights' if file.place else 'artifact'}:{path}"


def places(first: str, count: int) -> tuple[str, ...]:
    """Where the parts of a model lie whose first part lies at `first`."""
    if count == 1:
        return (first,)
    folder, name = posixpath.split(first)
    stem = name[: -len("-00001-of-00001.gguf")]
    return tuple(posixpath.join(folder, f"{stem}-{index + 1:05}-of-{count:05}.gguf") for index in range(count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolkit:
    """Programs that compile, as wheels pinned by digest: a CUDA toolkit (`cuda`) or a newer CMake (`cmake`) for one CPU architecture.

    `inside` is the folder of the wheels that becomes the toolkit's own. None of it is fetched before a node asks for it.
    """

    name: str
    version: str
    architecture: str
    inside: str
    wheels: tuple[File, ...]

    @property
    def place(self) -> str:
        """On the node, with what is in it in its name: another set of wheels gets another folder."""
        digest = hashlib.sha256("".join(one.sha256 for one in self.wheels).encode()).hexdigest()
        return f"{toolkit.HOME}/{self.name}-{self.version}-{digest[:8]}"
