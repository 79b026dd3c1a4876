"""One quick HTTP GET to this machine: is the server ready? Only the status counts.

A socket and one line are enough: http.client would cost every run of the node program 12 ms of imports (measured).
"""

from __future__ import annotations

import re
from typing import Tuple

from wattherd import errors

READY = 200
LOADING = 503
_URL = r"http://([0-9.]{7,15}|localhost|\[[0-9a-fA-F:.]+\]):([0-9]{1,5})(/[\x21-\x7e]*)?\Z"
_STATUS = rb"HTTP/1\.[01] ([0-9]{3})"
_STATUS_BYTES = 12
_LIMIT_S = 2.0


def check_url(label: str, url: str) -> None:
    if not re.match(_URL, url):
        raise errors.Problem("manifest-invalid", f"{label}: {url!r} is not http://ADDRESS:PORT/…, the address being the node's own")


def ask(url: str) -> Tuple[int, str]:
    """The HTTP status, 0 when there was none, and words for it."""
    found = re.match(_URL, url)
    if not found:
        return 0, f"{url} is no address of this machine"
    import socket

    try:
        status = _status(found.group(1).strip("[]"), int(found.group(2)), found.group(3) or "/")
    except OSError as error:
        return 0, "no answer yet" if isinstance(error, socket.timeout) else f"no answer yet ({error.strerror or error})"
    return status, {READY: "ready", LOADING: "loading", 0: "an answer that is not HTTP"}.get(status, f"HTTP status {status}")


def _status(host: str, port: int, path: str) -> int:
    import socket

    # Bound to the address it asks: only one of this machine's own can be asked, whatever a manifest says. Nothing leaves the node.
    with socket.create_connection((host, port), timeout=_LIMIT_S, source_address=(host, 0)) as link:
        link.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode("ascii"))
        answer = b""
        while len(answer) < _STATUS_BYTES:
            more = link.recv(4096)
            if not more:
                break
            answer += more
    match = re.match(_STATUS, answer)
    return int(match.group(1)) if match else 0
