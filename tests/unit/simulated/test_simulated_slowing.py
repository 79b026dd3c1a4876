"""The quota that slows a process: the clock's part of its threads, and none at full clock."""

from __future__ import annotations

import pytest

from tests.lab import places
from tests.lab.simulated import groups, holders, slowing


class Kernel:
    """What was asked for the process: so many cores, None for all of them, "free" for no group any more."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked: list[float | str | None] = []
        patch.setattr(groups, "slow", lambda _lab, _node, _pid, cores: self.asked.append(cores))
        patch.setattr(groups, "free", lambda _lab, _node, _pid: self.asked.append("free"))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


@pytest.fixture
def process() -> holders.Process:
    return holders.Process(4711, 1, 0, "llama-server", 2, None)


def test_at_full_clock_it_goes_first_and_has_no_quota(kernel: Kernel, process: holders.Process) -> None:
    made = slowing.Slowing(places.here({}))
    made.slow("titan", process, 1.0)
    made.slow("titan", process, 1.0)
    assert kernel.asked == [None]
    assert process.allowed == 2.0


def test_below_it_is_the_clocks_part_of_its_threads(kernel: Kernel, process: holders.Process) -> None:
    made = slowing.Slowing(places.here({}))
    made.slow("titan", process, 0.5)
    made.slow("titan", process, 0.505)
    made.slow("titan", process, 0.6)
    assert kernel.asked == [1.0, pytest.approx(1.2)]
    assert process.allowed == pytest.approx(1.2)


def test_the_group_goes_with_the_process(kernel: Kernel, process: holders.Process) -> None:
    made = slowing.Slowing(places.here({}))
    made.slow("titan", process, 0.5)
    made.slow("titan", process, 1.0)
    made.forget({4711: process})
    assert kernel.asked == [1.0, None]
    made.forget({})
    assert kernel.asked == [1.0, None, "free"]
    assert made.processes == {}
