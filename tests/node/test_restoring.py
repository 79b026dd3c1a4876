"""`power-restore` on a Jetson: its mode, its clocks and its fan go back too, and a mode that takes a reboot is not called done."""

from __future__ import annotations

from typing import Any

import pytest

from tests.node import strict
from tests.node.power import jetson_fake
from wattherd import machine as machines
from wattherd.node import restoring
from wattherd.power import memory
from wattherd.resources import base, jetson


def put(bench: strict.Bench, *made: jetson.Jetson) -> None:
    for one in made:
        one.fix(bench.machine, base.delta(one.wanted(), one.actual(bench.machine)), bench.tell)


def restored(bench: strict.Bench, *, check: bool = False) -> tuple[list[dict[str, Any]], dict[str, int]]:
    said: list[dict[str, Any]] = []
    counts = restoring.restore(bench.machine, lambda message: said.append(dict(message)), check=check)
    return said, dict(counts)


@pytest.fixture
def board(bench: strict.Bench) -> jetson_fake.Board:
    bench.folder("/var/lib/wattherd")
    return jetson_fake.Board(bench)


def test_a_board_goes_back_to_its_mode_and_clocks(bench: strict.Bench, board: jetson_fake.Board) -> None:
    put(bench, jetson.Jetson("mode", "25W"), jetson.Jetson("pinned", "yes"), jetson.Jetson("fan", "cool"))
    assert (board.mode, board.is_pinned, board.fan) == ("25W", True, "cool")
    before = bench.tree()
    foreseen, _ = restored(bench, check=True)
    assert bench.tree() == before
    said, counts = restored(bench)
    ids = ["jetson:pinned", "jetson:mode", "jetson:fan"]
    assert [one["id"] for one in foreseen if one["event"] == "would_change"] == ids
    assert [one["id"] for one in said if one["event"] == "changed"] == ids
    assert next(one for one in said if one["id"] == "jetson:mode")["delta"] == {"mode": ("25W", "40W")}
    assert (board.mode, board.is_pinned, board.fan) == ("40W", False, "quiet")
    assert counts == {"ok": 0, "changed": 3, "failed": 0, "skipped": 0}
    assert memory.before(bench.machine) == {}
    assert "nothing to go back to" in restored(bench)[0][0]["words"]


def test_a_mode_that_takes_a_reboot_is_said_and_not_called_changed(bench: strict.Bench, board: jetson_fake.Board) -> None:
    put(bench, jetson.Jetson("mode", "25W"))
    board.live = ("25W",)
    said, counts = restored(bench)
    assert counts == {"ok": 0, "changed": 0, "failed": 0, "skipped": 1}
    assert "40W comes back with the next boot" in next(one["reason"] for one in said if one["event"] == "skipped")
    assert board.mode == "25W"


def test_a_board_that_refuses_is_a_failure_of_that_setting(bench: strict.Bench, board: jetson_fake.Board) -> None:
    put(bench, jetson.Jetson("mode", "25W"), jetson.Jetson("pinned", "yes"))
    board.answer = machines.Result(1, b"NVPM ERROR: something odd\n", b"")
    said, counts = restored(bench)
    assert (counts["failed"], counts["changed"]) == (1, 1)
    assert next(one["problem"]["code"] for one in said if one["event"] == "failed") == "mode-failed"
    assert "mode" in memory.before(bench.machine)[memory.BOARD], "the next restore goes on"
