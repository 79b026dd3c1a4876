"""The first socket of a route: a TCP connection within a time limit, or the two ends of a ProxyCommand.

Owns name lookups, address families and socket options. Knows nothing of SSH; raises OSError and leaves the words to the caller.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time

_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}
_STDERR_BYTES = 2000
_LEAVE_S = 2.0
_LAST_WORDS_S = 0.3
#: After this long without an answer to what we sent (keepalives at least), the kernel reports the connection as dead.
_DEAD_AFTER_MS = 60_000

_Address = tuple[socket.AddressFamily, object]


def tcp(hostname: str, port: int, family: str, limit_s: float) -> socket.socket:
    """Connect to the first address that answers. TimeoutError when none did in time, otherwise the last OSError."""
    deadline_s = time.monotonic() + limit_s
    addresses = _addresses(hostname, port, family, limit_s)
    failure: OSError = TimeoutError("no address answered in time")
    for index, (kind, address) in enumerate(addresses):
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            break
        end = socket.socket(kind, socket.SOCK_STREAM)
        try:
            # An address that swallows packets (a broken IPv6 route) may use only its share of the time.
            end.settimeout(left_s / (len(addresses) - index))
            end.connect(address)  # type: ignore[arg-type]  # getaddrinfo gave it for this family
        except OSError as error:
            end.close()
            failure = error
        else:
            _tune(end)
            return end
    raise failure


class Proxy:
    """A running ProxyCommand. `end` is our end of its stdin and stdout."""

    def __init__(self, command: str) -> None:
        self.end, theirs = socket.socketpair()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the command, until close()
        environ = {**os.environ, "SSH_ASKPASS_REQUIRE": "never"}
        with theirs:
            # A session of its own: an ssh inside it finds no terminal on which it could ask a question and wait for ever.
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._said.fileno(),
                env=environ,
                start_new_session=True,
            )

    def last_words(self) -> bytes | None:
        """The end of what it said on stderr; None when it still runs and said nothing."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_WORDS_S)
        size = os.fstat(self._said.fileno()).st_size
        said = os.pread(self._said.fileno(), _STDERR_BYTES, max(0, size - _STDERR_BYTES))
        return said or (None if self._process.poll() is None else b"")

    def exit_status(self) -> int | None:
        return self._process.poll()

    def close(self) -> None:
        self.end.close()
        if self._process.poll() is None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_LEAVE_S)
                    break
        self._said.close()


def _addresses(hostname: str, port: int, family: str, limit_s: float) -> list[_Address]:
    """A name lookup that ends in time although the C library's does not: its thread is left behind if need be."""
    found: list[_Address] = []
    failures: list[OSError] = []

    def look_up() -> None:
        try:
            answers = socket.getaddrinfo(hostname, port, _FAMILIES.get(family, socket.AF_UNSPEC), socket.SOCK_STREAM)
            found.extend((kind, address) for kind, _, _, _, address in answers)
        except (OSError, UnicodeError) as error:
            failures.append(error if isinstance(error, OSError) else socket.gaierror(socket.EAI_NONAME, str(error)))

    if _is_literal(hostname):
        look_up()
    else:
        thread = threading.Thread(target=look_up, name="name lookup", daemon=True)
        thread.start()
        thread.join(limit_s)
    if failures:
        raise failures[0]
    if not found:
        raise socket.gaierror(socket.EAI_AGAIN, f"no name server answered within {limit_s:g} s")
    return found


def _is_literal(hostname: str) -> bool:
    try:
        socket.getaddrinfo(hostname, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return False
    return True


def _tune(end: socket.socket) -> None:
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_AFTER_MS)
