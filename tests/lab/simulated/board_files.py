"""A running Jetson's files under /sys, read and written from outside: in place, because they are mounted in the node."""

from __future__ import annotations

import re
from pathlib import Path

from tests.lab.simulated import board_model, boards

_VOLTS_MV = 5000


def clocks(root: Path, board: boards.Board) -> board_model.Clocks:
    folder = root / boards.SYS / board.gpu
    least, most = (_number(folder / name) for name in ("min_freq", "max_freq"))
    return board_model.Clocks(least / 1e6, most / 1e6)


def write(root: Path, board: boards.Board, now: board_model.Moment) -> None:
    base = root / boards.SYS
    _put(base / board.gpu / "cur_freq", round(now.gpu_mhz) * 1_000_000)
    if board.load:
        _put(base / board.load, round(now.load * 1000))
    for zone in range(3):
        _put(base / f"devices/virtual/thermal/thermal_zone{zone}/temp", round((now.temperature_c + zone * 0.4) * 1000))
    watts = board_model.rails(board, now)
    for rail in board.rails:
        drawn_mw = watts[rail.name] * 1000
        folder = base / rail.folder
        if rail.kind == "iio":
            _put(folder / f"in_power{rail.number}_input", round(drawn_mw))
            _put(folder / f"in_voltage{rail.number}_input", _VOLTS_MV)
            _put(folder / f"in_current{rail.number}_input", round(drawn_mw * 1000 / _VOLTS_MV))
        elif rail.kind == "power":
            _put(folder / f"power{rail.number}_input", round(drawn_mw * 1000))
        else:
            _put(folder / f"curr{rail.number}_input", round(drawn_mw * 1000 / _VOLTS_MV))


def _number(path: Path) -> int:
    text = path.read_text().strip()
    return int(text) if re.fullmatch(r"-?\d+", text) else 0


def _put(path: Path, value: int) -> None:
    """One write, shorter or longer than before: a reader never finds an empty file."""
    body = f"{value}\n".encode()
    with path.open("r+b", buffering=0) as stream:
        stream.write(body)
        stream.truncate(len(body))
