"""HAProxy's configuration: checked before it is taken, reloaded when what runs was loaded from other files, put back when it cannot be."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence

import pytest

from tests.node import strict
from tests.node.resources import proxy_fake, systemd_fake
from tests.node.resources.cases import haproxy as cases
from wattherd import errors
from wattherd import machine as machines
from wattherd.resources import base, haproxy, scratch

PROGRAM = "/usr/sbin/haproxy"
MAIN = f"{cases.FOLDER}/haproxy.cfg"
OTHER = {**cases.FILES, "haproxy.cfg": "global\n    maxconn 20\n"}


def _delta(one: haproxy.Haproxy, bench: strict.Bench) -> base.Delta:
    return base.delta(one.wanted(), one.actual(bench.machine))


def _fix(one: haproxy.Haproxy, bench: strict.Bench) -> None:
    difference = _delta(one, bench)
    one.preflight(bench.machine, one.actual(bench.machine))
    one.fix(bench.machine, difference, bench.tell)


def _stamp(bench: strict.Bench) -> str:
    found = re.search(r"setenv WATTHERD_LOADED ([0-9a-f]{64})", bench.machine.text(MAIN))
    assert found
    return found[1]


def _worker(bench: strict.Bench) -> proxy_fake.Worker:
    return proxy_fake.Worker(220, environment={haproxy.LOADED: _stamp(bench)})


def _plan_reload(bench: strict.Bench, proxy: proxy_fake.Proxy, *, takes: bool = True) -> list[str]:
    """A systemctl whose reload makes a new worker of the files as they are, unless what is in them cannot be taken."""
    reloads: list[str] = []

    def reload(argv: Sequence[str]) -> machines.Result | None:
        assert argv[2] == cases.UNIT
        reloads.append(_stamp(bench))
        if takes:
            proxy.workers[0].old = True
            proxy.workers.insert(0, proxy_fake.Worker(230, environment={haproxy.LOADED: _stamp(bench)}))
        return None

    bench.runner.plan("systemctl", "reset-failed", cases.UNIT, times=None)
    bench.runner.plan("systemctl", "reload", cases.UNIT, effect=reload, times=None)
    bench.runner.plan("journalctl", strict.REST, out="[ALERT] cannot bind socket [10.9.9.9:80]\n", times=None)
    return reloads


def test_a_change_is_reloaded_and_loaded_is_what_the_worker_says(bench: strict.Bench) -> None:
    cases.settle(bench)
    with proxy_fake.running(bench, cases.SOCKET, _worker(bench)) as proxy:
        reloads = _plan_reload(bench, proxy)
        one = cases.wanted(bench, files=OTHER)
        assert list(_delta(one, bench)) == ["haproxy.cfg"]
        _fix(one, bench)
        assert _delta(one, bench) == {}
        assert reloads == [_stamp(bench)]


def test_files_that_were_written_by_a_run_that_was_killed_are_reloaded_by_the_next(bench: strict.Bench) -> None:
    cases.settle(bench)
    with proxy_fake.running(bench, cases.SOCKET, _worker(bench)) as proxy:
        reloads = _plan_reload(bench, proxy)
        proxy.workers[0].environment[haproxy.LOADED] = "0" * 64
        one = cases.wanted(bench)
        assert _delta(one, bench) == {"loaded": (False, True)}
        _fix(one, bench)
        assert _delta(one, bench) == {}
        assert len(reloads) == 1


@pytest.mark.parametrize(("inputs", "due"), [("as wanted", True), ("as before", False)])
def test_a_proxy_whose_unit_is_to_be_restarted_is_not_reloaded_before(bench: strict.Bench, inputs: str, due: bool) -> None:
    cases.settle(bench)
    systemd = systemd_fake.Systemd(bench)
    systemd.running(cases.UNIT, b"[Service]\nExecStart=/usr/sbin/haproxy\n", f"WATTHERD_INPUTS={inputs}\0")
    with proxy_fake.running(bench, cases.SOCKET, _worker(bench)) as proxy:
        proxy.workers[0].environment[haproxy.LOADED] = "0" * 64
        one = cases.wanted(bench, started_as="as wanted")
        assert _delta(one, bench) == ({"loaded": (False, True)} if due else {})


def test_a_proxy_that_is_there_and_says_nothing_is_not_taken_for_one_that_loaded_it(bench: strict.Bench) -> None:
    cases.settle(bench)
    with proxy_fake.running(bench, cases.SOCKET, _worker(bench)) as proxy:
        assert _delta(cases.wanted(bench), bench) == {}
        proxy.mute = True
        assert _delta(cases.wanted(bench), bench) == {"loaded": (False, True)}


def test_a_key_beside_it_that_changed_is_a_reload(bench: strict.Bench) -> None:
    bench.folder(cases.FOLDER)
    bench.put(cases.KEY, "first")
    one = cases.wanted(bench, beside=(cases.KEY,))
    _fix(one, bench)
    with proxy_fake.running(bench, cases.SOCKET, _worker(bench)) as proxy:
        reloads = _plan_reload(bench, proxy)
        assert _delta(one, bench) == {}
        bench.put(cases.KEY, "second")
        assert _delta(one, bench) == {"stamped": (False, True)}
        _fix(one, bench)
        assert _delta(one, bench) == {}
        assert len(reloads) == 1


def test_what_haproxy_does_not_take_is_refused_before_anything_is_written(bench: strict.Bench) -> None:
    cases.settle(bench)
    bench.put(PROGRAM, "")
    laid_out: list[str] = []

    def check(argv: Sequence[str]) -> machines.Result:
        folder = argv[argv.index("-C") + 1].removeprefix(bench.machine.root)
        laid_out.append(bench.machine.text(f"{folder}/haproxy.cfg"))
        if "-q" in argv:
            return machines.Result(1, b"", b"")  # 2.6 then keeps the reason to itself too
        return machines.Result(1, b"", b"[NOTICE] haproxy version is 2.6\n[ALERT] config: parsing [haproxy.cfg:2]: unknown keyword 'x'\n")

    bench.runner.plan(PROGRAM, strict.REST, effect=check, times=None)
    before = bench.machine.text(MAIN)
    one = cases.wanted(bench, files=OTHER)
    for looks_only in (True, False):
        with pytest.raises(errors.Problem) as caught:
            one.preflight(bench.machine, one.actual(bench.machine)) if looks_only else one.fix(bench.machine, {}, bench.tell)
        assert caught.value.code == "proxy-config"
        assert "unknown keyword 'x'" in caught.value.message
    assert laid_out == [OTHER["haproxy.cfg"]] * 2
    assert bench.machine.text(MAIN) == before
    assert bench.machine.names(scratch.CACHE) == [], "the candidate is gone"


@pytest.mark.parametrize(
    ("bind", "foreign"),
    [
        ("127.0.0.1:80", False),
        ("0.0.0.0:80 ssl crt x.pem", False),
        ("192.0.2.7:80 ssl", True),
        ("2001:db8::9:80", True),
        ("[2001:db8::9]:80", True),
        ("box.lan:80", False),
    ],
)
def test_an_address_that_is_not_this_nodes_is_refused_before_anything_is_written(bench: strict.Bench, bind: str, *, foreign: bool) -> None:
    one = cases.wanted(bench, files={**cases.FILES, "haproxy.cfg": f"frontend a\n    bind {bind}\n"})
    before = bench.tree()
    with pytest.raises(errors.Problem, match="no address of this node") if foreign else contextlib.nullcontext():
        one.preflight(bench.machine, one.actual(bench.machine))
    assert bench.tree() == before


def test_what_cannot_be_loaded_is_put_back(bench: strict.Bench) -> None:
    cases.settle(bench)
    before = bench.machine.text(MAIN)
    with proxy_fake.running(bench, cases.SOCKET, _worker(bench)) as proxy:
        reloads = _plan_reload(bench, proxy, takes=False)
        one = cases.wanted(bench, files={**OTHER, "503-new.http": "HTTP/1.1 503 new\r\n\r\n"})
        with pytest.raises(errors.Problem) as caught:
            _fix(one, bench)
        assert "cannot bind socket" in caught.value.message
        assert bench.machine.text(MAIN) == before
        assert not bench.machine.exists(f"{cases.FOLDER}/503-new.http")
        assert reloads[-1] == _stamp(bench), "and the master was told to take the old ones up again"
        assert _delta(cases.wanted(bench), bench) == {}


def test_the_answers_of_an_instance_that_left_go_and_somebody_elses_file_stays(bench: strict.Bench) -> None:
    cases.settle(bench)
    bench.put(f"{cases.FOLDER}/notes.txt", "mine")
    _fix(cases.wanted(bench, files={"haproxy.cfg": "global\n"}), bench)
    assert bench.machine.names(cases.FOLDER) == ["haproxy.cfg", "notes.txt", "proxy.lua"]


def test_a_folder_in_the_place_of_a_file_is_a_conflict(bench: strict.Bench) -> None:
    bench.folder(MAIN)
    one = cases.wanted(bench)
    with pytest.raises(errors.Problem) as caught:
        one.preflight(bench.machine, one.actual(bench.machine))
    assert caught.value.code == "file-conflict"


@pytest.mark.parametrize("files", [{}, {"proxy.lua": ""}, {"haproxy.cfg": "", "../x": ""}, {"haproxy.cfg": "", "a/b": ""}])
def test_names_that_leave_the_folder_are_refused(bench: strict.Bench, files: dict[str, str]) -> None:
    with pytest.raises(errors.Problem) as caught:
        cases.wanted(bench, files=files)
    assert caught.value.code == "manifest-invalid"
