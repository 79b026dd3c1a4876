"""GGUF files for tests, written byte by byte, so that the broken ones can be written too."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

U32, BOOL, STRING, ARRAY, U16 = 4, 7, 8, 9, 2
_LAYOUTS = {U32: "<I", BOOL: "<?", U16: "<H"}
#: type -> (elements, bytes) of a block, for the types that tests use.
_BLOCKS = {0: (1, 4), 3: (32, 20), 39: (32, 17)}


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple[int, ...] = (32, 4)
    kind: int = 0


@dataclass(frozen=True)
class U16Value:
    """split.no and split.count are 16 bit wide in real files."""

    value: int


Value = str | bool | int | U16Value | Sequence[str]

MODEL: Mapping[str, Value] = {
    "general.architecture": "llama",
    "general.type": "model",
    "general.name": "Tiny",
    "general.file_type": 3,
    "llama.context_length": 8192,
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": ("a", "b", "", "ü" * 50),
    "tokenizer.chat_template": "{{ messages }}",
}
TENSORS = (Tensor("token_embd.weight", (64, 8), 3), Tensor("output_norm.weight", (64,), 0))


def text(value: str) -> bytes:
    body = value.encode()
    return struct.pack("<Q", len(body)) + body


def pair(key: str, value: Value) -> bytes:
    if isinstance(value, str):
        return text(key) + struct.pack("<I", STRING) + text(value)
    if isinstance(value, U16Value):
        return text(key) + struct.pack("<IH", U16, value.value)
    if isinstance(value, bool):
        return text(key) + struct.pack("<I?", BOOL, value)
    if isinstance(value, int):
        return text(key) + struct.pack("<II", U32, value)
    return text(key) + struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(text(item) for item in value)


def make(values: Mapping[str, Value] = MODEL, tensors: Sequence[Tensor] = TENSORS, *, version: int = 3, alignment: int = 32) -> bytes:
    """A whole and sound file."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values)) + b"".join(pair(*item) for item in values.items())
    data = b""
    for tensor in tensors:
        elements = 1
        for size in tensor.shape:
            elements *= size
        block, block_bytes = _BLOCKS.get(tensor.kind, (1, 1))
        head += text(tensor.name) + struct.pack(f"<I{len(tensor.shape)}QIQ", len(tensor.shape), *tensor.shape, tensor.kind, len(data))
        data += bytes(elements // block * block_bytes)
        data += bytes(-len(data) % alignment)
    return head + bytes(-len(head) % alignment) + data if tensors else head
