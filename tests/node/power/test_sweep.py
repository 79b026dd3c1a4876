"""Settling and measuring by themselves: who comes in between, what lies still, what a window says."""

from __future__ import annotations

import pytest

from tests.node import strict
from tests.node.power import fake, sweeping
from wattherd import errors
from wattherd.power import load, samples, sweep


class Work:
    """A load whose runs take half a second each; clients come and go when a test says so."""

    words = "a load"

    def __init__(self, bench: strict.Bench) -> None:
        self.bench = bench
        self.interruptions = 0
        self.quiet = True
        self.begun_s = bench.machine.clock_s
        self.failed = False

    def begin(self, phase: str, tell: load.Tell) -> None:
        tell(phase)

    def runs(self) -> tuple[load.Run, ...]:
        count = int((self.bench.machine.clock_s - self.begun_s) / 0.5)
        return tuple(load.Run(self.begun_s + at * 0.5, self.begun_s + (at + 1) * 0.5, 50) for at in range(count))

    def check(self) -> None:
        if self.failed:
            raise errors.Problem("tune-load", "it ended")

    def is_quiet(self) -> bool:
        return self.quiet

    def end(self) -> None:
        pass


@pytest.fixture
def cards(bench: strict.Bench) -> fake.Cards:
    return fake.Cards(bench, [fake.Card(draw_w=200.0, energy_mj=None)])


def measurer(bench: strict.Bench, work: Work, told: list[str]) -> sweep.Measurer:
    return sweep.Measurer(sweep.Rig(bench.machine, sweep.LIMIT, [sweeping.UUID]), work, 5.0, told.append)


def test_a_quiet_step_is_measured_once(bench: strict.Bench, cards: fake.Cards) -> None:
    away: list[float] = []
    figure = measurer(bench, Work(bench), []).measure(250.0, lambda: away.append(0))
    assert (figure.tok_s, figure.watts, figure.method) == (100.0, 200.0, "power samples")
    assert away == []
    assert [call for call in cards.set_calls if "-pl" in call] == [("-i", sweeping.UUID, "-pl", "250")]


@pytest.mark.parametrize("at_s", [1.0, 6.0])
def test_a_client_in_the_middle_gets_the_card_back_and_the_step_is_done_again(bench: strict.Bench, cards: fake.Cards, at_s: float) -> None:
    """While it settles, or while it is measured: nothing of that window counts."""
    work, away = Work(bench), list[float]()
    begun_s = bench.machine.clock_s

    def world() -> None:
        now_s = bench.machine.clock_s - begun_s
        if now_s >= at_s and not work.interruptions:
            work.interruptions, work.quiet = 1, False
        if now_s >= at_s + 10:
            work.quiet = True

    bench.machine.on_wait = world
    told: list[str] = []
    figure = measurer(bench, work, told).measure(250.0, lambda: away.append(bench.machine.clock_s - begun_s))
    assert len(away) == 1
    assert at_s <= away[0] < at_s + 2
    assert bench.machine.clock_s - begun_s > at_s + 10 + 5
    assert figure.tok_s == 100.0
    assert len([call for call in cards.set_calls if "-pl" in call]) == 2
    assert any("a client uses the server" in words for words in told)


def test_a_client_that_stays_ends_the_sweep(bench: strict.Bench, cards: fake.Cards) -> None:
    work, away = Work(bench), list[int]()
    work.quiet = False
    with pytest.raises(sweep.Stopped, match="for a minute"):
        measurer(bench, work, []).measure(250.0, lambda: away.append(1))
    assert away == [1]
    assert cards.set_calls == []
    bench.runner.planned.clear()


def test_clients_again_and_again_end_it_too(bench: strict.Bench, cards: fake.Cards) -> None:
    work = Work(bench)

    def world() -> None:
        work.interruptions += 1

    bench.machine.on_wait = world
    away: list[int] = []
    with pytest.raises(sweep.Stopped, match="again and again"):
        measurer(bench, work, []).measure(250.0, lambda: away.append(1))
    assert away == [1]
    assert len(cards.set_calls) == 3


def test_a_load_that_ends_by_itself_ends_the_sweep(bench: strict.Bench, cards: fake.Cards) -> None:
    work = Work(bench)
    bench.machine.on_wait = lambda: setattr(work, "failed", True)
    with pytest.raises(errors.Problem, match="it ended"):
        measurer(bench, work, []).measure(250.0, lambda: None)
    assert cards.set_calls


def test_watts_that_never_lie_still_are_measured_and_marked(bench: strict.Bench, cards: fake.Cards) -> None:
    def world() -> None:
        cards.cards[0].draw_w = 150.0 if cards.cards[0].draw_w == 250.0 else 250.0

    bench.machine.on_wait = world
    figure = measurer(bench, Work(bench), []).measure(300.0, lambda: None)
    assert not figure.settled
    assert figure.watts == pytest.approx(200.0, rel=0.1)


