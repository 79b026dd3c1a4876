"""A server as the load: a real HTTP server stands for it and for the front proxy, and clients come when a test says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.node.power.llama import DECODE_S, KEY, PREFILL_S, Llama, serving
from wattherd import errors
from wattherd import machine as machines
from wattherd.policy import knee
from wattherd.power import served


@pytest.fixture
def llama() -> Llama:
    return Llama()


@pytest.fixture
def port(llama: Llama) -> Iterator[int]:
    with serving(llama) as number:
        yield number


@pytest.fixture
def work(llama: Llama, port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[served.Serving]:
    """Requests of a tenth of a second, and a client is gone after a fifth, so that a test takes no longer than it must."""
    monkeypatch.setattr(served, "_RUN_S", 0.1)
    monkeypatch.setattr(served, "_QUIET_S", 0.2)
    monkeypatch.setattr(served, "_PAUSE_S", 0.05)
    url = f"http://127.0.0.1:{port}"
    one = served.Serving(machines.Machine(), served.Server("smol", url, "", KEY, url if llama.proxied else ""))
    yield one
    one.end()


def until(true: Callable[[], bool], limit_s: float = 10.0) -> None:
    ends_s = time.monotonic() + limit_s
    while not true() and time.monotonic() < ends_s:
        time.sleep(0.01)
    assert true()


@pytest.mark.parametrize(("phase", "each_s"), [(knee.PREFILL, PREFILL_S), (knee.DECODE, DECODE_S)])
def test_runs_have_the_tokens_and_times_of_the_server(llama: Llama, work: served.Serving, phase: str, each_s: float) -> None:
    work.begin(phase, lambda _words: None)
    until(lambda: len(work.runs()) >= 4)
    work.end()
    runs = work.runs()
    for run in runs:
        assert run.tokens / (run.ended_s - run.begun_s) == pytest.approx(1 / each_s, rel=0.25)
        assert 0.05 < run.ended_s - run.begun_s < 0.3
    assert llama.most_at_once == 1
    assert f"Bearer {KEY}" in llama.keys
    assert all(body["cache_prompt"] is False for body in llama.bodies)
    assert all(body["n_predict"] == 1 for body in llama.bodies) is (phase == knee.PREFILL)


def test_no_prompt_is_longer_than_a_slot(llama: Llama, work: served.Serving) -> None:
    llama.context = 100
    work.begin(knee.PREFILL, lambda _words: None)
    until(lambda: len(work.runs()) >= 2)
    assert max(run.tokens for run in work.runs()) <= 100


def test_no_two_prompts_are_the_same(llama: Llama, work: served.Serving) -> None:
    """What the server remembers of the one before would make the next one cheaper."""
    work.begin(knee.PREFILL, lambda _words: None)
    until(lambda: len(work.runs()) >= 3)
    work.end()
    prompts = [body["prompt"] for body in llama.bodies[-3:]]
    assert len(set(prompts)) == 3


def test_a_client_is_given_way(llama: Llama, work: served.Serving) -> None:
    """As soon as the proxy counts one, nothing of ours begins; when he is gone for a while, work goes on, and the break is known."""
    work.begin(knee.DECODE, lambda _words: None)
    until(lambda: bool(work.runs()))
    llama.clients_now, llama.clients_total = 1, llama.clients_total + 1
    until(lambda: not work.is_quiet())
    assert work.interruptions == 1
    asked = len(llama.bodies)
    time.sleep(0.3)
    assert len(llama.bodies) == asked
    llama.clients_now = 0
    until(work.is_quiet)
    until(lambda: len(llama.bodies) > asked)


def test_a_client_that_came_and_went_during_our_request_counts(llama: Llama, work: served.Serving) -> None:
    work.begin(knee.DECODE, lambda _words: None)
    until(lambda: bool(work.runs()))
    llama.clients_total += 1
    until(lambda: work.interruptions == 1)
    until(work.is_quiet)
    assert work.interruptions == 1, "one client, counted once"


def test_idle_is_what_stays_idle_for_a_while(llama: Llama, work: served.Serving) -> None:
    assert work.is_idle()
    llama.clients_now = 1
    assert not work.is_idle()


def test_a_server_that_answers_nonsense_ends_the_work_with_its_words(llama: Llama, work: served.Serving) -> None:
    work.begin(knee.DECODE, lambda _words: None)
    until(lambda: bool(work.runs()))
    work.check()
    llama.status = 500

    found: list[errors.Problem] = []

    def failed() -> bool:
        try:
            work.check()
        except errors.Problem as problem:
            found.append(problem)
        return bool(found)

    until(failed)
    assert found[0].code == "tune-load"
    assert "broken" in found[0].message


class TestWithoutAProxy:
    """Its own counters must do: what is at work, and tokens that are not ours."""

    @pytest.fixture
    def llama(self) -> Llama:
        return Llama(proxied=False)

    def test_our_own_tokens_are_no_client(self, llama: Llama, work: served.Serving) -> None:
        work.begin(knee.DECODE, lambda _words: None)
        until(lambda: len(work.runs()) >= 4)
        assert work.interruptions == 0
        assert llama.tokens_total > 1000

    def test_tokens_that_are_not_ours_are_a_clients(self, llama: Llama, work: served.Serving) -> None:
        work.begin(knee.DECODE, lambda _words: None)
        until(lambda: bool(work.runs()))
        with llama.lock:
            llama.tokens_total += 57
        until(lambda: work.interruptions > 0)
        assert work.interruptions == 1


def test_where_nobody_tells_of_clients_the_server_is_left_alone(port: int) -> None:
    url = f"http://127.0.0.1:{port}"
    stranger = served.Serving(machines.Machine(), served.Server("other", url, "", "", url))
    with pytest.raises(errors.Problem, match="nobody tells whether clients use it") as caught:
        stranger.is_idle()
    assert caught.value.code == "tune-load"
