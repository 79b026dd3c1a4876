"""Every golden is current: roles rendered against recorded facts give the committed text, to the character."""

from __future__ import annotations

import pathlib

import pytest

from tests import goldens, hardware


@pytest.mark.parametrize("case", goldens.cases(), ids=lambda case: case.name)
def test_golden_is_current(case: pathlib.Path) -> None:
    name, text = goldens.render(case)
    kept = case / name
    assert kept.exists(), f"{case.name} gives {name}, which is not there: invoke golden"
    assert kept.read_text() == text, f"{case.name}/{name} is not current: invoke golden, then read the difference"


def test_there_are_goldens() -> None:
    assert len(goldens.cases()) >= 4


@pytest.mark.parametrize("name", hardware.files())
def test_the_power_golden_of_every_card_and_board_is_current(name: str) -> None:
    path = hardware.files()[name]
    assert path.exists(), f"{path.name} is not there: invoke golden"
    assert path.read_text() == hardware.render(name), f"{path.name} is not current: invoke golden, then read the difference"


def test_every_card_and_board_has_a_power_golden_and_no_file_is_left_over() -> None:
    assert len(hardware.files()) == 27 + 8
    assert {path.name for path in hardware.FOLDER.glob("*.json")} == {path.name for path in hardware.files().values()}
