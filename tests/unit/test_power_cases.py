"""Every field case on power is fed to the code by some test."""

from __future__ import annotations

import pathlib

import pytest

from tests import power_cases

_TESTS = pathlib.Path(__file__).resolve().parent.parent
_TEXTS = {path: path.read_text() for path in _TESTS.rglob("test_*.py") if path != pathlib.Path(__file__).resolve()}


def test_there_are_all_of_them() -> None:
    assert len(power_cases.cases()) == 46


@pytest.mark.parametrize("name", sorted(power_cases.cases()))
def test_a_case_is_fed_to_the_code_by_a_test(name: str) -> None:
    assert any(f'case("{name}")' in text or (f'"{name}"' in text and "power_cases" in text) for text in _TEXTS.values())
