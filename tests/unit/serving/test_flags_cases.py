"""Every field case of tests/cases/flags.yaml has a test of its name."""

from __future__ import annotations

import pathlib
import re

import yaml

TESTS = pathlib.Path(__file__).parents[2]


def test_flags_every_case_has_its_test() -> None:
    cases = yaml.safe_load((TESTS / "cases" / "flags.yaml").read_text("utf-8"))["cases"]
    there = {name for path in TESTS.rglob("test_flags_*.py") for name in re.findall(r"def (test_\w+)\(", path.read_text("utf-8"))}
    wanted = {f"test_flags_{case['id'].replace('-', '_')}" for case in cases}
    assert len(wanted) >= 6
    assert wanted <= there
