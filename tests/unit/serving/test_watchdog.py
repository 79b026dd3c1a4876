"""When a server hangs and when it does not: figures as llama-server prints them, over a real connection."""

from __future__ import annotations

import os
import pathlib
import socket
from collections.abc import Iterator

import pytest

from tests.unit.serving import programs

door = programs.load("llama_door")
watchdog = programs.load("llama_watchdog")
STALL_S = 60.0


class Bench:
    """A watch over the fake server, with a clock of its own."""

    def __init__(self, server: programs.Server, *, router: bool = False, stall_s: float = STALL_S, timeout_s: float = 5.0) -> None:
        self.server = server
        self.now_s = 1000.0
        self.ended: list[str] = []
        self.said: list[str] = []
        self.watch = watchdog.Watch(
            "llama@smol.service",
            door.Door(server.place, timeout_s=timeout_s),
            stall_s,
            router=router,
            clock_s=lambda: self.now_s,
            end=self.ended.append,
            say=self.said.append,
        )

    def look(self, *texts: str, every_s: float = 15.0) -> None:
        for text in texts:
            self.server.answers["/metrics"] = [(200, text)]
            self.watch.look()
            self.now_s += every_s


@pytest.fixture
def server() -> Iterator[programs.Server]:
    with programs.serving() as one:
        yield one


def test_requests_in_progress_and_no_token_is_a_hang(server: programs.Server) -> None:
    bench = Bench(server)
    bench.look(programs.metrics(2, decoded=50), *[programs.metrics(2, decoded=51)] * 4)
    assert bench.ended == [], "45 s of standstill are within the limit"
    bench.look(programs.metrics(2, decoded=51))
    assert bench.ended == ["llama@smol.service"]
    assert "llama@smol.service has 2 in progress and advances no token, for 60 s" in bench.said[0]


def test_waiting_requests_count_too(server: programs.Server) -> None:
    bench = Bench(server)
    bench.look(*[programs.metrics(0, deferred=1, decoded=5)] * 6)
    assert bench.ended


@pytest.mark.parametrize("counter", ["decoded", "prompt", "predicted"])
def test_any_counter_that_moves_is_life(server: programs.Server, counter: str) -> None:
    bench = Bench(server)
    bench.look(*[programs.metrics(1, **{counter: float(number)}) for number in range(30)])
    assert bench.ended == []


def test_an_idle_or_sleeping_server_stands_still_for_ever(server: programs.Server) -> None:
    bench = Bench(server)
    bench.look(*[programs.metrics(0, decoded=700)] * 100)
    assert bench.ended == []


def test_the_standstill_of_one_request_is_not_carried_to_the_next(server: programs.Server) -> None:
    bench = Bench(server)
    for _ in range(20):
        bench.look(*[programs.metrics(1, decoded=7)] * 3, programs.metrics(0, decoded=7))
    assert bench.ended == []


def test_counters_that_start_anew_are_life(server: programs.Server) -> None:
    bench = Bench(server)
    bench.look(*[programs.metrics(1, decoded=7)] * 4, *[programs.metrics(1, decoded=1)] * 4)
    assert bench.ended == []


@pytest.mark.parametrize(
    ("decoded", "coarse"), [(0, 1), (999_999, 1), (1_234_570, 10), (12_345_700, 100), (123_457_000, 1000), (3e9, 10_000)]
)
def test_how_coarse_six_digits_are(decoded: float, coarse: float) -> None:
    assert watchdog.step(decoded) == coarse
    found = watchdog.read_metrics(programs.metrics(1, decoded=decoded))
    assert found is not None
    assert found[2] == coarse


def test_a_counter_that_prints_coarsely_gets_as_much_longer(server: programs.Server) -> None:
    bench = Bench(server)
    bench.look(*[programs.metrics(1, decoded=123_457_000)] * 40)
    assert bench.ended == [], "a thousand batches may go by unseen: ten times the limit"
    bench.look(*[programs.metrics(1, decoded=123_457_000)] * 2)
    assert bench.ended


def test_one_that_takes_connections_and_never_answers_hangs(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "llama.sock")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(path)
        silent.listen(64)
        bench = Bench(programs.Server(place=f"unix:{path}"), timeout_s=0.05)
        for _ in range(4):
            bench.watch.look()
            bench.now_s += 15
        assert bench.ended == []
        bench.watch.look()
    assert bench.ended == ["llama@smol.service"]
    assert "does not answer" in bench.said[0]


