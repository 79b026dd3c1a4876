"""The programs that ship to nodes as files (templates/server/*.py), loaded from there, and a server that answers them as told."""

from __future__ import annotations

import contextlib
import http.server
import importlib
import json
import pathlib
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from urllib.parse import parse_qsl, urlsplit

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "templates" / "server"


def load(name: str) -> ModuleType:
    """As the program's own interpreter does it: its folder is where its modules are looked for."""
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    return importlib.import_module(name)


def metrics(processing: float = 0, decoded: float = 0, prompt: float = 0, predicted: float = 0, deferred: float = 0) -> str:
    """What llama-server prints: six significant digits, comments, and more than is read."""
    rows = {
        "prompt_tokens_total": prompt,
        "prompt_tokens_cached_total": 3,
        "tokens_predicted_total": predicted,
        "n_decode_total": decoded,
        "requests_processing": processing,
        "requests_deferred": deferred,
    }
    return "".join(
        f"# HELP llamacpp:{key} words\n# TYPE llamacpp:{key} counter\nllamacpp:{key} {value:.6g}\n" for key, value in rows.items()
    )


@dataclass
class Server:
    """`answers`: path without query -> (status, text), or a list of them taken in turn, the last one for ever. `asked` is what came."""

    answers: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    place: str = ""

    def answer(self, path: str) -> tuple[int, str]:
        rows = self.answers.get(path, [(404, "")])
        return rows.pop(0) if len(rows) > 1 else rows[0]

    def models(self, **states: str | tuple[str, int]) -> str:
        rows = []
        for name, state in states.items():
            value, failed = (state, None) if isinstance(state, str) else state
            rows.append({"id": name, "status": {"value": value, **({} if failed is None else {"failed": True, "exit_code": failed})}})
        return json.dumps({"data": rows})


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    server = Server()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply("GET", dict(parse_qsl(urlsplit(self.path).query)))

        def do_POST(self) -> None:
            self._reply("POST", json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _reply(self, method: str, words: dict[str, str]) -> None:
            path = urlsplit(self.path).path
            server.asked.append((method, path, words))
            server.keys.append(self.headers.get("Authorization", ""))
            status, text = server.answer(path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Tests are quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        server.place = f"127.0.0.1:{listening.server_address[1]}"
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()
