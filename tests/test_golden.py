"""Every golden is current: roles rendered against recorded facts give the committed text, to the character."""

from __future__ import annotations

import pathlib

import pytest

from tests import goldens


@pytest.mark.parametrize("case", goldens.cases(), ids=lambda case: case.name)
def test_golden_is_current(case: pathlib.Path) -> None:
    name, text = goldens.render(case)
    kept = case / name
    assert kept.exists(), f"{case.name} gives {name}, which is not there: invoke golden"
    assert kept.read_text() == text, f"{case.name}/{name} is not current: invoke golden, then read the difference"


def test_there_are_goldens() -> None:
    assert len(goldens.cases()) >= 4
