"""Simulated Jetson boards: what they draw in each mode, and that Wattherd's own readers find their way in their files."""

from __future__ import annotations

import json

import pytest

from tests.lab.simulated import board_model, boards, figures
from wattherd.power.jetson import conf, totals

ALL = pytest.mark.parametrize("name", list(figures.boards()))


def full_w(name: str, mode: str) -> float:
    board = boards.board(name)
    clock = next(one.gpu_mhz for one in board.modes if one.name == mode)
    return board_model.step(board, board_model.start(board), board_model.Clocks(306, clock), 1.0, 60).watts


def test_an_orin_nx_draws_what_it_was_measured_with_in_each_mode() -> None:
    assert [round(full_w("orin_nx_16gb", mode), 1) for mode in ("25W", "40W", "MAXN_SUPER")] == [16.9, 27.6, 29.4]
    assert board_model.start(boards.board("orin_nx_16gb")).watts == 4.6


def test_a_lower_mode_is_slower_and_pinned_clocks_cost_watts() -> None:
    board = boards.board("orin_nx_16gb")
    start = board_model.start(board)
    speeds = [board_model.step(board, start, board_model.Clocks(306, mode.gpu_mhz), 1.0, 1).speed for mode in board.modes]
    assert speeds[0] == 1.0
    assert speeds[1] == pytest.approx(612 / 1173)
    free, pinned = (board_model.step(board, start, board_model.Clocks(least, 1122), 0.0, 60) for least in (306, 1122))
    assert pinned.watts > free.watts
    assert (free.gpu_mhz, pinned.gpu_mhz) == (306, 1122)


@ALL
def test_the_readers_of_wattherd_understand_its_conf(name: str) -> None:
    board = boards.board(name)
    read = conf.parse(boards.conf(board))
    assert read.numbers == {mode.name: mode.id for mode in board.modes}
    assert read.default == board.default
    assert read.paths["GPU", "MAX_FREQ"].removeprefix("/sys/") in boards.tree(board)


@ALL
def test_its_rails_add_up_to_what_it_draws(name: str) -> None:
    board = boards.board(name)
    now = board_model.step(board, board_model.start(board), board_model.Clocks(306, board.top_mhz), 0.6, 60)
    total = totals.total(board_model.rails(board, now))
    assert total is not None
    assert total.watts == pytest.approx(now.watts, rel=0.02)


@ALL
def test_what_its_tools_are_told_is_there(name: str) -> None:
    board = boards.board(name)
    files = boards.tree(board)
    told = json.loads(boards.description(board))
    places = [
        f"{told['gpu']}/max_freq",
        told["pwm"],
        *told["zones"].values(),
        *(f"{policy}/scaling_max_freq" for policy in told["policies"]),
    ]
    places += [told[key] for key in ("load", "mask") if told[key]]
    assert [place for place in places if place not in files] == []
    assert told["default"] in {mode.id for mode in board.modes}


def test_the_modes_that_need_a_reboot_gate_the_gpu_otherwise() -> None:
    modes = {mode.name: mode.mask for mode in boards.board("orin_nx_16gb").modes}
    assert modes["MAXN_SUPER"] == modes["25W"] == modes["40W"] == 0
    assert 0 not in {modes["10W"], modes["15W"]}
