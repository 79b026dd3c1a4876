"""What a GGUF says of itself, as one record. 0 and '' are unknown. A split model's parts are joined into one header."""

from __future__ import annotations

from typing import Mapping, Sequence

from wattherd import records
from wattherd.gguf import reader, shape, tables
from wattherd.gguf.shape import Shape
from wattherd.records import dataclass

_MOST_PARTS = 65_535
_PROJECTORS = {"mmproj", "clip-vision"}
#: Keys of a projector that say how wide its output is; which of them counts differs by its kind.
_PROJECTIONS = ("clip.vision.projection_dim", "clip.audio.projection_dim")


@dataclass(frozen=True, kw_only=True)
class Header:
    """`kind` is model, vocabulary, adapter, imatrix, projector or other. `tokens` are digests as `reader.Tokens` has them.

    `adds_bos` and `adds_eos` are 'yes', 'no' or unknown; the ids of bos and eos are -1 when unknown. `projection` is the width of a
    projector's output.
    """

    version: int
    kind: str
    architecture: str
    tensor_count: int
    parameters: int
    type: str = ""
    name: str = ""
    base_model: str = ""
    file_type: str = ""
    license: str = ""
    context_length: int = 0
    pooling: str = ""
    pre_tokenizer: str = ""
    tokenizer: str = ""
    token_count: int = 0
    tokens: str = ""
    bos: int = -1
    eos: int = -1
    adds_bos: str = ""
    adds_eos: str = ""
    chat_template: bool = False
    projection: int = 0
    split_part: int = 1
    split_count: int = 1
    tensor_types: Mapping[str, int]
    shape: Shape = Shape()


def of(version: int, raw: reader.Raw) -> Header:
    architecture = raw.text("general.architecture")
    context_length = raw.number(f"{architecture}.context_length") or 0
    vocabulary = raw.vocabulary or reader.Tokens(0, "")
    return Header(
        version=version,
        kind=_kind(raw, architecture, context_length),
        architecture=_plain(architecture),
        type=_plain(raw.text("general.type")),
        name=_plain(raw.text("general.name")),
        base_model=_plain(raw.text("general.base_model.0.name")),
        file_type=_named(tables.FILE_TYPES, raw.number("general.file_type")),
        license=_plain(raw.text("general.license")),
        context_length=context_length,
        tensor_count=raw.tensor_count,
        parameters=raw.parameters,
        pooling=_named(tables.POOLING, raw.number(f"{architecture}.pooling_type")),
        pre_tokenizer=_plain(raw.text("tokenizer.ggml.pre")),
        tokenizer=_plain(raw.text("tokenizer.ggml.model")),
        token_count=vocabulary.count,
        tokens=vocabulary.digests,
        bos=_id(raw, "tokenizer.ggml.bos_token_id"),
        eos=_id(raw, "tokenizer.ggml.eos_token_id"),
        adds_bos=_flag(raw, "tokenizer.ggml.add_bos_token"),
        adds_eos=_flag(raw, "tokenizer.ggml.add_eos_token"),
        chat_template=any(raw.text(key) for key in raw.values if key.startswith("tokenizer.chat_template")),
        projection=next((found for key in _PROJECTIONS for found in (raw.number(key),) if found), 0),
        split_part=(raw.number("split.no", _MOST_PARTS) or 0) + 1,
        split_count=raw.number("split.count", _MOST_PARTS) or 1,
        tensor_types=raw.tensor_types,
        shape=shape.of(raw, architecture) if architecture else Shape(),
    )


def joined(parts: Sequence[Header]) -> Header:
    """One header for a split model: the first part's words, everybody's tensors."""
    types: dict[str, int] = {}
    for part in parts:
        for name, count in part.tensor_types.items():
            types[name] = types.get(name, 0) + count
    first = parts[0]
    weights_bytes = sum(part.shape.weights_bytes for part in parts)
    return records.replace(
        first,
        tensor_count=sum(part.tensor_count for part in parts),
        parameters=sum(part.parameters for part in parts),
        tensor_types=types,
        shape=records.replace(first.shape, weights_bytes=weights_bytes),
    )


def _kind(raw: reader.Raw, architecture: str, context_length: int) -> str:
    declared = raw.text("general.type")
    if declared == "adapter" or raw.is_lora:
        return "adapter"
    if declared == "imatrix":
        return "imatrix"
    if declared in _PROJECTORS or architecture == "clip":
        return "projector"
    split_count = raw.number("split.count", _MOST_PARTS) or 1
    if raw.tensor_count == 0:
        # The first part of a split model may hold metadata only.
        return "model" if split_count > 1 else "vocabulary"
    # Only the first part of a split model holds the model's own keys.
    later_part = split_count > 1 and (raw.number("split.no", _MOST_PARTS) or 0) > 0
    return "model" if context_length or later_part else "other"


def _id(raw: reader.Raw, key: str) -> int:
    found = raw.number(key)
    return -1 if found is None else found


def _flag(raw: reader.Raw, key: str) -> str:
    value = raw.values.get(key)
    return ("yes" if value else "no") if isinstance(value, bool) else ""


def _named(table: Mapping[int, str], number: int | None) -> str:
    return "" if number is None else table.get(number, f"type {number}")


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split())[:200])
