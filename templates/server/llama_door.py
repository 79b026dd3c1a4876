"""How the programs beside a llama-server ask it: HTTP over its port or its unix socket, with the key from the environment.

Standard library only. Nothing asked here wakes a sleeping model or loads one: /health, /models, and /metrics with autoload=false.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import urllib.parse
from typing import Dict, Optional, Tuple

KEY = "LLAMA_API_KEY"
LIMIT_BYTES = 4 * 1024 * 1024
#: What `Door.get` gives besides an HTTP status: nobody listens there; somebody does, and says nothing.
AWAY, SILENT = 0, -1


class _Local(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Door:
    """One server. `place` is unix:/PATH.sock or ADDRESS:PORT, an IPv6 address in brackets."""

    def __init__(self, place: str, timeout_s: float) -> None:
        self._place = place
        self.timeout_s = timeout_s
        # Several keys may be given; any of them opens.
        self._key = os.environ.get(KEY, "").split(",")[0]

    def get(self, path: str, **query: str) -> Tuple[int, str]:
        return self._ask("GET", path + ("?" + urllib.parse.urlencode(query) if query else ""), None)

    def post(self, path: str, **fields: str) -> Tuple[int, str]:
        return self._ask("POST", path, json.dumps(fields))

    def _ask(self, method: str, path: str, body: Optional[str]) -> Tuple[int, str]:
        """(status, text). The status is AWAY or SILENT where there was no answer."""
        link = self._link()
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        try:
            link.request(method, path, body, headers)
            answer = link.getresponse()
            return answer.status, answer.read(LIMIT_BYTES).decode("utf-8", "replace")
        except socket.timeout:
            return SILENT, ""
        except (OSError, http.client.HTTPException):
            return AWAY, ""
        finally:
            link.close()

    def _link(self) -> http.client.HTTPConnection:
        if self._place.startswith("unix:"):
            return _Local(self._place[len("unix:") :], self.timeout_s)
        host, _, port = self._place.rpartition(":")
        return http.client.HTTPConnection(host.strip("[]"), int(port), timeout=self.timeout_s)


def models(text: str) -> Dict[str, Tuple[str, Optional[int]]]:
    """id -> (state, failed's exit code or None) of a router's models. "default" is a phantom that some builds list."""
    try:
        rows = json.loads(text)["data"]
        states = {str(row["id"]): row["status"] for row in rows}
        return {name: (str(one["value"]), one.get("exit_code") if one.get("failed") else None) for name, one in states.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
