"""Where the tensors of a GGUF lie: one behind the other, each aligned. Pure; knows neither files nor names of types."""

from __future__ import annotations

from typing import Callable, Optional

from wattherd import errors

MOST_TENSOR_BYTES = 1 << 50


class Layout:
    """Tensors follow each other without gaps. Past a tensor whose type this module does not know, its offsets are believed."""

    def __init__(self, alignment: int, bad: Callable[[str], errors.Problem]) -> None:
        self._alignment = alignment
        self._bad = bad
        self._next: Optional[int] = 0
        self.end_bytes = 0

    def add(self, name: str, offset: int, size_bytes: int | None) -> None:
        follows = (
            offset == self._next
            if self._next is not None
            else offset % self._alignment == 0 and self.end_bytes <= offset <= MOST_TENSOR_BYTES
        )
        if not follows:
            raise self._bad(f"the tensor '{name}' does not follow the one before it (offset {offset})")
        self._next = None if size_bytes is None else padded(offset + size_bytes, self._alignment)
        self.end_bytes = offset + (size_bytes or 0)


def padded(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment
