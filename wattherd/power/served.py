"""The server that already holds a card, as the load of a sweep: short requests to it alone, one at a time, and none while a client has one.

They go past the front proxy, whose counters then tell the clients' requests from ours. A client waits for the end of one short request at
most; nothing of his is cut or refused. Knows no watts.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
from typing import Dict, List, Optional, Tuple

from wattherd import errors, local
from wattherd import machine as machines
from wattherd.policy import knee
from wattherd.power import load
from wattherd.records import dataclass
from wattherd.wire import fields

#: Seconds that one of our requests should take: what a client waits at most, about, at the card's full speed.
_RUN_S = 0.5
_FIRST_TOKENS = {knee.PREFILL: 64, knee.DECODE: 16}
_MOST_TOKENS = {knee.PREFILL: 2048, knee.DECODE: 256}
_FEWEST_TOKENS = 8
#: Of a slot's context this much is left for what the server puts around a prompt.
_MARGIN_TOKENS = 32
_ANSWER_LIMIT_S = 120.0
_ANSWER_LIMIT_BYTES = 4 * 1024 * 1024
_FIGURES_LIMIT_S = 5.0
#: After a client's last request this long must nothing come before we go on.
_QUIET_S = 3.0
_PAUSE_S = 0.25
#: Servers count a token more or less of one request than they tell of it.
_SAME_TOKENS = 2
_FIGURE = re.compile(r'^(\w+(?::\w+)?)(?:\{server="([^"]*)"\})? ([0-9.e+]+)$', re.MULTILINE)
_IN_FLIGHT = ("wattherd_proxy_requests_in_flight", "wattherd_proxy_requests_queued", "wattherd_proxy_requests_held")
_TOTAL = "wattherd_proxy_requests_total"
_OWN = ("llamacpp:requests_processing", "llamacpp:requests_deferred")
_OWN_TOTALS = ("llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total")
_WORDS = ("river", "stone", "seven", "under", "light", "copper", "north", "paper", "window", "slow", "garden", "iron")


@dataclass(frozen=True)
class Server:
    """One served instance as its node reaches it. `url` is unix:/PATH.sock: or http://ADDRESS:PORT; `model` is for a router, else empty.

    `proxy_url` is where the front proxy tells its figures; empty without one: then the server's own counters must do.
    """

    name: str
    url: str
    model: str = ""
    key: str = ""
    proxy_url: str = ""


class Door:
    """HTTP to one server."""

    def __init__(self, machine: machines.Machine, url: str, key: str = "") -> None:
        self._machine = machine
        self._url = url
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}

    def get(self, path: str) -> Tuple[int, str]:
        return self._ask("GET", path, None, _FIGURES_LIMIT_S)

    def post(self, path: str, body: Dict[str, object]) -> Tuple[int, str]:
        return self._ask("POST", path, json.dumps(body), _ANSWER_LIMIT_S)

    def _ask(self, method: str, path: str, body: Optional[str], limit_s: float) -> Tuple[int, str]:
        """The status and the text; status 0 when nobody answered."""
        link = self._link(limit_s)
        try:
            link.request(method, path, body, self._headers)
            answer = link.getresponse()
            return answer.status, answer.read(_ANSWER_LIMIT_BYTES).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error)
        finally:
            link.close()

    def _link(self, limit_s: float) -> http.client.HTTPConnection:
        if self._url.startswith("unix:"):
            return _Local(self._machine.path(self._url[len("unix:") :].rstrip(":")), limit_s)
        address, _, port = self._url.partition("://")[2].rstrip("/").rpartition(":")
        return http.client.HTTPConnection(address.strip("[]"), int(port), timeout=limit_s)


class _Local(http.client.HTTPConnection):
    def __init__(self, path: str, limit_s: float) -> None:
        super().__init__("localhost", timeout=limit_s)
        self._path = path
        self._limit_s = limit_s

    def connect(self) -> None:
        self.sock = local.connect(self._path, self._limit_s)


class Traffic:
    """What clients do: from the front proxy, which our own requests never pass; without one from the server, minus what we asked of it."""

    def __init__(self, machine: machines.Machine, server: Server) -> None:
        self._server = server
        self._figures = Door(machine, server.proxy_url) if server.proxy_url else Door(machine, server.url, server.key)
        self._own = Door(machine, server.url, server.key)
        self._seen: Optional[float] = None
        self.ours_tokens = 0

    def clients(self) -> int:
        """Requests of clients that are here; at least 1 when one came since the last look. None of ours may be on its way now.

        `tune-load` when nobody tells.
        """
        path = "/metrics" if self._server.proxy_url or not self._server.model else f"/metrics?model={self._server.model}&autoload=false"
        status, text = self._figures.get(path)
        rows = {(name, server): number(value) for name, server, value in _FIGURE.findall(text)} if status == http.client.OK else {}
        here, total = self._proxied(rows) if self._server.proxy_url else self._alone(rows)
        if here is None or total is None:
            asked = "the front proxy" if self._server.proxy_url else "its /metrics"
            raise errors.Problem(
                "tune-load",
                f"{self._server.name}: nobody tells whether clients use it ({asked} answered {status or 'nothing'}), so it is left alone",
                hint="deploy with the role proxy, or set metrics: true for this instance",
            )
        came = 0.0 if self._seen is None else total - self._seen
        self._seen = total
        return max(here, int(came > (0 if self._server.proxy_url else _SAME_TOKENS)))

    def _proxied(self, rows: Dict[Tuple[str, str], float]) -> Tuple[Optional[int], Optional[float]]:
        name = self._server.name
        if (_TOTAL, name) not in rows:
            return None, None
        return round(sum(rows.get((one, name), 0.0) for one in _IN_FLIGHT)), rows[_TOTAL, name]

    def _alone(self, rows: Dict[Tuple[str, str], float]) -> Tuple[Optional[int], Optional[float]]:
        if (_OWN[0], "") not in rows:
            return None, None
        here = round(sum(rows.get((one, ""), 0.0) for one in _OWN))
        return here, sum(rows.get((one, ""), 0.0) for one in _OWN_TOTALS) - self.ours_tokens


class Serving:
    """`server` computes; `others` are instances on the same card, whose clients count as well."""

    def __init__(self, machine: machines.Machine, server: Server, others: Tuple[Server, ...] = ()) -> None:
        self.words = f"the running server {server.name}"
        self.interruptions = 0
        self._machine = machine
        self._server = server
        self._door = Door(machine, server.url, server.key)
        self._own = Traffic(machine, server)
        self._traffic = [self._own, *(Traffic(machine, one) for one in others)]
        self._runs: List[load.Run] = []
        self._phase = knee.PREFILL
        self._tokens = 0
        self._words_per_token = 0.7
        self._context = 0
        self._problem: Optional[errors.Problem] = None
        self._stop = threading.Event()
        self._away = threading.Event()
        self._worker: Optional[threading.Thread] = None

    def begin(self, phase: str, tell: load.Tell) -> None:
        """Finds out first how many tokens take about half a second, at the card's full speed: then a run is as long at every step."""
        self._context = self._context or self._slot_context()
        self._phase, self._tokens, self._runs, self._problem = phase, _FIRST_TOKENS[phase], [], None
        tell(f"trying how long a request may be for {phase}")
        for _ in range(3):
            run = self._request()
            rate = run.tokens / max(run.ended_s - run.begun_s, 1e-3)
            self._tokens = self._bounded(int(rate * _RUN_S))
        self._stop.clear()
        self._worker = threading.Thread(target=self._work, daemon=True)
        self._worker.start()

    def runs(self) -> Tuple[load.Run, ...]:
        return tuple(self._runs)

    def check(self) -> None:
        if self._problem is not None:
            raise self._problem

    def is_quiet(self) -> bool:
        """False from the moment that a client was seen until nothing has come for some seconds."""
        return not self._away.is_set()

    def is_idle(self) -> bool:
        """Before `begin`, and between requests: nothing of a client is here, and for some seconds nothing comes. Takes these seconds."""
        self._clients()
        ends_s = self._machine.monotonic_s() + _QUIET_S
        while self._machine.monotonic_s() < ends_s:
            self._machine.wait(_PAUSE_S)
            if self._clients():
                return False
        return True

    def end(self) -> None:
        self._stop.set()
        if self._worker is not None:
            self._worker.join(_ANSWER_LIMIT_S)
            self._worker = None

    # -- in the worker's thread

    def _work(self) -> None:
        try:
            self._clients()
            while not self._stop.is_set():
                if self._clients():
                    self.interruptions += 1
                    self._away.set()
                    while not self._stop.is_set() and not self.is_idle():
                        pass  # is_idle itself waits
                    self._away.clear()
                    continue
                self._runs.append(self._request())
        except errors.Problem as problem:
            self._problem = problem

    def _clients(self) -> int:
        return sum(one.clients() for one in self._traffic)

    def _request(self) -> load.Run:
        decode = self._phase == knee.DECODE
        prompt = "once upon a time" if decode else self._prompt(self._tokens)
        body: Dict[str, object] = {"prompt": prompt, "n_predict": self._tokens if decode else 1, "ignore_eos": decode}
        body.update({"cache_prompt": False, "temperature": 0, "stream": False})
        if self._server.model:
            body["model"] = self._server.model
        begun_s = self._machine.monotonic_s()
        status, text = self._door.post("/completion", body)
        ended_s = self._machine.monotonic_s()
        timings = self._timings(status, text)
        prompted, predicted = fields.integer(timings, "prompt_n", 0), fields.integer(timings, "predicted_n", 0)
        self._own.ours_tokens += prompted + predicted
        tokens = predicted if decode else prompted
        if tokens <= 0:
            raise errors.Problem("tune-load", f"{self._server.name}: its answer names no {self._phase} tokens", hint=_LOOK)
        if not decode:
            self._words_per_token = len(prompt.split()) / tokens
        return load.Run(begun_s, ended_s, tokens)

    def _timings(self, status: int, text: str) -> fields.Document:
        if status != http.client.OK:
            words = f"answered {status}: {text[:200]}" if status else f"does not answer: {text[:200]}"
            raise errors.Problem("tune-load", f"{self._server.name} {_plain(words)}", hint=_LOOK)
        try:
            return fields.document(fields.document(fields.parsed(text), "answer").get("timings", {}), "timings")
        except ValueError as error:
            raise errors.Problem("tune-load", f"{self._server.name}: its answer is not JSON", hint=_LOOK) from error

    def _prompt(self, tokens: int) -> str:
        """Words in an order that no two runs share, so that nothing of it is remembered from the run before."""
        count = max(4, int(tokens * self._words_per_token))
        shift = len(self._runs)
        return " ".join(_WORDS[(at * 5 + at // 7 + shift) % len(_WORDS)] for at in range(count))

    def _bounded(self, tokens: int) -> int:
        room = max(_FEWEST_TOKENS, (self._context or 512) - _MARGIN_TOKENS)
        return max(_FEWEST_TOKENS, min(tokens, _MOST_TOKENS[self._phase], room))

    def _slot_context(self) -> int:
        """Tokens that one request can have; 0 when the server does not say."""
        status, text = self._door.get(f"/props?model={self._server.model}&autoload=false" if self._server.model else "/props")
        try:
            props = fields.document(fields.parsed(text), "props") if status == http.client.OK else {}
            return fields.integer(fields.document(props.get("default_generation_settings", {}), "settings"), "n_ctx", 0)
        except (ValueError, errors.Problem):
            return 0


_LOOK = "invoke doctor on this host tells what is wrong with its server"


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
