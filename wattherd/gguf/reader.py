"""The header of a GGUF file, read within bounds: no count is believed beyond what the file could hold.

Reads metadata and the tensor table, never tensor data. Says what stands there; `check` says what it means. Big-endian
files, old versions and other formats are refused before this module sees them.
"""

from __future__ import annotations

import hashlib
import math
import struct
from typing import IO, Dict, List, Mapping, Optional, Set, Tuple, Union

from wattherd import errors, units
from wattherd.gguf import layout as layouts
from wattherd.gguf import tables
from wattherd.records import dataclass

#: The largest headers in use are near 30 MB and a million strings (vocabulary and merges).
MOST_HEADER_BYTES = 128 * 1024 * 1024
MOST_STRINGS = 4_000_000
MOST_KEYS = 65_536
MOST_TENSORS = 262_144
_KEY_BYTES = 65_535
_KEPT_TEXT_BYTES = 4096
_NAME_BYTES = 63
_DIMENSIONS = 4
#: Arrays of numbers up to this length are kept: one value a layer, not one a token.
_KEPT_NUMBERS = 1024
_KEPT_ARRAYS = 64
#: The whole numbers among the scalar types.
_WHOLE = frozenset((0, 1, 2, 3, 4, 5, 7, 10, 11))
TOKENS = "tokenizer.ggml.tokens"
#: llama.cpp compares the tokens of a draft model from this one on, and lets two vocabularies differ by this much at the end.
FIRST_COMPARED_TOKEN = 5
MOST_TOKENS_APART = 128

Value = Union[int, float, bool, str, None]


@dataclass(frozen=True, kw_only=True)
class Raw:
    """What the header holds: scalars and the beginnings of strings by key (None for an array), and the sums over the tensor table.

    `arrays` has short arrays of whole numbers. `vocabulary` is None without tokens.
    """

    values: Mapping[str, Value]
    arrays: Mapping[str, Tuple[int, ...]]
    vocabulary: Optional[Tokens]
    tensor_count: int
    tensor_types: Mapping[str, int]
    parameters: int
    weights_bytes: int
    is_lora: bool
    end_bytes: int

    def text(self, key: str) -> str:
        value = self.values.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str, most: int = 0xFFFF_FFFF) -> int | None:
        value = self.values.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None


@dataclass(frozen=True)
class Tokens:
    """A vocabulary: how many tokens, and one short digest for each length that it may be compared at, the whole one first."""

    count: int
    digests: str


def read(handle: IO[bytes], size_bytes: int, shown: str) -> Raw:
    """`handle` stands behind magic and version. `end_bytes` is where the last tensor ends, which may be past the end of the file."""
    reader = _Reader(handle, size_bytes, shown)
    tensor_count, key_count = reader.count(MOST_TENSORS, "tensors"), reader.count(MOST_KEYS, "keys")
    reader.need(key_count * 13)
    values: Dict[str, Value] = {}
    for _ in range(key_count):
        key = reader.name(_KEY_BYTES, "key")
        if key in values:
            raise reader.bad(f"the key '{_plain(key)}' stands twice")
        values[key] = _value(reader, key)
    alignment = values.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise reader.bad(f"the alignment {alignment} is no power of two")
    return _tensors(reader, tensor_count, alignment, values)


class _Reader:
    """Takes bytes one after another and knows how many the file still has."""

    def __init__(self, handle: IO[bytes], size_bytes: int, shown: str) -> None:
        self._handle = handle
        self._size_bytes = size_bytes
        self._shown = shown
        self._strings = 0
        self.arrays: Dict[str, Tuple[int, ...]] = {}
        self.vocabulary: Optional[Tokens] = None
        self.position = handle.tell()

    def bad(self, why: str) -> errors.Problem:
        hint = "the file was damaged or made by a broken converter; fetch it again and compare its sha256 with the publisher's"
        return errors.Problem("gguf-corrupt", f"{self._shown} is no sound GGUF: {why}", hint=hint, file=self._shown)

    def need(self, wanted_bytes: int) -> None:
        end = self.position + wanted_bytes
        if end > MOST_HEADER_BYTES:
            raise self.bad(f"its header would be larger than {units.size(MOST_HEADER_BYTES)}")
        if end > self._size_bytes:
            raise cut(self._shown, self._size_bytes, end, "inside its header, at least")

    def take(self, wanted_bytes: int) -> bytes:
        self.need(wanted_bytes)
        data = self._handle.read(wanted_bytes)
        if len(data) < wanted_bytes:
            raise cut(self._shown, self.position + len(data), self.position + wanted_bytes, "inside its header, at least")
        self.position += wanted_bytes
        return data

    def skip(self, skipped_bytes: int) -> None:
        self.need(skipped_bytes)
        self._handle.seek(skipped_bytes, 1)
        self.position += skipped_bytes

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def count(self, most: int, what: str) -> int:
        value = self.u64()
        if value > most:
            raise self.bad(f"it claims {value} {what}")
        return value

    def name(self, most_bytes: int, what: str) -> str:
        length = self.u64()
        if not 0 < length <= most_bytes:
            raise self.bad(f"it has a {what} of {length} bytes")
        return self.take(length).decode("utf-8", "replace")

    def text(self) -> str:
        length = self.u64()
        self.need(length)
        kept = self.take(min(length, _KEPT_TEXT_BYTES))
        self.skip(length - len(kept))
        return kept.decode("utf-8", "replace")

    def tokens(self, count: int) -> Tokens:
        """The vocabulary again, but hashed while it goes by: what a draft model's is compared with."""
        self._claim_strings(count)
        summing = hashlib.sha256()
        kept: List[str] = []
        for index in range(count):
            length = self.u64()
            if length > _KEY_BYTES:
                raise self.bad(f"it has a token of {length} bytes")
            body = self.take(length)
            if index >= FIRST_COMPARED_TOKEN:
                summing.update(length.to_bytes(8, "little") + body)
            if count - index - 1 <= MOST_TOKENS_APART:
                kept.append(summing.copy().hexdigest()[:16])
        return Tokens(count, " ".join(reversed(kept)))

    def _claim_strings(self, count: int) -> None:
        self._strings += count
        if self._strings > MOST_STRINGS:
            raise self.bad(f"it claims {self._strings} strings")
        self.need(count * 8)

    def skip_strings(self, count: int) -> None:
        """Merges and the like, hundreds of thousands of short strings: the one loop here that has to be fast."""
        self._claim_strings(count)
        take, seek, length_of = self._handle.read, self._handle.seek, struct.Struct("<Q").unpack
        end = min(self._size_bytes, MOST_HEADER_BYTES)
        for _ in range(count):
            raw = take(8)
            length = length_of(raw)[0] if len(raw) == 8 else end
            self.position += 8 + length
            if self.position > end:
                self.position -= length
                self.need(length)
            seek(length, 1)


