"""A command in a subprocess of this controller: three pipes made into exact, deadlock-free byte streams.

Owns the pipes, the waiting and the end of the process. What runs in it, and what its exit status means, is told by whoever starts it.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO

from wattherd import errors
from wattherd.link import transport

_READ_BYTES = 1024 * 1024
_STEP_S = 0.05
_STATUS_S = 5.0
_LEAVE_S = 2.0

#: From the exit status and the stderr of an ended process to what went wrong in the transport itself; None when nothing did.
Explain = Callable[[int, bytes], errors.Problem | None]


def nothing_wrong(_status: int, _stderr: bytes) -> errors.Problem | None:
    return None


class ProcessChannel:
    """Implements transport.Channel."""

    def __init__(self, argv: Sequence[str], title: str, *, explain: Explain = nothing_wrong) -> None:
        # A session of its own: no terminal to ask on, and an interrupt at the keyboard is for the controller to handle.
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, start_new_session=True
        )
        self._title = title
        self._explain = explain
        ends = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._stdin, self._stdout, self._errors = (_prepared(end) for end in ends)
        self._open = [self._stdout, self._errors]
        self._held: collections.deque[bytes] = collections.deque()
        self._tail = transport.Tail()
        self._lock = threading.Lock()
        self._inside = 0
        self._receiving = False
        self._closed = False

    def send(self, data: bytes | memoryview) -> None:
        view = memoryview(data).cast("B")
        moved_s = time.monotonic()
        with self._using():
            while view:
                try:
                    written = os.write(self._stdin.fileno(), view)
                except BlockingIOError as error:
                    # The other side may wait for us to read before it reads on.
                    self._pump(_STEP_S, until_writable=True)
                    if time.monotonic() - moved_s > transport.SEND_STALL_S:
                        raise self._silent(transport.SEND_STALL_S) from error
                except (OSError, ValueError) as error:
                    raise self._broken() from error
                else:
                    view = view[written:]
                    moved_s = time.monotonic()

    def close_stdin(self) -> None:
        with contextlib.suppress(OSError):
            self._stdin.close()

    def receive(self, timeout_s: float) -> bytes:
        deadline_s = time.monotonic() + timeout_s
        with self._using(receiving=True):
            while True:
                with self._lock:
                    if self._held:
                        return self._held.popleft()
                    ended = self._stdout not in self._open
                if ended:
                    self._check_whole()
                    return b""
                if not self._pump(max(0.0, deadline_s - time.monotonic()), take=True) and time.monotonic() >= deadline_s:
                    raise self._silent(timeout_s)

    def stderr(self) -> bytes:
        with self._using():
            self._pump(0, only_errors=True)
            return bytes(self._tail)

    def wait_stderr(self, wanted: bytes, timeout_s: float, *, count: int = 1) -> bool:
        deadline_s = time.monotonic() + timeout_s
        with self._using(receiving=True):
            while True:
                with self._lock:
                    over = bool(self._held) or self._stdout not in self._open
                moved = self._pump(0 if over else max(0.0, deadline_s - time.monotonic()), take=True)
                if bytes(self._tail).count(wanted) >= count:
                    return True
                if over:
                    return False
                if not moved and time.monotonic() >= deadline_s:
                    raise self._silent(timeout_s)

    def exit_status(self) -> int | None:
        deadline_s = time.monotonic() + _STATUS_S
        with self._using():
            while self._process.poll() is None and time.monotonic() < deadline_s:
                if not self._pump(_STEP_S, only_errors=True):
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self._process.wait(_STEP_S)
        status = self._process.poll()
        return status if status is None or status >= 0 else None

    def close(self) -> None:
        self._closed = True
        with self._using():
            for number in (signal.SIGTERM, signal.SIGKILL) if self._process.poll() is None else ():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_LEAVE_S)
                    break

    @contextlib.contextmanager
    def _using(self, *, receiving: bool = False) -> Iterator[None]:
        """Keeps the pipes open while any thread uses them: a closed number could be another file's by the next read."""
        with self._lock:
            self._inside += 1
            self._receiving = self._receiving or receiving
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                self._receiving = self._receiving and not receiving
                if self._closed and not self._inside:
                    for end in (self._stdin, self._stdout, self._errors):
                        with contextlib.suppress(OSError):
                            end.close()

    def _pump(self, limit_s: float, *, take: bool = False, only_errors: bool = False, until_writable: bool = False) -> bool:
        """Wait for bytes and put them where they belong. Whoever sends leaves stdout alone while another thread receives."""
        with self._lock:
            ends = [end for end in self._open if end is self._errors or take or not (only_errors or self._receiving)]
        poll = select.poll()
        for end in ends:
            poll.register(end, select.POLLIN)
        if until_writable:
            poll.register(self._stdin, select.POLLOUT)
        if not ends and not until_writable:
            return False
        ready = {number for number, _ in poll.poll(limit_s * 1000)}
        moved = False
        with self._lock:
            for end in ends:
                if end.fileno() in ready and end in self._open:
                    moved = self._read(end) or moved
        return moved

    def _read(self, end: IO[bytes]) -> bool:
        try:
            data = os.read(end.fileno(), _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._open.remove(end)
        elif end is self._errors:
            self._tail.add(data)
        else:
            self._held.append(data)
        return True

    def _check_whole(self) -> None:
        status = self.exit_status()
        problem = None if status is None or self._closed else self._explain(status, self.stderr())
        if problem:
            raise problem

    def _broken(self) -> errors.Problem:
        status = self.exit_status()
        problem = None if status is None else self._explain(status, self.stderr())
        return problem or errors.Problem(
            "stream-cut", f"{self._title} took no more of what it was sent", hint="its own last words say why", exit_status=status
        )

    def _silent(self, limit_s: float) -> errors.Problem:
        return errors.Problem(
            "host-silent",
            f"{self._title} said nothing for {limit_s:g} s",
            hint="the machine hangs or is overloaded, or the network fails without a word",
        )


def _prepared(end: IO[bytes] | None) -> IO[bytes]:
    if end is None:
        raise errors.Problem("internal", "a pipe is missing")
    os.set_blocking(end.fileno(), False)
    # Linux only, and bounded per user: a larger pipe saves switches between the two processes, a refusal costs nothing.
    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(end.fileno(), fcntl.F_SETPIPE_SZ, _READ_BYTES)
    return end
