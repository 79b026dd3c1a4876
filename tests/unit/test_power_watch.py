"""A watch: one session per host, asked again and again; who hangs holds up nobody, who was lost comes back, Ctrl-C is the proper end."""

from __future__ import annotations

import io
import json
import pathlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.unit import fleet_of_cards as herd
from wattherd import console, errors, inventory
from wattherd.console import power
from wattherd.power import reading
from wattherd.verbs import access, power_status, power_watch, project, watch
from wattherd.wire import fields

HOSTS = "all: {hosts: {titan: {ansible_host: 192.0.2.1}, atlas: {ansible_host: 192.0.2.2}}}\n"
LIMIT_S = 20.0


class Session:
    """An open session of a node whose card draws one watt more each time it is asked; `fails` ends it at that call."""

    def __init__(self, fails: int = 0) -> None:
        self.facts = herd.seen()
        self.orders: list[Mapping[str, Any]] = []
        self.closed = threading.Event()
        self._fails = fails

    def call(self, order: Mapping[str, Any]) -> fields.Document:
        self.orders.append(order)
        if len(self.orders) == self._fails:
            raise errors.Problem("stream-cut", "the connection ended in the middle of the work")
        card = herd.card(draw=reading.Draw(100.0 + len(self.orders)))
        return {"look": fields.plain(reading.Look(cards=(card,))), "samples": {}}

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def reach(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> access.Access:
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory/hosts.yaml").write_text(HOSTS)
    monkeypatch.setenv("WATTHERD_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("WATTHERD_INVENTORY", raising=False)
    monkeypatch.setattr(power_watch, "_AGAIN_S", 0.01)
    monkeypatch.setattr(power_watch, "_FIRST_S", 0.2)
    return access.Access(project=project.Project(tmp_path))


def follow(reach: access.Access, opened: Callable[[inventory.Host], Any], monkeypatch: pytest.MonkeyPatch) -> power_watch.Following:
    monkeypatch.setattr(access.Access, "open", lambda _, host: opened(host))
    return power_watch.Following(reach, project.Selection(), watch.Silent(), every_s=0.02)


def until(following: power_watch.Following, holds: Callable[[power_status.Picture], bool]) -> power_status.Picture:
    """The first picture for which `holds`: awaited on the host threads' own event."""
    with following._change:
        assert following._change.wait_for(lambda: holds(following.picture()), LIMIT_S), "it never came"
    return following.picture()


def drawn(picture: power_status.Picture, host: str) -> float:
    done = picture.hosts.get(host)
    if done is None or done.value is None or done.value.rows[0].draw is None:
        return 0.0
    return done.value.rows[0].draw.watts


def test_one_session_for_each_host_is_asked_again_and_again(reach: access.Access, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: dict[str, list[Session]] = {}

    def enter(host: inventory.Host) -> Session:
        one = Session()
        opened.setdefault(host.name, []).append(one)
        return one

    with follow(reach, enter, monkeypatch) as following:
        until(following, lambda picture: min(drawn(picture, "titan"), drawn(picture, "atlas")) >= 105.0)
    assert [len(sessions) for sessions in opened.values()] == [1, 1]
    assert all(sessions[0].closed.is_set() for sessions in opened.values())
    assert {order["verb"] for order in opened["titan"][0].orders} == {"power"}
    assert {order["looks"] for order in opened["titan"][0].orders} == {1}, "looks are apart by themselves"


def test_a_host_that_hangs_holds_up_nobody(reach: access.Access, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    def enter(host: inventory.Host) -> Session:
        if host.name == "atlas":
            gate.wait(LIMIT_S)
            raise errors.Problem("connect-timeout", "no answer")
        return Session()

    with follow(reach, enter, monkeypatch) as following:
        picture = until(following, lambda picture: drawn(picture, "titan") >= 103.0)
        assert picture.waiting == ("atlas",)
        gate.set()
        picture = until(following, lambda picture: not picture.waiting)
        assert picture.exit_code == 4


def test_a_lost_host_is_told_as_lost_and_comes_back(reach: access.Access, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []
    back = threading.Event()

    def enter(host: inventory.Host) -> Session:
        if host.name == "atlas":
            return Session()
        tries.append(host.name)
        if len(tries) == 1:
            return Session(fails=3)
        if not back.is_set():
            raise errors.Problem("unreachable", "no route to host")
        return Session()

    with follow(reach, enter, monkeypatch) as following:
        picture = until(following, lambda picture: picture.exit_code == 4 and "titan" in picture.hosts)
        lost = picture.hosts["titan"].problem
        assert lost is not None
        assert lost.code in {"stream-cut", "unreachable"}
        back.set()
        picture = until(following, lambda picture: drawn(picture, "titan") > 0 and drawn(picture, "atlas") > 0)
        assert picture.exit_code == 0
    assert len(tries) >= 2


def test_a_defect_of_one_host_is_its_value(reach: access.Access, monkeypatch: pytest.MonkeyPatch) -> None:
    def enter(host: inventory.Host) -> Session:
        if host.name == "titan":
            raise ValueError("odd")
        return Session()

    with follow(reach, enter, monkeypatch) as following:
        picture = until(following, lambda picture: not picture.waiting)
        problem = picture.hosts["titan"].problem
    assert problem is not None
    assert (problem.code, problem.message) == ("internal", "ValueError: odd")


# -- how it looks


class Shown:
    """Stands where Following does: one picture, and Ctrl-C after so many."""

    def __init__(self, picture: power_status.Picture, rounds: int) -> None:
        self._picture = picture
        self._left = rounds

    def picture(self) -> power_status.Picture:
        return self._picture

    def wait(self, seconds_s: float) -> None:
        assert seconds_s == 5.0
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt


def watched(out: console.Screen, picture: power_status.Picture, rounds: int) -> int:
    return power.watched(out, Shown(picture, rounds), every_s=5.0)  # type: ignore[arg-type]


def test_under_json_each_picture_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert watched(console.Screen(as_json=True), herd.picture(), 3) == 6
    lines = capsys.readouterr().out.splitlines()
    assert [set(json.loads(one)) for one in lines] == [{"cards", "hosts", "idle_waste"}] * 3


def test_without_a_terminal_pictures_follow_each_other() -> None:
    out = console.Screen()
    out.out.file = written = io.StringIO()
    waiting = power_status.Picture(hosts=herd.picture().hosts, waiting=("late",))
    assert watched(out, waiting, 2) == 6
    told = written.getvalue()
    assert told.count("every 5.0 s; Ctrl-C ends") == 2
    assert told.count("wrong: atlas 0 RTX 3090 (drift)") == 2
    assert told.count("not answered yet: late") == 2


def test_figures_that_are_old_are_called_so() -> None:
    row = herd.rows("titan", herd.card())
    old = power_status.Picture(hosts={"titan": herd.well(*row, seen_s=-1e6)})
    out = console.Screen()
    out.out.file = written = io.StringIO()
    watched(out, old, 1)
    assert "titan: these are figures of " in written.getvalue()
    assert "it has not answered since" in written.getvalue()


def test_on_a_terminal_the_end_stays_and_the_top_goes() -> None:
    out = console.Screen()
    out.out._width, out.out._height, out.out._force_terminal = 80, 10, True
    out.out.file = io.StringIO()
    with out:
        out.picture([(f"line {at}", "") for at in range(50)])
        drawn_now = out._render()
    assert len(drawn_now.rows) == 9
    cells = list(drawn_now.columns[0].cells)
    assert str(cells[-1]) == "line 49"
