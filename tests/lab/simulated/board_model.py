"""What a Jetson draws and how fast its GPU runs: from the clocks that stand in its files, which its own tools set.

Watts at full load are those that the board was measured with in its mode, and between modes they go with the third power of the clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tests.lab.simulated import boards

_AMBIENT_C, _FULL_C = 30.0, 68.0
_RISE_S, _FALL_S, _WARM_S = 0.2, 0.4, 15.0
#: Pinned clocks cost this much of an idle board's watts (assumed; ARK found 0.3 W under load).
_PINNED_IDLE = 0.12


@dataclass(frozen=True)
class Clocks:
    """The GPU's least and greatest clock in MHz, as its devfreq files say."""

    least_mhz: float
    most_mhz: float


@dataclass(frozen=True)
class Moment:
    """`speed` is how fast the GPU computes against the board's highest mode."""

    watts: float
    gpu_mhz: float
    load: float
    temperature_c: float
    speed: float


def start(board: boards.Board) -> Moment:
    return Moment(board.idle_w, 306.0, 0.0, _AMBIENT_C + 6, 1.0)


def step(board: boards.Board, was: Moment, clocks: Clocks, busy: float, seconds: float) -> Moment:
    """The board `seconds` later. `busy` is 0 to 1."""
    top = board.top_mhz
    most = min(clocks.most_mhz, top)
    clock = most if busy else min(max(clocks.least_mhz, 0.0), most)
    pinned = clocks.least_mhz >= most
    idle = board.idle_w * (1 + (_PINNED_IDLE if pinned else 0.0))
    target = idle + busy * (_full_w(board, most) - board.idle_w)
    watts = _follow(was.watts, target, seconds, _RISE_S if target > was.watts else _FALL_S)
    warm = _AMBIENT_C + (_FULL_C - _AMBIENT_C) * watts / _full_w(board, top)
    return Moment(watts, clock, busy, _follow(was.temperature_c, warm, seconds, _WARM_S), most / top)


def rails(board: boards.Board, now: Moment) -> dict[str, float]:
    """Watts of each rail."""
    idle = min(now.watts, board.idle_w)
    return {rail.name: idle * rail.idle_share + (now.watts - idle) * rail.load_share for rail in board.rails}


def _full_w(board: boards.Board, mhz: float) -> float:
    exact = next((mode.full_w for mode in board.modes if math.isclose(mode.gpu_mhz, mhz, abs_tol=1)), None)
    if exact is not None:
        return exact
    highest = max(mode.full_w for mode in board.modes)
    return board.idle_w + (highest - board.idle_w) * (mhz / board.top_mhz) ** 3


def _follow(value: float, target: float, seconds: float, constant_s: float) -> float:
    return target + (value - target) * math.exp(-seconds / constant_s)
