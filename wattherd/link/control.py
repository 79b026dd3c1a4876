"""A command on the control session: paramiko's channel made into exact, deadlock-free byte streams.

Owns the draining: one flow-control window carries stdout and stderr, so that whoever waits here empties both. Knows nothing of how the
connection was made.
"""

from __future__ import annotations

import collections
import threading
import time

import paramiko

from wattherd import errors
from wattherd.link import transport

_BLOCK_BYTES = 32 * 1024
_READ_BYTES = 1024 * 1024
_STALL_STEP_S = 0.05
_STATUS_S = 5.0


class ControlChannel:
    """Implements transport.Channel."""

    def __init__(self, channel: paramiko.Channel, title: str) -> None:
        self._channel = channel
        self._title = title
        self._held: collections.deque[bytes] = collections.deque()
        self._tail = transport.Tail()
        self._reading = threading.Lock()
        self._bell = _Bell()
        self._closed_here = False
        # Only send() ever waits by this: reads are made when there is something to read.
        channel.settimeout(_STALL_STEP_S)
        channel.in_buffer.set_event(self._bell)
        channel.in_stderr_buffer.set_event(self._bell)

    def send(self, data: bytes | memoryview) -> None:
        view = memoryview(data).cast("B")
        stalled_s = time.monotonic()
        while view:
            try:
                sent = self._channel.send(bytes(view[:_BLOCK_BYTES]))
            except TimeoutError as error:
                # The host may wait for us to read before it reads on.
                self._hold_what_came()
                if time.monotonic() - stalled_s > transport.SEND_STALL_S:
                    raise self._silent(transport.SEND_STALL_S) from error
                continue
            except (OSError, EOFError, paramiko.SSHException) as error:
                raise self._cut() from error
            if not sent:
                raise self._cut()
            view = view[sent:]
            stalled_s = time.monotonic()

    def close_stdin(self) -> None:
        try:
            self._channel.shutdown_write()
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise self._cut() from error

    def receive(self, timeout_s: float) -> bytes:
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._bell.reset()
            # Asked first: what arrived before the end must be read before the end is told.
            ended = self._has_ended()
            with self._reading:
                self._take_stderr()
                if data := self._held.popleft() if self._held else self._take():
                    return data
            if ended:
                self._check_whole()
                return b""
            if not self._bell.wait(max(0.0, deadline_s - time.monotonic())):
                raise self._silent(timeout_s)

    def stderr(self) -> bytes:
        with self._reading:
            self._take_stderr()
            return bytes(self._tail)

    def wait_stderr(self, wanted: bytes, timeout_s: float, *, count: int = 1) -> bool:
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._bell.reset()
            over = self._has_ended() or bool(self._held) or self._channel.recv_ready()
            if self.stderr().count(wanted) >= count:
                return True
            if over:
                return False
            if not self._bell.wait(max(0.0, deadline_s - time.monotonic())):
                raise self._silent(timeout_s)

    def exit_status(self) -> int | None:
        self._channel.status_event.wait(_STATUS_S)
        return self._channel.exit_status if self._channel.exit_status >= 0 else None

    def close(self) -> None:
        self._closed_here = True
        self._channel.close()

    def _take(self) -> bytes:
        return bytes(self._channel.recv(_READ_BYTES)) if self._channel.recv_ready() else b""

    def _take_stderr(self) -> None:
        while self._channel.recv_stderr_ready():
            self._tail.add(self._channel.recv_stderr(_READ_BYTES))

    def _hold_what_came(self) -> None:
        with self._reading:
            self._take_stderr()
            data = self._take()
            if data:
                self._held.append(data)
        if data:
            self._bell.set()

    def _has_ended(self) -> bool:
        return bool(self._channel.eof_received) or self._channel.closed

    def _check_whole(self) -> None:
        """A stream that the host did not end itself was cut."""
        if not self._channel.eof_received and self._channel.exit_status < 0 and not self._closed_here:
            raise self._cut()

    def _cut(self) -> errors.Problem:
        return cut(self._title)

    def _silent(self, limit_s: float) -> errors.Problem:
        return errors.Problem(
            "host-silent",
            f"{self._title} said nothing for {limit_s:g} s",
            hint="the machine hangs or is overloaded, or the network fails without a word",
        )


class _Bell(threading.Event):
    """Rung by paramiko when a stream has bytes or ends. Paramiko clears it for one stream when the other may have news: not heard here."""

    def clear(self) -> None:
        pass

    def reset(self) -> None:
        super().clear()


def cut(title: str) -> errors.Problem:
    return errors.Problem(
        "stream-cut", f"the connection to {title} broke", hint="the machine may have restarted, or the network failed; run again"
    )


def start(session: paramiko.Channel, command: str, title: str, limit_s: float) -> ControlChannel:
    """Run a command in a fresh session channel. Paramiko waits without limit for the host's consent; here a timer ends that."""
    watch = threading.Timer(limit_s, session.close)
    watch.daemon = True
    watch.start()
    try:
        session.exec_command(command)
    except (paramiko.SSHException, OSError, EOFError) as error:
        session.close()
        raise errors.Problem(
            "stream-cut",
            f"{title} did not start the command",
            hint="its login may be restricted (ForceCommand, a shell that refuses), or the connection broke",
        ) from error
    finally:
        watch.cancel()
    return ControlChannel(session, title)
