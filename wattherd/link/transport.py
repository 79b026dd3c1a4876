"""The seam between the engine and a host: a link opens commands, a command is three byte streams.

Nothing here knows of SSH, of Fabric or of what the bytes mean. Every implementation is exact about bytes, keeps stderr apart
from stdout, and drains both whenever its caller is inside a call, so that neither side can wait for the other for ever.
"""

from __future__ import annotations

from typing import Protocol

STDERR_KEPT_BYTES = 64 * 1024
SEND_STALL_S = 300.0


class Channel(Protocol):
    """One remote command. One thread may send while another receives; more than one of either kind may not."""

    def send(self, data: bytes | memoryview) -> None:
        """Send all of it. Problem("stream-cut") when the other side is gone, "host-silent" when it takes nothing for SEND_STALL_S."""

    def close_stdin(self) -> None:
        """Say that nothing more will be sent."""

    def receive(self, timeout_s: float) -> bytes:
        """The next bytes of stdout; b"" at its end.

        Problem("host-silent") after timeout_s without any, Problem("stream-cut") when the connection broke before the stream ended.
        """

    def stderr(self) -> bytes:
        """What arrived on stderr so far, its last STDERR_KEPT_BYTES."""

    def wait_stderr(self, wanted: bytes, timeout_s: float, *, count: int = 1) -> bool:
        """True as soon as stderr contains wanted, count times; False when stdout has bytes or the channel ended first.

        Problem("host-silent") when neither happened within timeout_s.
        """

    def exit_status(self) -> int | None:
        """After the end of the stream. None when the command left no status (it was killed, or the connection broke)."""

    def close(self) -> None:
        """Let go, whatever state the command is in."""


class Link(Protocol):
    """A way to one host."""

    def run(self, command: str) -> Channel:
        """Start a command on the control session: no terminal, exact bytes."""

    def bulk(self, command: str) -> Channel:
        """Start a command on a way that is cheap for many bytes."""

    def close(self) -> None:
        """End the session and every channel on it."""


class Tail:
    """The last bytes of a stream that nobody may ever read. Not locked: its owner is."""

    def __init__(self, limit_bytes: int = STDERR_KEPT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        self._kept += data
        if len(self._kept) > self._limit_bytes:
            del self._kept[: len(self._kept) - self._limit_bytes]

    def __bytes__(self) -> bytes:
        return bytes(self._kept)
