"""Emptying a server of the front proxy before its process goes, against a socket that speaks HAProxy's words."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.node import strict
from tests.node.resources import loopback, proxy_fake, systemd_fake
from tests.node.resources.cases import unit as cases
from wattherd import errors, records
from wattherd.resources import base, drain, runtime, unit

SOCKET = "/run/wattherd-proxy/master.sock"
FIELDS = {"socket": SOCKET, "server": "smol/llama", "limit_s": "60"}
DRAINED = records.replace(cases.wanted("two"), drain=FIELDS)


def _old() -> unit.Unit:
    return records.replace(cases.wanted("one"), drain=FIELDS)


def _worker(pid: int = 220, current: int = 0, queued: int = 0) -> proxy_fake.Worker:
    rows = [proxy_fake.Row("smol/llama", current), proxy_fake.Row("smol/BACKEND", current, queued)]
    return proxy_fake.Worker(pid, [*rows, proxy_fake.Row("smol:aside/llama"), proxy_fake.Row("other/llama", 9)])


@pytest.fixture
def systemd(bench: strict.Bench) -> systemd_fake.Systemd:
    made = systemd_fake.Systemd(bench)
    made.running(cases.NAME, cases.body(_old()))
    return made


def _fix(one: unit.Unit, bench: strict.Bench) -> None:
    one.fix(bench.machine, base.delta(one.wanted(), one.actual(bench.machine)), bench.tell)


def _on_waits(bench: strict.Bench, *steps: Callable[[], object]) -> None:
    left = list(steps)

    def next_one() -> None:
        if left:
            left.pop(0)()

    bench.machine.on_wait = next_one


def _started(systemd: systemd_fake.Systemd) -> bool:
    return any(one.startswith("restart") for one in systemd.did)


def test_a_restart_waits_until_nothing_is_in_flight(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    worker = _worker(current=2, queued=5)
    seen: list[tuple[bool, bool]] = []

    def end_one() -> None:
        seen.append((worker.rows[0].drained, _started(systemd)))
        worker.rows[0].current -= 1

    with proxy_fake.running(bench, SOCKET, worker) as proxy:
        _on_waits(bench, end_one, end_one)
        _fix(DRAINED, bench)
        assert base.delta(DRAINED.wanted(), DRAINED.actual(bench.machine)) == {}
    assert seen == [(True, False), (True, False)], "nothing was stopped while requests were in flight"
    assert _started(systemd)
    assert proxy.said == ["220 state drain", "220 state ready", "220 health down"], (
        "what waits in the queue is not in flight: it goes on afterwards"
    )
    assert "draining: 2 requests in flight" in bench.tell.words
    assert ("draining: 1 request in flight", 0.25, 60, "s") in bench.tell.steps


def test_requests_that_take_no_slot_are_awaited_too_and_those_of_others_are_not(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    worker = _worker()
    worker.rows[2].current = 1
    with proxy_fake.running(bench, SOCKET, worker):
        _on_waits(bench, lambda: setattr(worker.rows[2], "current", 0))
        _fix(DRAINED, bench)
    assert "draining: 1 request in flight" in bench.tell.words
    assert _started(systemd)


def test_after_the_limit_nothing_is_stopped_and_the_server_takes_requests_again(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    worker = _worker(current=12)
    with proxy_fake.running(bench, SOCKET, worker) as proxy:
        with pytest.raises(errors.Problem) as caught:
            _fix(DRAINED, bench)
        assert drain.admitted(bench.machine, drain.read("unit:x", FIELDS))
    assert (caught.value.code, caught.value.context["in_flight"]) == ("drain-timeout", 12)
    assert "12 requests" in caught.value.message
    assert not _started(systemd)
    assert proxy.said == ["220 state drain", "220 state ready", "220 health down"]
    assert sum(bench.machine.waits) == 60


def test_an_old_worker_is_left_to_serve_what_waits_in_it(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    old, new = _worker(210, queued=3), _worker(220)
    old.old = True
    with proxy_fake.running(bench, SOCKET, new, old) as proxy:
        _on_waits(bench, lambda: setattr(old.rows[1], "queued", 0))
        _fix(DRAINED, bench)
    assert "draining: 3 requests in flight" in bench.tell.words
    assert proxy.said == ["220 state drain", "220 state ready", "220 health down"]
    assert _started(systemd)


def test_a_proxy_that_is_reloaded_meanwhile_is_told_again(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    first, second = _worker(220, current=1), _worker(230)

    def reload() -> None:
        first.old = True
        proxy.workers.append(second)

    with proxy_fake.running(bench, SOCKET, first) as proxy:
        _on_waits(bench, reload, lambda: setattr(first.rows[0], "current", 0))
        _fix(DRAINED, bench)
    assert proxy.said == ["220 state drain", "230 state drain", "230 state ready", "230 health down"]
    assert _started(systemd)


def test_without_a_proxy_nothing_is_waited_for(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    _fix(DRAINED, bench)
    assert _started(systemd)
    assert "draining" not in " ".join(bench.tell.words)


def test_a_master_that_is_just_reloading_is_not_taken_for_none(bench: strict.Bench) -> None:
    with proxy_fake.running(bench, SOCKET) as proxy:
        _on_waits(bench, lambda: None, lambda: proxy.workers.append(_worker()))
        assert runtime.workers(bench.machine, SOCKET) == runtime.Workers((220,))
    assert runtime.workers(bench.machine, SOCKET) is None


def test_a_proxy_that_ends_meanwhile_holds_nobody(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(proxy_fake.running(bench, SOCKET, _worker(current=4)))
        _on_waits(bench, stack.close)
        _fix(DRAINED, bench)
    assert _started(systemd)


def test_a_worker_that_does_not_say_what_it_does_is_not_taken_for_idle(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    worker = _worker()
    worker.mute = True
    with proxy_fake.running(bench, SOCKET, worker), pytest.raises(errors.Problem) as caught:
        _fix(DRAINED, bench)
    assert caught.value.code == "drain-timeout"
    assert "in_flight" not in caught.value.context, "unknown is no number"
    assert not _started(systemd)


def test_a_worker_that_answers_late_is_asked_and_told_again(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    worker = _worker()
    worker.mute = True
    with proxy_fake.running(bench, SOCKET, worker) as proxy:
        _on_waits(bench, lambda: setattr(worker, "mute", False))
        _fix(DRAINED, bench)
    assert proxy.said[0] == "220 state drain"
    assert _started(systemd)


def test_a_proxy_that_is_there_and_says_nothing_is_not_taken_for_none(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    with proxy_fake.running(bench, SOCKET, _worker(current=4)) as proxy:
        proxy.mute = True
        with pytest.raises(errors.Problem) as caught:
            _fix(DRAINED, bench)
    assert caught.value.code == "drain-timeout"
    assert "does not answer" in caught.value.message
    assert not _started(systemd)


def test_an_answer_that_never_ends_is_none(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket lies in a folder of the proxy's own account."""
    monkeypatch.setattr(runtime, "_LIMIT_S", 0.2)
    ended = threading.Event()
    place = pathlib.Path(bench.machine.path(SOCKET))
    place.parent.mkdir(parents=True)
    folder = os.open(place.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{folder}/{place.name}")
        server.listen()

        def drip() -> None:
            link, _ = server.accept()
            with link, contextlib.suppress(OSError):
                while not ended.wait(0.01):
                    link.sendall(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        assert runtime.say(bench.machine, SOCKET, "show proc") is None
        ended.set()
        thread.join()
    os.close(folder)
    place.unlink()


def test_a_worker_without_this_server_sends_it_nothing(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    worker = proxy_fake.Worker(220, [proxy_fake.Row("other/llama", 3)])
    with proxy_fake.running(bench, SOCKET, worker):
        _fix(DRAINED, bench)
    assert _started(systemd)


def test_a_server_that_fell_is_not_waited_for(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    fallen = systemd.units[cases.NAME]
    fallen.active, fallen.sub, fallen.pid = "failed", "failed", 0
    with proxy_fake.running(bench, SOCKET, _worker(current=3)) as proxy:
        _fix(DRAINED, bench)
    assert systemd.units[cases.NAME].active == "active"
    assert proxy.said == []


def test_a_failed_start_puts_it_back_too(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    def fall(loaded: systemd_fake.Loaded) -> None:
        loaded.active, loaded.sub, loaded.pid = "failed", "failed", 0

    systemd.fate = fall
    with proxy_fake.running(bench, SOCKET, _worker()) as proxy, pytest.raises(errors.Problem):
        _fix(DRAINED, bench)
    assert proxy.said == ["220 state drain", "220 state ready", "220 health down"]


def test_what_a_killed_run_left_drained_is_a_difference_and_mended(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    worker = _worker()
    worker.rows[0].drained = True
    systemd.running(cases.NAME, cases.body(DRAINED))
    with proxy_fake.running(bench, SOCKET, worker):
        state = DRAINED.actual(bench.machine)
        assert base.delta(DRAINED.wanted(), state) == {"admitted": (False, True)}
        _fix(DRAINED, bench)
        assert base.delta(DRAINED.wanted(), DRAINED.actual(bench.machine)) == {}
    assert not _started(systemd)


def test_a_removal_drains_first(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    worker = _worker(current=1)
    stopped: list[bool] = []

    def end() -> None:
        stopped.append(any(one.startswith("stop") for one in systemd.did))
        worker.rows[0].current = 0

    with proxy_fake.running(bench, SOCKET, worker):
        _on_waits(bench, end)
        DRAINED.remove(bench.machine, bench.tell)
    assert stopped == [False]
    assert f"stop {cases.NAME}" in systemd.did


@pytest.fixture
def counting() -> Iterator[loopback.Server]:
    with loopback.serving(200) as server:
        yield server


def test_what_the_server_itself_works_on_counts_as_well(
    bench: strict.Bench, systemd: systemd_fake.Systemd, counting: loopback.Server
) -> None:
    counting.body = b"llamacpp:requests_processing 1\nllamacpp:requests_deferred 2\n"
    one = records.replace(DRAINED, drain={**FIELDS, "metrics": counting.url.replace("health", "metrics"), "key_file": "/etc/key.env"})
    bench.put("/etc/key.env", 'LLAMA_API_KEY="first-key,second-key"\n')
    with proxy_fake.running(bench, SOCKET, _worker()):
        _on_waits(bench, lambda: setattr(counting, "body", b"llamacpp:requests_processing 0\n"))
        _fix(one, bench)
    assert "draining: 3 requests in flight" in bench.tell.words
    assert counting.heads[-1]["Authorization"] == "Bearer first-key"
    assert _started(systemd)
    assert "first-key" not in " ".join(bench.tell.words)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"socket": SOCKET, "server": "smol/llama"},
        {**FIELDS, "limit_s": "-1"},
        {**FIELDS, "server": "smol"},
        {**FIELDS, "server": "smol/llama; shutdown"},
        {**FIELDS, "socket": "run/x.sock"},
        {**FIELDS, "metrics": "http://example.org:80/"},
        {**FIELDS, "else": "x"},
    ],
)
def test_what_a_manifest_may_not_say(fields: dict[str, str]) -> None:
    with pytest.raises(errors.Problem) as caught:
        drain.read("unit:x", fields)
    assert caught.value.code == "manifest-invalid"


def test_the_workers_of_older_versions_are_read_too() -> None:
    text = """#<PID>          <type>          <relative PID>  <reloads>       <uptime>        <version>
1162            master          0               5               0d00h02m07s     2.0.33
# workers
1271            worker          1               0               0d00h00m00s     2.0.33
# old workers
1233            worker          [was: 1]        3               0d00h00m43s     2.0.33
# programs
"""
    assert runtime.parse_workers(text) == runtime.Workers((1271,), (1233,))


@pytest.mark.parametrize("text", ["# pxname,svname\n", "Can't find the target PID matching the prefix.\n"])
def test_who_has_no_rows_has_nothing_in_flight(text: str) -> None:
    assert runtime.parse_stats(text) == ()


@pytest.mark.parametrize("text", ["", "Unknown command\n", "Permission denied\n"])
def test_words_that_are_no_table_say_nothing(text: str) -> None:
    assert runtime.parse_stats(text) is None
    assert not runtime.parse_standing(text, "smol/llama")


@pytest.mark.parametrize("body", [b"llamacpp:requests_processing 1e999\n", b"llamacpp:requests_processing ..\n"])
def test_figures_that_are_no_numbers_are_no_end_of_a_deploy(
    bench: strict.Bench, systemd: systemd_fake.Systemd, counting: loopback.Server, body: bytes
) -> None:
    counting.body = body
    one = records.replace(DRAINED, drain={**FIELDS, "metrics": counting.url.replace("health", "metrics")})
    with proxy_fake.running(bench, SOCKET, _worker()):
        _fix(one, bench)
    assert _started(systemd)


def test_a_server_that_is_ready_is_awaited_until_the_proxy_has_seen_it(bench: strict.Bench) -> None:
    worker = _worker()
    worker.rows[0].up = False
    with proxy_fake.running(bench, SOCKET, worker):
        _on_waits(bench, lambda: None, lambda: setattr(worker.rows[0], "up", True))
        drain.await_served(bench.machine, drain.read("unit:x", FIELDS))
    assert len(bench.machine.waits) == 2


@pytest.mark.parametrize("name", ["smol/llama", "another/llama"])
def test_a_proxy_that_never_sees_it_up_or_does_not_have_it_is_no_failure(bench: strict.Bench, name: str) -> None:
    with proxy_fake.running(bench, SOCKET, proxy_fake.Worker(220, [proxy_fake.Row(name, up=False)])):
        drain.await_served(bench.machine, drain.read("unit:x", FIELDS))
    assert sum(bench.machine.waits) == (5 if name == "smol/llama" else 0)


def test_without_a_proxy_nobody_has_to_see_it(bench: strict.Bench) -> None:
    drain.await_served(bench.machine, drain.read("unit:x", FIELDS))
    assert sum(bench.machine.waits) == 0


def test_the_unit_waits_for_the_proxy_after_it_is_ready(bench: strict.Bench, systemd: systemd_fake.Systemd) -> None:
    worker = _worker()
    with loopback.serving(200) as server, proxy_fake.running(bench, SOCKET, worker):
        worker.rows[0].up = False
        bench.machine.on_wait = lambda: setattr(worker.rows[0], "up", _started(systemd) and server.asked > 0)
        _fix(records.replace(DRAINED, ready_url=server.url), bench)
        assert worker.rows[0].up, "else the deploy says that all is well while /health says 503"
