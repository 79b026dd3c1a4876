"""A llama-server and its front proxy in one small HTTP server: `/completion` takes as long as its tokens do."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

KEY = "secret-key"
PREFILL_S, DECODE_S = 0.0005, 0.004


@dataclass
class Llama:
    """`/metrics` are the front proxy's (`proxied`) or its own; `used` is what else it says of itself."""

    proxied: bool = True
    context: int = 512
    status: int = 200
    used: str = ""
    clients_total: int = 10
    clients_now: int = 0
    tokens_total: int = 1000
    at_work: int = 0
    most_at_once: int = 0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def metrics(self) -> str:
        if self.proxied:
            return (
                f'# HELP x y\nwattherd_proxy_requests_in_flight{{server="smol"}} {self.clients_now}\n'
                f'wattherd_proxy_requests_queued{{server="smol"}} 0\nwattherd_proxy_requests_held{{server="smol"}} 0\n'
                f'wattherd_proxy_requests_total{{server="smol"}} {self.clients_total}\n'
            )
        return (
            f"{self.used}llamacpp:requests_processing {self.clients_now}\nllamacpp:requests_deferred 0\n"
            f"llamacpp:prompt_tokens_total {self.tokens_total}\n" + ("" if self.used else "llamacpp:tokens_predicted_total 0\n")
        )

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        prompted, predicted = len(body["prompt"].split()), body["n_predict"]
        with self.lock:
            self.at_work += 1
            self.most_at_once = max(self.most_at_once, self.at_work)
            self.bodies.append(body)
            self.tokens_total += prompted + predicted
        time.sleep(prompted * PREFILL_S + predicted * DECODE_S)
        with self.lock:
            self.at_work -= 1
        return {"content": "x", "timings": {"prompt_n": prompted, "predicted_n": predicted}}


@contextlib.contextmanager
def serving(llama: Llama) -> Iterator[int]:
    """Gives the port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            llama.keys.add(self.headers.get("Authorization", ""))
            texts = {"/metrics": llama.metrics(), "/props": json.dumps({"default_generation_settings": {"n_ctx": llama.context}})}
            self._answer(200 if self.path in texts else 404, texts.get(self.path, ""))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(llama.status, json.dumps(llama.complete(body) if llama.status == 200 else {"error": {"message": "broken"}}))

        def _answer(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()