def cut(shown: str, have_bytes: int, wanted_bytes: int, where: str) -> errors.Problem:
    missing = wanted_bytes - have_bytes
    message = f"{shown} is cut off: it ends after {units.size(have_bytes)}, {where} {missing:,} bytes are missing"
    hint = "the download or copy was not finished: fetch the file again, or let the download resume"
    return errors.Problem("gguf-truncated", message, hint=hint, file=shown, size_bytes=have_bytes, missing_bytes=missing)


def _value(reader: _Reader, key: str) -> Value:
    kind = reader.u32()
    if kind == tables.STRING:
        return reader.text()
    if kind == tables.ARRAY:
        _array(reader, key)
        return None
    return _scalar(reader, kind, key)


def _scalar(reader: _Reader, kind: int, key: str) -> Value:
    layout = tables.SCALARS.get(kind)
    if layout is None:
        raise reader.bad(f"the value of '{_plain(key)}' has the unknown type {kind}")
    value: Value = struct.unpack(layout, reader.take(struct.calcsize(layout)))[0]
    return value


def _array(reader: _Reader, key: str) -> None:
    kind, count = reader.u32(), reader.u64()
    if kind == tables.STRING and key == TOKENS:
        reader.vocabulary = reader.tokens(count)
    elif kind == tables.STRING:
        reader.skip_strings(count)
    elif kind in _WHOLE and count <= _KEPT_NUMBERS and len(reader.arrays) < _KEPT_ARRAYS:
        letter = tables.SCALARS[kind][1]
        body = reader.take(count * struct.calcsize(f"<{letter}"))
        reader.arrays[key] = tuple(int(one) for one in struct.unpack(f"<{count}{letter}", body))
    elif kind in tables.SCALARS:
        reader.skip(count * struct.calcsize(tables.SCALARS[kind]))
    else:
        raise reader.bad(f"the array '{_plain(key)}' has the unknown type {kind}")


def _tensors(reader: _Reader, count: int, alignment: int, values: Mapping[str, Value]) -> Raw:
    reader.need(count * 25)
    names: Set[str] = set()
    types: Dict[str, int] = {}
    parameters, weights_bytes, layout = 0, 0, layouts.Layout(alignment, reader.bad)
    for _ in range(count):
        name = reader.name(_NAME_BYTES, "tensor name")
        if name in names:
            raise reader.bad(f"the tensor '{_plain(name)}' stands twice")
        names.add(name)
        shape = _shape(reader, name)
        kind, offset = reader.u32(), reader.u64()
        known = tables.TENSOR_TYPES.get(kind)
        type_name = known.name if known else f"type {kind}"
        types[type_name] = types.get(type_name, 0) + 1
        parameters += math.prod(shape)
        tensor_bytes = _tensor_bytes(reader, name, shape, known)
        weights_bytes += tensor_bytes or 0
        layout.add(_plain(name), offset, tensor_bytes)
    start = layouts.padded(reader.position, alignment) if count else reader.position
    return Raw(
        values=values,
        arrays=reader.arrays,
        vocabulary=reader.vocabulary,
        tensor_count=count,
        tensor_types=types,
        parameters=parameters,
        weights_bytes=weights_bytes,
        is_lora=any(name.endswith(".lora_a") for name in names),
        end_bytes=start + layout.end_bytes,
    )


def _shape(reader: _Reader, name: str) -> tuple[int, ...]:
    dimensions = reader.u32()
    if dimensions > _DIMENSIONS:
        raise reader.bad(f"the tensor '{_plain(name)}' has {dimensions} dimensions")
    shape = tuple(reader.u64() for _ in range(dimensions))
    if math.prod(shape) > layouts.MOST_TENSOR_BYTES:
        raise reader.bad(f"the tensor '{_plain(name)}' has the shape {' x '.join(str(one) for one in shape)}")
    return shape


def _tensor_bytes(reader: _Reader, name: str, shape: tuple[int, ...], known: tables.TensorType | None) -> int | None:
    if known is None:
        return None
    row = shape[0] if shape else 1
    if row % known.block_elements:
        raise reader.bad(
            f"the tensor '{_plain(name)}' has rows of {row} elements, and {known.name} needs a multiple of {known.block_elements}"
        )
    return math.prod(shape) // known.block_elements * known.block_bytes


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in text[:120])
