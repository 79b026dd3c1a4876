"""One entry of the catalogue -> a model that can be served: every part, what stands beside it, and whether all of it fits together.

Callers pass each entry once, from any thread. A second call with nothing changed reads no file, only stat. Knows no roles and no hosts.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from wattherd import errors, material
from wattherd.gguf import header as headers
from wattherd.gguf import kinds, split
from wattherd.gguf.shape import Shape
from wattherd.sources import cache as caches
from wattherd.sources import links, origins, spec, weights

if TYPE_CHECKING:
    from wattherd.inventory import settings

Judge = Callable[[headers.Header], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedModel:
    """`paths` says where each file lies on this controller, by digest; `header` is None for a model that lies on the node.

    `notes` is what was corrected or looks odd, for the operator to read.
    """

    model: material.Model
    paths: Mapping[str, Path]
    header: headers.Header | None
    notes: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class _Collected:
    """What one entry's files came to while they were resolved."""

    root: Path
    fetcher: weights.Fetcher
    paths: dict[str, Path] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def model(
    name: str,
    entry: settings.Model,
    cache: Path,
    project_root: Path,
    on_bytes: caches.OnBytes,
    *,
    token: Callable[[], str] | None = None,
    fetches: bool = True,
) -> ResolvedModel:
    """`token` gives the entry's secret, when it is needed. With `fetches` False, what is not in the cache is `source-not-fetched`."""
    fetcher = weights.Fetcher(cache=cache, on_bytes=on_bytes, token=token, fetches=fetches)
    got = _Collected(root=project_root, fetcher=fetcher)
    source = spec.parse_model(entry.source, project_root)
    pins = entry.parts or ((entry.sha256,) if entry.sha256 else ())
    found: headers.Header | None = None
    if isinstance(source, spec.NodeFile):
        files = _on_node(source, pins, split_up=not entry.sha256)
    else:
        files, found = _here(source, pins, got)
        kinds.servable(found, f"{name}, {entry.source},")
        kinds.check_said(name, entry.architecture or "", entry.quantisation or "", entry.context or 0, found)
    made = material.Model(
        name=name,
        files=files,
        draft=entry.draft or "",
        context=found.context_length if found else entry.context or 0,
        architecture=found.architecture if found else entry.architecture or "",
        quantisation=found.file_type if found else entry.quantisation or "",
        pooling=found.pooling if found else "",
        # Of another kind of vocabulary llama.cpp does not read this key.
        pre_tokenizer=found.pre_tokenizer if found and found.tokenizer == "gpt2" else "",
        tensor_types=tuple(sorted(found.tensor_types)) if found else (),
        shape=found.shape if found else Shape(),
    )
    made = replace(made, projector=_projector(entry, found, got), adapters=_adapters(entry, found, got))
    return ResolvedModel(model=made, paths=got.paths, header=found, notes=tuple(got.notes))


def check_draft(target: ResolvedModel, draft: ResolvedModel) -> None:
    """`model-mismatch` when one cannot draft for the other. What lies on the node is judged by the server there."""
    if target.header is not None and draft.header is not None:
        kinds.check_draft(target.model.name, target.header, draft.model.name, draft.header)


def _here(source: spec.Source, pins: Sequence[str], got: _Collected) -> tuple[tuple[material.File, ...], headers.Header]:
    """Every part as a file of this controller, and what they say together."""
    if isinstance(source, links.WebFile) and source.note:
        got.notes.append(source.note)
    origin = origins.of(source, got.fetcher)
    parts = _parts(origin, pins)
    got.paths.update({part.sha256: part.path for part in parts})
    files = tuple(material.File(sha256=part.sha256, size_bytes=part.size_bytes, file_name=part.file_name) for part in parts)
    return files, headers.joined([part.header for part in parts])


def _parts(origin: origins.Origin, pins: Sequence[str]) -> list[origins.Held]:
    """One file, or all N of N. The header of the first says how many there are; missing ones are named at once, before gigabytes move."""
    said = split.name(origin.file_name)
    lacking: list[str] = []
    if said is not None and said.count > 1:
        lacking = origin.missing(said.every)
        # One whole file under the name of a part is no split model: its own header says so.
        if lacking and len(lacking) < said.count - 1:
            raise split.missing(said, lacking, origin.shown)
    pinned = pins[said.number - 1] if said is not None and len(pins) == said.count else (pins[0] if len(pins) == 1 else "")
    first = origin.hold(pinned)
    count = first.header.split_count
    if count == 1:
        if len(pins) > 1:
            raise _pins(origin.shown, len(pins), 1)
        return [first]
    split.check_part(first.file_name, first.header, first.header.split_part, count, origin.shown)
    named = split.name(first.file_name)
    if named is None or named.number != 1:
        raise split.not_first(named or split.Name(first.file_name, 1, count), origin.shown)
    if lacking:
        raise split.missing(named, lacking, origin.shown)
    if pins and len(pins) != count:
        raise _pins(origin.shown, len(pins), count)
    parts = [first]
    for number in range(2, count + 1):
        beside = origin.beside(named.of(number))
        held = beside.hold(pins[number - 1] if pins else "")
        split.check_part(held.file_name, held.header, number, count, beside.shown)
        parts.append(held)
    return parts


def _pins(shown: str, pinned: int, count: int) -> errors.Problem:
    what = f"{count} parts" if count > 1 else "one whole file"
    return errors.Problem(
        "model-mismatch",
        f"{shown} is {what}, and the catalogue pins {pinned} of them",
        hint="write parts: with the sha256 of every part in order" if count > 1 else "write sha256: with the digest of the file",
    )


def _on_node(source: spec.NodeFile, pins: Sequence[str], *, split_up: bool) -> tuple[material.File, ...]:
    """A model that lies on the node: how many parts it has stands in its name; the node compares that with the headers."""
    said = split.name(posixpath.basename(source.path)) if split_up else None
    if said is not None and said.number != 1:
        raise split.not_first(said, str(source))
    count = said.count if said is not None else 1
    if pins and len(pins) != count:
        raise _pins(str(source), len(pins), count)
    return tuple(
        material.File(sha256=pins[index] if pins else "", size_bytes=0, file_name=posixpath.basename(place), place=place)
        for index, place in enumerate(material.places(source.path, count))
    )


def _projector(entry: settings.Model, target: headers.Header | None, got: _Collected) -> material.File | None:
    """Only the one that the catalogue names: what else lies in the folder may belong to another model."""
    if entry.projector is None:
        return None

    def judge(found: headers.Header) -> None:
        note = kinds.check_projector(entry.projector.source if entry.projector else "", found, target or found)
        got.notes.extend([note] if note and target is not None else [])

    return _beside(entry.projector.source, entry.projector.sha256, judge, got)


def _adapters(entry: settings.Model, target: headers.Header | None, got: _Collected) -> dict[str, material.File]:
    found: dict[str, material.File] = {}
    for adapter in entry.adapters:
        if adapter.name in found:
            raise errors.Problem("model-mismatch", f"two adapters are called '{adapter.name}'", hint="give each a name of its own")

        def judge(header: headers.Header, source: str = adapter.source) -> None:
            kinds.check_adapter(source, header, target or header)

        found[adapter.name] = _beside(adapter.source, adapter.sha256, judge, got)
    return found


def _beside(text: str, sha256: str | None, judge: Judge, got: _Collected) -> material.File:
    source = spec.parse_model(text, got.root)
    if isinstance(source, spec.NodeFile):
        return _on_node(source, (sha256,) if sha256 else (), split_up=False)[0]
    files, header = _here(source, (sha256,) if sha256 else (), got)
    judge(header)
    return files[0]
