"""Taking a router's presets into use: what differs is drained and reloaded, what starts with it is loaded, the rest is left alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.serving import programs

door = programs.load("llama_door")
presets = programs.load("llama_presets")
ONE = "[one]\nmodel = /m/one.gguf\nctx-size = 1024\nload-on-startup = true\n"
TWO = "[two]\nmodel = /m/two.gguf\nload-on-startup = false\n"
BOTH = f"# written by hand of nobody\n\n{ONE}\n{TWO}"


@pytest.fixture
def server() -> Iterator[programs.Server]:
    with programs.serving() as one:
        one.answers.update({"/models/load": [(200, '{"success":true}')], "/metrics": [(200, programs.metrics())]})
        yield one


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def pause(self, seconds_s: float) -> None:
        self.now_s += seconds_s


def apply(server: programs.Server, after: str, before: str = "", *, drain_s: float = 20.0, limit_s: float = 30.0) -> Clock:
    clock = Clock()
    router = presets.Router(door.Door(server.place, timeout_s=5.0), "llama@herd.service", limit_s, clock_s=clock, pause=clock.pause)
    presets.apply(router, after, before, drain_s)
    return clock


def posts(server: programs.Server) -> list[tuple[str, str]]:
    return [(path, words["model"]) for method, path, words in server.asked if method == "POST"]


def test_what_differs() -> None:
    before, after = presets.sections(BOTH), presets.sections(f"{ONE.replace('1024', '2048')}\n{TWO}\n[three]\nmodel = /m/3\n")
    assert presets.changed(before, after) == {"one"}
    assert presets.changed(before, presets.sections(TWO)) == {"one"}
    assert presets.changed(before, before) == set()
    assert presets.started_with(after) == {"one"}


def test_a_first_run_waits_for_what_starts_with_the_router(server: programs.Server) -> None:
    server.answers["/models"] = (
        [(503, "")] * 2 + [(200, server.models(one="loading", two="unloaded"))] * 6 + [(200, server.models(one="loaded", two="unloaded"))]
    )
    apply(server, BOTH)
    assert posts(server) == []
    assert ("GET", "/models", {"reload": "1"}) in server.asked


def test_a_changed_model_is_drained_first_and_loaded_again_when_it_was(server: programs.Server) -> None:
    ready, after = server.models(one="loaded", two="loaded"), server.models(one="loaded", two="unloaded")
    server.answers["/metrics"] = [(200, programs.metrics(1))] * 4 + [(200, programs.metrics(0))]
    server.answers["/models"] = [(200, ready)] * 8 + [(200, after)] * 2 + [(200, ready)]
    clock = apply(server, BOTH.replace("/m/two", "/m/deux"), BOTH)
    reload_at = server.asked.index(("GET", "/models", {"reload": "1"}))
    looks = [
        index
        for index, (_, path, words) in enumerate(server.asked)
        if path == "/metrics" and words == {"model": "two", "autoload": "false"}
    ]
    assert len(looks) == 5
    assert max(looks) < reload_at, "busy: not before it is idle"
    assert not any(words.get("model") == "one" for _, path, words in server.asked if path == "/metrics"), "what stays is nobody's business"
    assert posts(server) == [("/models/load", "two")]
    assert clock.now_s >= 2.0


@pytest.mark.parametrize("figures", [(200, programs.metrics(1)), (200, programs.metrics(deferred=1)), (200, ""), (503, ""), (500, "")])
def test_a_model_that_does_not_say_that_it_is_idle_is_not_unloaded(server: programs.Server, figures: tuple[int, str]) -> None:
    server.answers["/metrics"] = [figures]
    server.answers["/models"] = [(200, server.models(one="loaded", two="loaded"))]
    with pytest.raises(presets.Failed, match="still busy after 20 s, so nothing was unloaded: two; deploy again"):
        apply(server, BOTH.replace("/m/two", "/m/deux"), BOTH, drain_s=20)
    assert ("GET", "/models", {"reload": "1"}) not in server.asked
    assert posts(server) == []


def test_where_nobody_knows_what_the_router_read_every_loaded_model_is_awaited(server: programs.Server) -> None:
    ready = server.models(one="loaded", two="loaded")
    server.answers["/metrics"] = [(200, programs.metrics(1))] * 3 + [(200, programs.metrics(0))]
    server.answers["/models"] = [(200, ready)]
    apply(server, BOTH.replace("/m/two", "/m/deux"), "")
    reload_at = server.asked.index(("GET", "/models", {"reload": "1"}))
    asked = [words.get("model") for _, path, words in server.asked[:reload_at] if path == "/metrics"]
    assert {"one", "two"} <= set(asked)
    assert len(asked) > 2, "not before both are idle"


def test_presets_that_the_router_refuses_are_told_in_its_words(server: programs.Server) -> None:
    ready = (200, server.models(one="loaded"))
    server.answers["/models"] = [ready] * 3 + [(500, "option 'nonsense' not recognized in preset 'two'")]
    with pytest.raises(presets.Failed, match=r"HTTP status 500.*nonsense"):
        apply(server, BOTH, BOTH.replace("/m/two", "/m/deux"), drain_s=0)


def test_a_model_that_fails_is_named_though_the_call_said_success(server: programs.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = "[58375] 0.00.1 I loading\n[58375] 0.00.2 E gguf_init_from_file: failed to open GGUF file\n0.1 E later\n"
    monkeypatch.setattr(presets.subprocess, "run", lambda *_a, **_k: type("Done", (), {"stdout": journal.encode()}))
    states = [
        server.models(one="unloaded"),
        server.models(one="unloaded"),
        server.models(one="loading"),
        server.models(one=("unloaded", 1)),
    ]
    server.answers["/models"] = [(200, states[0])] * 3 + [(200, one) for one in states[1:]]
    with pytest.raises(
        presets.Failed, match=r"the model one does not load \(exit status 1\): gguf_init_from_file: failed to open GGUF file"
    ):
        apply(server, BOTH)


def test_an_old_failure_is_tried_again(server: programs.Server) -> None:
    failed = (200, server.models(one=("unloaded", 1)))
    server.answers["/models"] = [failed] * 4 + [(200, server.models(one="loading")), (200, server.models(one="loaded"))]
    apply(server, BOTH)
    assert posts(server) == [("/models/load", "one")]


def test_a_router_that_never_answers_and_a_model_that_never_loads_end_in_time(server: programs.Server) -> None:
    server.answers["/models"] = [(503, "")]
    with pytest.raises(presets.Failed, match="does not answer"):
        apply(server, BOTH)
    server.answers["/models"] = [(200, server.models(one="loading"))]
    with pytest.raises(presets.Failed, match="not loaded in time: one"):
        apply(server, BOTH)
