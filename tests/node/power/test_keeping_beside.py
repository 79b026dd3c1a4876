"""The keeper beside sessions, sweeps and systemd; and on a Jetson."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node import strict
from tests.node.power import jetson_fake
from tests.node.power.keeping import A, Node
from wattherd import store
from wattherd.node import keep
from wattherd.power import drift, epoch, health, pending, tuning_record, wanted


@pytest.fixture
def node(bench: strict.Bench) -> Node:
    return Node(bench)


@contextlib.contextmanager
def session(node: Node) -> Iterator[None]:
    with open(node.bench.machine.path(store.LOCK), "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def test_a_session_at_work_goes_first(node: Node) -> None:
    one = node.begin(limit_w=200.0)
    writes = node.writes
    with session(node):
        one.requested_w = 120.0  # power-tune tries a limit
        wait_s = node.keeper.round()
        assert (one.requested_w, node.writes, wait_s) == (120.0, writes, 5.0)
        one.requested_w = 200.0
    node.round()
    assert (node.record.drifts, node.writes) == ((), writes)


class Enough(BaseException):
    """Ends the loop that never ends."""


def test_a_round_that_fails_is_told_of_and_the_next_one_comes(node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Here something else lies where its records belong; systemd hears of each round all the same."""
    one = node.begin(limit_w=200.0)
    one.requested_w = 280.0
    state = Path(node.bench.machine.path(wanted.STATE))
    gone = state.rename(tmp_path / "gone")
    state.touch()
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind(str(tmp_path / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))

    def world() -> None:
        if len(node.bench.machine.waits) == 2:
            state.unlink()
            gone.rename(state)
        if one.requested_w == 200.0:
            raise Enough

    node.bench.machine.waits.clear()
    node.bench.machine.on_wait = world
    with pytest.raises(Enough):
        node.keeper.run()
    assert [words for words in node.said if "this round failed" in words]
    assert (told.recv(99), told.recv(99)) == (b"READY=1", b"WATCHDOG=1")


@pytest.mark.parametrize(
    ("asked", "seconds"), [("", 20.0), ("1", 1.0), ("0", 20.0), ("0.1", 0.5), ("1e9", 20.0), ("soon", 20.0), ("nan", 20.0)]
)
def test_the_interval_of_the_environment_is_bounded(asked: str, seconds: float) -> None:
    assert keep.interval_s(asked) == seconds


def test_the_lock_names_the_keeper_while_it_has_it(node: Node) -> None:
    node.begin(limit_w=200.0)
    node.cards.cards[0].requested_w = 280.0
    node.round()
    assert node.bench.machine.text(store.LOCK) == str(os.getpid())


def test_a_living_sweep_owns_its_cards_and_what_a_dead_one_left_is_put_back_first(node: Node) -> None:
    one = node.begin(limit_w=200.0, persistence=True)
    before = tuning_record.Before(limit_w=200.0, persistence=True, sets=("limit_w",))
    machine = node.bench.machine
    tuning_record.write(machine, tuning_record.Record(machine.boot_id(), epoch.current(machine), cards={A: before}))
    one.requested_w = 120.0
    with tuning_record.hold(machine):
        node.round(3)
        assert one.requested_w == 120.0
    node.round()
    assert one.requested_w == 200.0
    assert not machine.exists(tuning_record.RECORD)
    assert node.record.drifts == (), "it was nobody's drift"
    assert "a sweep of power limits did not end" in node.said[0]


# -- a Jetson


@pytest.fixture
def board(bench: strict.Bench) -> jetson_fake.Board:
    one = jetson_fake.Board(bench)
    bench.folder(wanted.FOLDER)
    return one


def keeper(bench: strict.Bench, **chosen: Any) -> keep.Keeper:
    bench.put(wanted.POLICY, wanted.encode(wanted.Policy(board=wanted.BoardPolicy(**chosen))))
    one = keep.Keeper(bench.machine, say=lambda _: None)
    one.round()
    return one


def test_a_board_is_held_to_its_mode_clocks_and_fan(bench: strict.Bench, board: jetson_fake.Board) -> None:
    one = keeper(bench, mode="15W", pinned=True, fan="cool")
    assert (board.mode, board.is_pinned, board.fan) == ("15W", True, "cool")
    board.mode = "25W"
    board.set_clocks(115200, 1984000)
    one.round()
    assert (board.mode, board.is_pinned) == ("15W", True)
    record = drift.load(bench.machine)
    assert {row.setting: row.total for row in record.drifts} == {"mode": 1, "pinned": 1}
    assert not any(row.is_open for row in record.drifts)


def test_a_mode_that_waits_for_a_reboot_is_asked_for_once(bench: strict.Bench, board: jetson_fake.Board) -> None:
    board.live = ("40W",)
    one = keeper(bench, mode="15W")
    for _ in range(5):
        one.round()
    assert board.asked.count("15W") == 1
    assert drift.load(bench.machine).drifts == ()


def test_a_board_goes_back_to_what_it_was_when_nobody_confirms(bench: strict.Bench, board: jetson_fake.Board) -> None:
    text = wanted.encode(wanted.Policy(board=wanted.BoardPolicy(mode="15W", pinned=True, fan="cool"), confirm_s=30))
    pending.begin(bench.machine, text, health.Vitals())
    bench.put(wanted.POLICY, text)
    one = keep.Keeper(bench.machine, say=lambda _: None)
    one.round()
    assert (board.mode, board.is_pinned, board.fan) == ("15W", True, "cool")
    bench.machine.wait(31.0)
    one.round()
    assert (board.mode, board.is_pinned, board.fan) == ("40W", False, "quiet")
    assert pending.current(bench.machine) is None
    assert not bench.machine.exists(pending.PLACE)
