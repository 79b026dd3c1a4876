"""A sleeping llama-server is asked on its harmless page alone, once for all its cards, with the key that its instance has."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest

from tests.node import strict
from wattherd.node import sleepers
from wattherd.power import reading

KEY = "sesame-open-sesame-open"
UNIT = "llama@smol.service"


class Server(http.server.BaseHTTPRequestHandler):
    """Answers as a llama-server with a key does; `asked` is what came in, `body` what it says of itself."""

    asked: ClassVar[list[str]] = []
    body: ClassVar[str] = ""

    def do_GET(self) -> None:
        self.asked.append(self.path)
        allowed = self.headers.get("Authorization", "") == f"Bearer {KEY}"
        self.send_response(200 if allowed else 401)
        self.end_headers()
        self.wfile.write(self.body.encode() if allowed else b"")

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def port(bench: strict.Bench) -> Iterator[int]:
    Server.asked = []
    bench.put("/etc/wattherd/serve/smol.env", f'LLAMA_API_KEY="{KEY}"\n')
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def asked(bench: strict.Bench, port: int, said: object, **key_files: str) -> list[bool | None]:
    """Of two cards over which one model lies."""
    Server.body = said if isinstance(said, str) else json.dumps(said)
    bench.put("/proc/4242/cmdline", "\0".join(("llama-server", "--sleep-idle-seconds", "60", "--port", str(port), "")))
    found = sleepers.Sleepers(bench.machine, key_files or {UNIT: "/etc/wattherd/serve/smol.env"})
    holder = reading.Holder(4242, "llama-server", 614, unit=UNIT)
    cards = [found.told(reading.Card(uuid, holders=(holder,))) for uuid in ("GPU-1", "GPU-2")]
    return [card.holders[0].asleep for card in cards]


@pytest.mark.parametrize("state", [True, False])
def test_it_says_whether_it_sleeps_and_is_asked_once(bench: strict.Bench, port: int, state: bool) -> None:
    assert asked(bench, port, {"is_sleeping": state, "model_alias": "smol"}) == [state, state]
    assert Server.asked == ["/props"]


@pytest.mark.parametrize("said", ["", "[]", "{}", '{"is_sleeping": "yes"}'])
def test_an_answer_that_does_not_say_is_unknown(bench: strict.Bench, port: int, said: str) -> None:
    assert asked(bench, port, said) == [None, None]


def test_without_its_key_it_stays_unknown(bench: strict.Bench, port: int) -> None:
    assert asked(bench, port, {"is_sleeping": True}, other="/etc/wattherd/serve/smol.env") == [None, None]
    assert Server.asked == ["/props"]
