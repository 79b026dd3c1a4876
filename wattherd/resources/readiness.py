"""One quick HTTP GET to this machine: is the server ready? What its figures say.

A socket and one line are enough: http.client would cost every run of the node program 12 ms of imports (measured).
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Optional, Tuple

from wattherd import errors

if TYPE_CHECKING:
    import socket

READY = 200
LOADING = 503
_URL = re.compile(r"http://([0-9.]{7,15}|localhost|\[[0-9a-fA-F:.]+\]):([0-9]{1,5})(/[\x21-\x7e]*)?\Z")
#: A server behind the front proxy listens on a socket of its own: unix:/run/….sock:/health.
_UNIX = re.compile(r"unix:(/run/(?:[\w@-][\w.@-]*/)*[\w@-]+\.sock):?(/[\x21-\x7e]*)\Z", re.ASCII)
_STATUS = rb"HTTP/1\.[01] ([0-9]{3})"
_STATUS_BYTES = 12
_BODY_LIMIT_BYTES = 1024 * 1024
_LIMIT_S = 2.0
#: For the whole answer: a byte a second would else hold a run for days.
_WHOLE_LIMIT_S = 10.0


def check_url(label: str, url: str) -> None:
    if not (_URL.match(url) or _UNIX.match(url)):
        words = "is neither http://ADDRESS:PORT/…, the address being the node's own, nor unix:/run/….sock:/…"
        raise errors.Problem("manifest-invalid", f"{label}: {url!r} {words}")


def address_of(url: str) -> str:
    """The address in a URL by port, without brackets; empty for a socket or a name."""
    found = _URL.match(url)
    return found.group(1).strip("[]") if found else ""


def ask(url: str, *, root: str = "") -> Tuple[int, str]:
    """The HTTP status, 0 when there was none, and words for it. `root` is put before the path of a unix socket."""
    try:
        answer = _answer(url, root, "", _STATUS_BYTES)
    except OSError as error:
        import socket

        return 0, "no answer yet" if isinstance(error, socket.timeout) else f"no answer yet ({error.strerror or error})"
    if answer is None:
        return 0, f"{url} is no address of this machine"
    status = _status(answer)
    return status, {READY: "ready", LOADING: "loading", 0: "an answer that is not HTTP"}.get(status, f"HTTP status {status}")


def fetch(url: str, *, root: str = "", headers: str = "") -> Tuple[int, str]:
    """The HTTP status and the body, as text; 0 and nothing when there was no answer. `headers` are whole lines."""
    try:
        answer = _answer(url, root, headers, _BODY_LIMIT_BYTES) or b""
    except OSError:
        return 0, ""
    return _status(answer), answer.partition(b"\r\n\r\n")[2].decode("utf-8", "replace")


def _answer(url: str, root: str, headers: str, limit_bytes: int) -> Optional[bytes]:
    """At most about `limit_bytes` of the answer; None for an address that is not this machine's."""
    import socket

    port, local = _URL.match(url), _UNIX.match(url)
    if port:
        host, path = f"{port.group(1)}:{port.group(2)}", port.group(3) or "/"
        opened = _by_port(port.group(1).strip("[]"), int(port.group(2)))
    elif local:
        host, path = "localhost", local.group(2)
        opened = _by_socket(root + local.group(1))
    else:
        return None
    ends_s = time.monotonic() + _WHOLE_LIMIT_S
    with opened as link:
        # HTTP/1.0: the body comes as it is, and the end of the connection is its end.
        link.sendall(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n{headers}Connection: close\r\n\r\n".encode("ascii"))
        answer = b""
        while len(answer) < limit_bytes:
            more = link.recv(65536)
            if not more:
                break
            answer += more
            if time.monotonic() > ends_s:
                raise socket.timeout
    return answer


def _by_port(host: str, port: int) -> socket.socket:
    import socket

    # Bound to the address it asks: only one of this machine's own can be asked, whatever a manifest says. Nothing leaves the node.
    return socket.create_connection((host, port), timeout=_LIMIT_S, source_address=(host, 0))


def _by_socket(path: str) -> socket.socket:
    from wattherd import local

    return local.connect(path, _LIMIT_S)


def _status(answer: bytes) -> int:
    match = re.match(_STATUS, answer)
    return int(match.group(1)) if match else 0
