"""The counters of a node's servers as rows: figures that are there, nothing for what is not, and never a request that loads a model."""

from __future__ import annotations

import http.server
import json
import pathlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest

from wattherd import machine as machines
from wattherd.node import usage

METRICS = (
    "# HELP llamacpp:n_tokens_max Largest observed n_tokens.\n# TYPE llamacpp:n_tokens_max counter\nllamacpp:n_tokens_max 1.23457e+06\n"
    "llamacpp:requests_processing 2\nllamacpp:requests_deferred 0\n"
)
KEY = "sesame-open-sesame-open"


class Server(http.server.BaseHTTPRequestHandler):
    """Answers as llama-server does; `asked` is what came in."""

    asked: ClassVar[list[str]] = []
    answers: ClassVar[Mapping[str, tuple[int, str]]] = {}

    def do_GET(self) -> None:
        self.asked.append(self.path)
        status, body = self.answers.get(self.path, (404, ""))
        if self.headers.get("Authorization", "") != f"Bearer {KEY}":
            status, body = 401, ""
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def port(tmp_path: pathlib.Path) -> Iterator[int]:
    Server.asked = []
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/key.env").write_text(f'LLAMA_API_KEY="{KEY}"\n')
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def measure(root: pathlib.Path, port: int, answers: Mapping[str, tuple[int, str]], **more: object) -> list[Mapping[str, Any]]:
    Server.answers = answers
    row = {"name": "smol", "url": f"http://127.0.0.1:{port}", "key_file": "/etc/key.env", "sleeps": False, **more}
    told = usage.measure(machines.Machine(str(root)), {"servers": [row]})
    rows: list[Mapping[str, Any]] = told["uses"]
    return rows


def test_figures_with_exponents_are_read(tmp_path: pathlib.Path, port: int) -> None:
    rows = measure(tmp_path, port, {"/metrics": (200, METRICS)})
    assert rows == [{"name": "smol", "model": "", "status": 200, "most_tokens": 1234570, "processing": 2, "deferred": 0}]


def test_what_is_not_said_is_not_in_the_row(tmp_path: pathlib.Path, port: int) -> None:
    assert measure(tmp_path, port, {"/metrics": (200, "llamacpp:requests_processing nan\n")}) == [
        {"name": "smol", "model": "", "status": 200}
    ]
    for nonsense in ("1e999", "1..2"):
        assert measure(tmp_path, port, {"/metrics": (200, f"llamacpp:n_tokens_max {nonsense}\n")}) == [
            {"name": "smol", "model": "", "status": 200}
        ]
    assert measure(tmp_path, port, {"/metrics": (501, "")}) == [{"name": "smol", "model": "", "status": 501}]
    assert measure(tmp_path, port, {"/metrics": (200, METRICS)}, key_file="") == [{"name": "smol", "model": "", "status": 401}]
    assert measure(tmp_path, 1, {}) == [{"name": "smol", "model": "", "status": 0}]


def test_a_router_is_asked_only_for_loaded_models_and_never_loads_one(tmp_path: pathlib.Path, port: int) -> None:
    models = [
        {"id": "a", "status": {"value": "loaded"}},
        {"id": "b", "status": {"value": "unloaded"}},
        {"id": "c", "status": {"value": "sleeping"}},
        {"id": "x&autoload=true", "status": {"value": "loaded"}},
        {"id": "d", "status": "loaded"},
        {"id": "modèle", "status": {"value": "loaded"}},
    ]
    answers = {"/models": (200, json.dumps({"data": models})), "/metrics?model=a&autoload=false": (200, METRICS)}
    rows = measure(tmp_path, port, answers, router=True)
    assert [(row["model"], row["most_tokens"]) for row in rows] == [("a", 1234570)]
    assert [path for path in Server.asked if path != "/models"] == ["/metrics?model=a&autoload=false"]


@pytest.mark.parametrize(
    ("build_info", "asked"),
    [("b11434-0a1b2c3", True), ("b12000-0a1b2c3", True), ("b9000-0a1b2c3", False), ("", False), ("weird", False), (7, False)],
)
@pytest.mark.parametrize("router", [False, True])
def test_a_server_that_may_sleep_is_asked_only_where_its_build_sleeps_on(
    tmp_path: pathlib.Path, port: int, build_info: object, *, asked: bool, router: bool
) -> None:
    """Invariant 7: the observer never wakes a model, nor keeps one awake."""
    page = "/metrics?model=a&autoload=false" if router else "/metrics"
    models = json.dumps({"data": [{"id": "a", "status": {"value": "loaded"}}]})
    answers = {"/models": (200, models), "/props": (200, json.dumps({"build_info": build_info})), page: (200, METRICS)}
    rows = measure(tmp_path, port, answers, router=router, sleeps=True)
    assert [row["most_tokens"] for row in rows] == ([1234570] if asked else [])
    assert (page in Server.asked) is asked


def test_a_router_that_says_nonsense_has_no_rows(tmp_path: pathlib.Path, port: int) -> None:
    for body in ("", "[]", '{"data": 5}', '{"data": [7]}'):
        assert measure(tmp_path, port, {"/models": (200, body)}, router=True) == []