def test_one_that_is_away_or_loading_is_not_the_watchdogs_business(server: programs.Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    away = Bench(programs.Server(place=f"127.0.0.1:{port}"))
    loading = Bench(server)
    server.answers["/metrics"] = [(503, '{"error":{"message":"Loading model"}}')]
    for bench in (away, loading):
        for _ in range(40):
            bench.watch.look()
            bench.now_s += 15
        assert bench.ended == []


def test_without_metrics_only_an_answer_is_asked_for(server: programs.Server) -> None:
    bench = Bench(server)
    server.answers.update({"/metrics": [(501, "{}")], "/health": [(200, '{"status":"ok"}')]})
    for _ in range(40):
        bench.watch.look()
        bench.now_s += 15
    assert bench.ended == []
    assert ("GET", "/health", {}) in server.asked


@pytest.mark.parametrize("text", ["", "nothing", "llamacpp:requests_processing nan?\n", programs.metrics(1).replace("n_decode", "n_other")])
def test_a_text_that_is_not_understood_ends_nothing(server: programs.Server, text: str) -> None:
    bench = Bench(server)
    bench.look(*[text] * 40)
    assert bench.ended == []


def test_nothing_asked_wakes_or_loads_a_model(server: programs.Server) -> None:
    server.answers["/models"] = [(200, server.models(one="loaded", two="sleeping", three="unloaded", default="unloaded"))]
    Bench(server).look(programs.metrics(1))
    bench = Bench(server, router=True)
    bench.look(programs.metrics(1))
    assert {(method, path) for method, path, _ in server.asked} == {("GET", "/metrics"), ("GET", "/models")}
    assert [words for _, path, words in server.asked if path == "/metrics"] == [{}, {"model": "one", "autoload": "false"}]


def test_a_routers_hung_model_is_loaded_anew_and_the_router_goes_on(server: programs.Server) -> None:
    loaded, gone = server.models(one="loaded", two="loaded"), server.models(one="unloaded", two="loaded")
    bench = Bench(server, router=True)
    server.answers.update({"/models": [(200, loaded)], "/models/unload": [(200, "{}")], "/models/load": [(200, "{}")]})
    bench.look(*[programs.metrics(1, decoded=5)] * 4)
    server.answers["/models"] = [(200, loaded), (200, loaded), (200, gone)]
    server.answers["/metrics"] = [(200, programs.metrics(1, decoded=5)), (200, programs.metrics(1, decoded=6))]
    bench.watch.look()
    assert bench.ended == []
    assert [row for row in server.asked if row[0] == "POST"] == [
        ("POST", "/models/unload", {"model": "one"}),
        ("POST", "/models/load", {"model": "one"}),
    ]
    assert "its model one has 1 in progress" in bench.said[0]


def test_the_key_is_sent_and_only_the_first_of_several(server: programs.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    Bench(server).look(programs.metrics())
    monkeypatch.setenv("LLAMA_API_KEY", "first-key,second-key")
    Bench(server).look(programs.metrics())
    assert server.keys == ["", "Bearer first-key"]


@pytest.mark.parametrize(
    ("line", "belongs"),
    [
        ("0::/system.slice/system-llama.slice/llama@smol.service", True),
        ("1:name=systemd:/machine/x/system.slice/system-llama.slice/llama@smol.service", True),
        ("0::/system.slice/system-llama\\x2dwatchdog.slice/llama-watchdog@smol.service", False),
        ("0::/system.slice/system-llama.slice/llama@smol.service/child", False),
        ("0::/system.slice/llama@smol2.service", False),
        ("", False),
    ],
)
def test_which_processes_are_the_units(tmp_path: pathlib.Path, line: str, belongs: bool) -> None:
    (tmp_path / "cgroup").write_text(f"12:cpu:/\n{line}\n")
    assert watchdog.belongs("llama@smol.service", str(tmp_path / "cgroup")) is belongs
    assert not watchdog.belongs("llama@smol.service", str(tmp_path / "nowhere"))


def test_only_the_units_processes_are_ended_and_never_itself(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, unit in (
        ("10", "llama@smol.service"),
        ("11", "llama@other.service"),
        ("12", "llama@smol.service"),
        (str(os.getpid()), "llama@smol.service"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup").write_text(f"0::/system.slice/{unit}\n")
    (tmp_path / "self").mkdir()
    ended: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: ended.append((pid, number)))
    watchdog.end_unit("llama@smol.service", str(tmp_path))
    assert sorted(ended) == [(10, 9), (12, 9)]
