"""Lines of JSON over a byte stream, one object a line, bounded. Knows nothing of what the objects mean."""

from __future__ import annotations

import json
import threading
from typing import IO, Any, Mapping

from wattherd import errors
from wattherd.wire import fields

#: One line may carry at most this much; a manifest goes as counted bytes behind its line, never as a line.
LINE_LIMIT_BYTES = 4 * 1024 * 1024


def encode(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> fields.Document:
    try:
        value = fields.parsed(line.decode("utf-8"))
    except ValueError as error:
        raise errors.Problem("stream-cut", f"not a protocol line: {line[:200]!r}") from error
    return fields.document(value, "line")


class Writer:
    """Writes whole lines; safe to call from the heartbeat's thread and the main one."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def send(self, message: Mapping[str, Any], *, flush: bool = True) -> None:
        """`flush=False` lets small lines gather: a run with nothing to do then costs one write, not one a resource."""
        with self._lock:
            self._stream.write(encode(message))
            if flush:
                self._stream.flush()


def read_line(stream: IO[bytes]) -> bytes:
    """The next line without its end; b"" at the end of the stream. A line beyond the limit is refused."""
    line = stream.readline(LINE_LIMIT_BYTES + 1)
    if len(line) > LINE_LIMIT_BYTES:
        raise errors.Problem("stream-cut", f"a line of more than {LINE_LIMIT_BYTES} bytes was refused")
    return line.rstrip(b"\n")


def read_bytes(stream: IO[bytes], count: int) -> bytes:
    """Exactly `count` bytes, or `stream-cut`."""
    body = stream.read(count)
    if len(body) != count:
        raise errors.Problem("stream-cut", f"the stream ended after {len(body)} of {count} bytes")
    return body
