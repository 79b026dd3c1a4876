"""Rebooting a node: its doors close, what is in flight ends, its servers stop, the waiting mode is left to the boot; only then it goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.node import strict
from tests.node.power import jetson_fake
from tests.node.resources import proxy_fake, systemd_fake
from tests.node.resources.cases import unit as cases
from wattherd import errors, records, resources
from wattherd.node import generations, rebooting
from wattherd.power.jetson import change, nvpmodel, pending
from wattherd.resources import unit

SOCKET = "/run/wattherd-proxy/master.sock"
SERVER = records.replace(cases.wanted("one"), drain={"socket": SOCKET, "server": "smol/llama", "limit_s": "60"})
DOWN = ("systemd-run", "--quiet", "--collect", "--on-active=2", "--timer-property=AccuracySec=100ms", "systemctl", "reboot")


def _worker(current: int = 0, queued: int = 0) -> proxy_fake.Worker:
    return proxy_fake.Worker(220, [proxy_fake.Row("smol/llama", current), proxy_fake.Row("smol/BACKEND", current, queued)])


def _serving(bench: strict.Bench, *units: unit.Unit) -> systemd_fake.Systemd:
    """A node of ours with these units running, and somebody else's beside them."""
    bench.folder("/var/lib/wattherd")
    bench.folder("/run")
    systemd = systemd_fake.Systemd(bench)
    owned = generations.Owned.load(bench.machine)
    for one in units:
        systemd.running(one.name, cases.body(one))
        owned.manage(resources.encode(one, role="server"), absent=True)
    owned.save()
    systemd.packaged("nginx.service", active="active", sub="running", pid=77)
    bench.runner.plan("sync")
    bench.runner.plan(*DOWN)
    return systemd


def _reboot(bench: strict.Bench, *, check: bool = False) -> tuple[Mapping[str, Any], list[str]]:
    told: list[Mapping[str, Any]] = []
    answer = rebooting.reboot(bench.machine, {"verb": "reboot", "check": check}, told.append)
    return answer, [message["words"] for message in told]


def test_a_node_goes_down_only_when_nothing_is_in_flight(bench: strict.Bench) -> None:
    systemd = _serving(bench, SERVER)
    worker = _worker(current=1, queued=2)
    seen: list[tuple[bool, bool]] = []

    def end_one() -> None:
        seen.append((f"stop {cases.NAME}" in systemd.did, DOWN in bench.runner.commands))
        worker.rows[1].current = worker.rows[1].queued = worker.rows[0].current = 0

    bench.machine.on_wait = end_one
    with proxy_fake.running(bench, SOCKET, worker) as proxy:
        answer, words = _reboot(bench)
    assert seen[0] == (False, False), "nothing was stopped while requests were in flight or waiting"
    assert proxy.said[0] == "220 disable frontend smol"
    assert proxy.said[1] == "220 state drain"
    assert f"stop {cases.NAME}" in systemd.did
    assert bench.runner.commands[-2:] == [("sync",), DOWN]
    assert "draining: 2 requests in flight" in words
    assert answer["rebooting"] is True
    assert answer["servers"] == [cases.NAME]
    assert not [one for one in systemd.did if "nginx" in one]


def test_what_stays_in_flight_keeps_the_node_up_and_all_is_served_again(bench: strict.Bench) -> None:
    systemd = _serving(bench, SERVER)
    bench.runner.planned = [one for one in bench.runner.planned if one.argv[0] not in {"sync", "systemd-run"}]
    with proxy_fake.running(bench, SOCKET, _worker(current=3)) as proxy:
        with pytest.raises(errors.Problem) as caught:
            _reboot(bench)
        assert proxy.said == ["220 disable frontend smol", "220 enable frontend smol"]
    assert (caught.value.code, caught.value.context["in_flight"]) == ("drain-timeout", 3)
    assert not systemd.did
    assert sum(bench.machine.waits) == 60


def test_a_reboot_that_cannot_be_asked_for_starts_the_servers_again(bench: strict.Bench) -> None:
    systemd = _serving(bench, SERVER)
    bench.runner.planned = [one for one in bench.runner.planned if one.argv[0] != "systemd-run"]
    bench.runner.plan(*DOWN, code=1, err="Failed to start transient timer unit: no space\n")
    with proxy_fake.running(bench, SOCKET, _worker()) as proxy:
        with pytest.raises(errors.Problem, match="no space"):
            _reboot(bench)
        assert proxy.said[-1] == "220 enable frontend smol"
    assert systemd.did[-1] == f"start {cases.NAME}"


def test_a_node_that_serves_nothing_just_goes(bench: strict.Bench) -> None:
    _serving(bench)
    answer, words = _reboot(bench)
    assert (answer["servers"], answer["pending"], answer["mode"]) == ([], "", "")
    assert words == ["rebooting"]


def test_the_mode_that_waits_is_set_by_the_boot(bench: strict.Bench) -> None:
    _serving(bench)
    jetson_fake.Board(bench, live=())
    change.mode(bench.machine, "10W")
    answer, words = _reboot(bench)
    assert (answer["mode"], answer["pending"], answer["boot"]) == ("40W", "10W", "boot-1")
    assert bench.machine.text(nvpmodel.STATUS) == "pmode:0001 fmode:quiet\n"
    assert "the next boot sets the mode 10W" in words


def test_a_mode_that_the_board_lost_meanwhile_is_not_written(bench: strict.Bench) -> None:
    _serving(bench)
    fake = jetson_fake.Board(bench, live=())
    change.mode(bench.machine, "10W")
    fake.modes = {"MAXN_SUPER": 0, "40W": 4}
    bench.put("/etc/nvpmodel.conf", fake.conf())
    _reboot(bench)
    assert nvpmodel.status(bench.machine) == 4
    assert pending.mode(bench.machine) == ""


def test_a_check_tells_and_touches_nothing(bench: strict.Bench) -> None:
    _serving(bench, SERVER)
    jetson_fake.Board(bench, live=())
    change.mode(bench.machine, "10W")
    before = bench.tree()
    answer, words = _reboot(bench, check=True)
    assert (answer["pending"], answer["servers"], words) == ("10W", [cases.NAME], [])
    assert "rebooting" not in answer
    assert bench.tree() == before
    assert DOWN not in bench.runner.commands


def test_a_stopped_server_is_not_one_to_empty(bench: strict.Bench) -> None:
    systemd = _serving(bench, SERVER)
    systemd.units[cases.NAME].active, systemd.units[cases.NAME].pid = "inactive", 0
    assert _reboot(bench, check=True)[0]["servers"] == []


def test_a_server_without_a_proxy_is_stopped_too(bench: strict.Bench) -> None:
    direct = records.replace(cases.wanted("one"), ready_url="http://127.0.0.1:8080/health", ports=(8080,))
    systemd = _serving(bench, direct)
    answer, _ = _reboot(bench)
    assert answer["servers"] == [cases.NAME]
    assert f"stop {cases.NAME}" in systemd.did