def test_a_card_that_is_lost_ends_the_sweep(bench: strict.Bench, cards: fake.Cards) -> None:
    bench.machine.on_wait = lambda: cards.cards[0].faults.add("lost")
    with pytest.raises(errors.Problem) as caught:
        measurer(bench, Work(bench), []).measure(250.0, lambda: None)
    assert caught.value.code == "card-lost"


# -- pure


def sample(
    at_s: float, watts: float | None, energy_mj: int | None = None, capped_ns: int | None = None, *, capped: bool = False
) -> samples.Sample:
    return samples.Sample(at_s, watts, energy_mj, 1500, 60, capped, capped_ns, 250.0, 250.0)


RUNS = tuple(load.Run(float(at), at + 1.0, 100) for at in range(10))


def test_samples_are_weighted_by_the_time_between_them() -> None:
    """Looks come unevenly: 100 W for nine seconds and 200 W for one are 110 W, whatever the number of samples."""
    seen = [sample(0, 100.0), sample(9, 100.0), sample(9.0001, 200.0), sample(9.5, 200.0), sample(10, 200.0)]
    figure = samples.figure_of(seen, RUNS, settled=True)
    assert figure is not None
    assert figure.watts == pytest.approx(110.0, abs=0.01)


def test_an_energy_counter_comes_before_samples() -> None:
    seen = [sample(0, 999.0, 5_000), sample(10, 999.0, 2_505_000)]
    figure = samples.figure_of(seen, RUNS, settled=True)
    assert figure is not None
    assert (figure.watts, figure.method) == (250.0, "energy counter")


@pytest.mark.parametrize("ends", [5_000, 4_000])
def test_a_counter_that_does_not_move_or_goes_back_is_none(ends: int) -> None:
    """Short windows of a counter that is seldom brought up to date read nought, and a reloaded driver begins anew."""
    figure = samples.figure_of([sample(0, 200.0, 5_000), sample(10, 200.0, ends)], RUNS, settled=True)
    assert figure is not None
    assert (figure.watts, figure.method) == (200.0, "power samples")


def test_the_share_of_throttled_time_is_the_counters() -> None:
    figure = samples.figure_of([sample(0, 200.0, capped_ns=0), sample(10, 200.0, capped_ns=2_500_000_000)], RUNS, settled=True)
    assert figure is not None
    assert figure.throttled_percent == 25.0
    plain = samples.figure_of([sample(at, 200.0, capped=at > 4) for at in range(11)], RUNS, settled=True)
    assert plain is not None
    assert plain.throttled_percent == pytest.approx(54.5)


def test_an_unknown_draw_gives_no_figure_and_never_nought() -> None:
    assert samples.figure_of([sample(0, None), sample(10, None)], RUNS, settled=True) is None


def test_lying_still_takes_time_and_known_watts() -> None:
    still = [sample(at / 2, 200.0 + at % 2) for at in range(8)]
    assert samples.lies_still(still)
    assert not samples.lies_still(still[:3])
    assert not samples.lies_still([*still[:-1], sample(3.5, 230.0)])
    assert not samples.lies_still([*still[:-1], sample(3.5, None)])


def test_one_run_that_was_held_up_moves_neither_speed_nor_spread() -> None:
    runs = [*(load.Run(float(at), at + 1.0, 100) for at in range(4)), load.Run(4.0, 9.0, 100), load.Run(9.0, 10.0, 100)]
    figure = samples.figure_of([sample(0, 200.0), sample(10, 200.0)], runs, settled=True)
    assert figure is not None
    assert (figure.tok_s, figure.spread) == (100.0, 0.002)


def test_the_spread_is_twice_the_error_of_the_mean_or_half_the_drift() -> None:
    steady = [load.Run(float(at), at + 1.0, 100) for at in range(10)]
    assert samples.spread(steady) == pytest.approx(0.002)
    drifting = [load.Run(float(at), at + 1.0, 100 if at < 5 else 90) for at in range(10)]
    assert samples.spread(drifting) == pytest.approx(5 / 95, rel=0.3)
    assert samples.spread(steady[:1]) == 1.0


@pytest.mark.parametrize(
    ("least", "most", "steps", "expected"),
    [
        (100.0, 350.0, 6, (350.0, 300.0, 250.0, 200.0, 150.0, 100.0)),
        (400.0, 600.0, 6, (600.0, 560.0, 520.0, 480.0, 440.0, 400.0)),
        (150.0, 180.0, 8, (180.0, 176.0, 171.0, 167.0, 163.0, 159.0, 154.0, 150.0)),
        (60.0, 70.0, 20, tuple(float(watts) for watts in range(70, 59, -1))),
        (100.0, 329.0, 2, (329.0, 100.0)),
    ],
)
def test_limits_are_whole_watts_from_the_most_to_the_least(least: float, most: float, steps: int, expected: tuple[float, ...]) -> None:
    assert sweep.limits(least, most, steps) == expected


def test_clock_ceilings_end_where_nothing_more_is_saved() -> None:
    found = sweep.clocks(2100, 6)
    assert (found[0], found[-1], len(found)) == (2100.0, 840.0, 6)
    assert all(one % 15 == 0 for one in found)
