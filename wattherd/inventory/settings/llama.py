"""Settings of the roles `llama_cpp` and `cuda`: what is built, for which cards, with which toolkit."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, model_validator

from wattherd.inventory.settings.kinds import Count, Digest, Many, Option, Path, Program, Word, matching, option, wrong

Architecture = Annotated[str, matching(r"[1-9][0-9]{1,2}[af]?", "an SM number in quotes, such as '86' or '87'")]


class LlamaCpp(BaseModel, extra="forbid", frozen=True, strict=True):
    """`backend` auto is CUDA where an NVIDIA GPU is, else CPU; a machine with a GPU is never built for its CPU unasked."""

    source: Program
    sha256: Digest | None = None
    backend: Literal["auto", "cpu", "cuda"] = "auto"
    rpc: bool = False
    cpu_variants: bool = False
    options: dict[Option, Annotated[str | bool | int, BeforeValidator(option)]] = {}
    jobs: Count | None = None
    builder: str | None = None
    keep: Count = 2
    build_number: Count | None = None
    commit: Annotated[str, matching(r"[0-9a-f]{0,40}", "a commit's hexadecimal digits")] = ""

    @model_validator(mode="after")
    def _digest_of_a_file(self) -> LlamaCpp:
        if not self.source.startswith("pypi:") and self.sha256 is None:
            raise wrong("given sha256 too, since its source is a file")
        return self


class Cuda(BaseModel, extra="forbid", frozen=True, strict=True):
    """`toolkit`: installed (in /usr/local/cuda* or PATH), distribution (its package), wheels (from PyPI), or auto: the first that serves.

    `architectures` overrides what the cards say. `host_compiler` is the g++ that nvcc uses. `hold_driver` marks the driver's packages as
    held, so that no upgrade of the night takes the driver away from under a running server.
    """

    toolkit: Literal["auto", "installed", "distribution", "wheels"] = "auto"
    version: Annotated[str, matching(r"[1-9][0-9]\.[0-9]{1,2}", "a CUDA version in quotes, such as '13.0'")] | None = None
    path: Path | None = None
    architectures: Many[Architecture] = ()
    host_compiler: Word | None = None
    hold_driver: bool = False
