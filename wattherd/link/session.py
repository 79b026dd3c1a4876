"""The controller's side of one session with one host: facts first, then verbs; and the bulk ways beside it.

Owns the framing and the time limits. What a node sends is checked for its form here and for its meaning by the caller.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import IO, Any

from wattherd import errors
from wattherd.link import boot, transport
from wattherd.wire import event, facts, fields, frame

#: The node's heartbeat comes every 5 s; a minute without a byte is a dead link or a dead node.
SILENCE_S = 60.0
_BLOCK_BYTES = 4 * 1024 * 1024

OnEvent = Callable[[Mapping[str, Any]], None]
OnBytes = Callable[[int, int], None]


class Session:
    """One open session. `facts` is what the node said in its hello."""

    def __init__(self, stream: boot.Stream, told: facts.Facts, link: transport.Link, login: boot.Login) -> None:
        self._stream = stream
        self._link = link
        self._login = login
        self.facts = told

    @classmethod
    def open(cls, link: transport.Link, login: boot.Login, *, timeout_s: float = 60.0) -> Session:
        """Start the node program and read its hello."""
        stream = boot.start(link.run, login, ["session"], timeout_s=timeout_s)
        message = _message(stream, timeout_s)
        if message.get("event") != "hello" or message.get("protocol") != event.PROTOCOL:
            stream.close()
            raise errors.Problem("protocol-mismatch", f"expected hello of protocol {event.PROTOCOL}, got {str(message)[:200]}")
        return cls(stream, facts.decode(fields.document(message.get("facts"), "facts")), link, login)

    def call(self, order: Mapping[str, Any], body: bytes | None = None, on_event: OnEvent = lambda _: None) -> fields.Document:
        """Send one verb and read events until its `end`, which is returned. A Problem in the end is raised."""
        head = dict(order) if body is None else {**order, "bytes": len(body)}
        self._stream.send(frame.encode(head) + (body or b""))
        while True:
            message = _message(self._stream, SILENCE_S)
            kind = message.get("event")
            if kind == "end":
                if "problem" in message:
                    raise errors.Problem.from_dict(fields.document(message["problem"], "problem"))
                return message
            if kind != "alive":
                on_event(message)

    def push(self, source: pathlib.Path, digest: str, on_bytes: OnBytes) -> int:
        """Send a file into the node's store over OpenSSH, from where an earlier try ended. Returns the bytes sent now."""
        size_bytes = source.stat().st_size
        stream = boot.start(self._link.bulk, self._login, ["receive", digest, str(size_bytes)])
        try:
            ready = _message(stream, SILENCE_S)
            _raise_problem(ready)
            offset = fields.integer(ready, "offset", 0)
            if not 0 <= offset <= size_bytes:
                raise errors.Problem("bulk-failed", f"the node asked for byte {offset} of {size_bytes}")
            with source.open("rb") as handle, contextlib.suppress(errors.Problem):
                # A node that gives up (full disk) closes its end while we still send: its last line says why, not our broken pipe.
                _pour(handle, offset, size_bytes, stream, on_bytes)
            stream.channel.close_stdin()
            final = _message(stream, SILENCE_S)
            _raise_problem(final)
            return size_bytes - offset
        finally:
            stream.close()

    def pull(self, digest: str, target: pathlib.Path, on_bytes: OnBytes) -> int:
        """Fetch a blob from the node's store into `target`: resumed from a partial, verified, renamed when whole."""
        partial = target.with_name(target.name + ".partial")
        summing = hashlib.sha256()
        offset = 0
        if partial.exists():
            with partial.open("rb") as handle:
                while block := handle.read(_BLOCK_BYTES):
                    summing.update(block)
                    offset += len(block)
        stream = boot.start(self._link.bulk, self._login, ["send", digest, str(offset)])
        try:
            ready = _message(stream, SILENCE_S)
            _raise_problem(ready)
            total = fields.integer(ready, "size")
            with partial.open("ab") as handle:
                done = offset
                while done < total and (block := stream.read_some(SILENCE_S)):
                    handle.write(block)
                    summing.update(block)
                    done += len(block)
                    on_bytes(done, total)
                handle.flush()
                os.fsync(handle.fileno())
        finally:
            stream.close()
        if done < total:
            raise errors.Problem("stream-cut", f"the copy ended after {done} of {total} bytes", hint="run again: it goes on from there")
        if summing.hexdigest() != digest:
            partial.unlink()
            raise errors.Problem("digest-mismatch", f"what arrived is not {digest[:12]}…; it was thrown away", hint="run again")
        partial.rename(target)
        return total - offset

    def close(self) -> None:
        self._stream.close()
        self._link.close()


def _pour(handle: IO[bytes], offset: int, size_bytes: int, stream: boot.Stream, on_bytes: OnBytes) -> None:
    handle.seek(offset)
    done = offset
    on_bytes(done, size_bytes)
    while block := handle.read(min(_BLOCK_BYTES, size_bytes - done)):
        stream.send(block)
        done += len(block)
        on_bytes(done, size_bytes)


def _message(stream: boot.Stream, timeout_s: float) -> fields.Document:
    line = stream.read_line(timeout_s)
    if line is None:
        raise errors.Problem(
            "stream-cut",
            "the connection ended in the middle of the work",
            hint="the node may have lost power or its network; the next run goes on from there",
            stderr=stream.channel.stderr()[-300:].decode("utf-8", "replace").strip() or None,
        )
    return frame.decode(line)


def _raise_problem(message: fields.Document) -> None:
    if "problem" in message:
        raise errors.Problem.from_dict(fields.document(message["problem"], "problem"))
