"""The quota that slows a process: the clock's part of what it would get, whatever else this machine does, and nothing at full clock."""

from __future__ import annotations

import pytest

from tests.lab import places
from tests.lab.simulated import groups, holders, slowing


class Kernel:
    """The counters of one process, in seconds, and what was asked for it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ran = self.waited = self.throttled = 0.0
        self.asked: list[float | None] = []
        patch.setattr(holders, "scheduled", lambda _pid: (self.ran, self.waited))
        patch.setattr(groups, "throttled_s", lambda *_: self.throttled)
        patch.setattr(groups, "slow", lambda _lab, _node, _pid, cores: self.asked.append(cores))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


def run(kernel: Kernel, speed: float, *, ran: float, waited: float = 0.0, throttled: float = 0.0) -> float:
    """The quota in cores after ten seconds at this speed; the figures are of each second."""
    made = slowing.Slowing(places.here({}))
    process = holders.Process(4711, 1, 0, "llama-server", 2, None)
    for second in range(1, 11):
        kernel.ran, kernel.waited, kernel.throttled = (value * second for value in (ran, waited + throttled, throttled))
        made.slow("titan", process, speed, float(second))
    return made.processes[4711].quota


def test_at_full_clock_nothing_is_asked_for(kernel: Kernel) -> None:
    assert run(kernel, 1.0, ran=2.0) == 0
    assert kernel.asked == []


def test_on_a_quiet_machine_it_is_the_clocks_part_of_its_threads(kernel: Kernel) -> None:
    assert run(kernel, 0.5, ran=1.0, throttled=1.0) == pytest.approx(1.0)
    assert kernel.asked == [1.0]


def test_what_others_take_is_taken_off_first(kernel: Kernel) -> None:
    assert run(kernel, 0.5, ran=0.4, waited=0.6, throttled=0.5) == pytest.approx(0.5 * 2 * 0.4, rel=0.05)


def test_one_that_works_now_and_then_is_not_slowed_twice(kernel: Kernel) -> None:
    assert run(kernel, 0.5, ran=0.2) == pytest.approx(1.0)


def test_the_group_goes_when_the_clock_is_free_again_or_the_process_is_gone(kernel: Kernel) -> None:
    made = slowing.Slowing(places.here({}))
    process = holders.Process(4711, 1, 0, "llama-server", 2, None)
    made.slow("titan", process, 0.5, 0.1)
    made.slow("titan", process, 1.0, 0.2)
    made.slow("titan", process, 0.5, 0.3)
    made.forget({})
    assert kernel.asked == [1.0, None, 1.0, None]
    assert made.processes == {}
