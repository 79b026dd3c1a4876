"""A real HTTP server on loopback that answers what it is told to."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator, Mapping


class Server(http.server.ThreadingHTTPServer):
    """`answers` are the statuses of the next requests; the last one stays. `asked` counts the requests, `heads` are their headers."""

    def __init__(self, *answers: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = list(answers)
        self.asked = 0
        self.body = b'{"status":"ok"}'
        self.heads: list[Mapping[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/health"

    def next(self) -> int:
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        server.heads.append(dict(self.headers))
        self.send_response(server.next())
        self.end_headers()
        self.wfile.write(server.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing: the tests count."""


@contextlib.contextmanager
def serving(*answers: int) -> Iterator[Server]:
    server = Server(*answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
