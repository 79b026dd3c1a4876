"""Fixtures of the node's tests: a machine under a temporary root with the strict runner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node import strict


@pytest.fixture
def runner() -> Iterator[strict.Runner]:
    one = strict.Runner()
    yield one
    one.verify()


@pytest.fixture
def machine(tmp_path: Path, runner: strict.Runner) -> strict.Machine:
    root = tmp_path / "root"
    root.mkdir()
    return strict.Machine(str(root), runner)


@pytest.fixture
def bench(machine: strict.Machine, runner: strict.Runner) -> strict.Bench:
    return strict.Bench(machine, runner)
