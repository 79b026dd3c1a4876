"""Where a sweep's knee is found, and where there is none: plateaus, noise, floors out of reach, caps that do not bind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattherd.policy import knee

#: (limit, drawn by prefill, its tok/s, drawn by decode, its tok/s): a 3090 as public sweeps show it.
CURVE = (
    (350.0, 348.0, 3000.0, 300.0, 100.0),
    (300.0, 299.0, 2940.0, 289.0, 99.5),
    (250.0, 249.0, 2860.0, 248.0, 98.0),
    (200.0, 200.0, 2500.0, 199.0, 90.0),
    (150.0, 150.0, 1700.0, 150.0, 60.0),
    (100.0, 110.0, 700.0, 109.0, 25.0),
)


def figure(tok_s: float, watts: float, spread: float = 0.002, *, throttled: float | None = None, settled: bool = True) -> knee.Figure:
    return knee.Figure(tok_s, watts, 10.0, spread, "energy counter", throttled_percent=throttled, settled=settled)


def step(limit_w: float, prefill: knee.Figure | None, decode: knee.Figure | None) -> knee.Step:
    return knee.Step("limit_w", limit_w, prefill=prefill, decode=decode)


def curve(spread: float = 0.002) -> list[knee.Step]:
    return [step(limit, figure(pp, pw, spread), figure(tg, tw, spread)) for limit, pw, pp, tw, tg in CURVE]


def test_the_least_energy_that_keeps_the_floor() -> None:
    advice = knee.recommend(curve(), knee.Wish())
    assert advice.step is not None
    assert advice.step.value == 250
    assert advice.reference is not None
    assert advice.reference.value == 350
    prefill, decode = (249 / 2860) / (348 / 3000), (248 / 98.0) / (300 / 100)
    assert advice.saving == pytest.approx(1 - (prefill + decode) / 2)
    kept = dict(advice.kept_percent)
    assert kept["prefill"] == pytest.approx(100 * 2860 / 3000, abs=0.01)
    assert kept["decode"] == pytest.approx(100 * 98 / 100, abs=0.3)


def test_a_lower_floor_goes_further_down() -> None:
    advice = knee.recommend(curve(), knee.Wish(floor_percent=80))
    assert advice.step is not None
    assert advice.step.value == 200


def test_one_phase_alone_can_count() -> None:
    """Prefill falls below 95 % at 200 W, decode only at 90: a floor of 90 for decode alone takes 200 W, both together do not."""
    alone = knee.recommend(curve(), knee.Wish(floor_percent=89, weight="decode"))
    both = knee.recommend(curve(), knee.Wish(floor_percent=89))
    assert alone.step is not None
    assert both.step is not None
    assert (alone.step.value, both.step.value) == (200, 250)
    assert [phase for phase, _ in alone.kept_percent] == ["decode"]


def test_observed_tokens_weigh_the_phases() -> None:
    """With decode alone observed, the saving is decode's own."""
    advice = knee.recommend(curve(), knee.Wish(prefill_tokens=0, decode_tokens=1e6))
    assert advice.step is not None
    chosen = advice.step.decode
    assert chosen is not None
    assert advice.saving == pytest.approx(1 - (chosen.watts / chosen.tok_s) / 3.0)
    assert advice.watts == pytest.approx(chosen.watts)
    assert advice.reference_watts == pytest.approx(300.0)


def test_caps_above_the_plateau_do_nothing_and_that_is_said() -> None:
    flat = [step(limit, figure(3000, 247), figure(100, 230)) for limit in (480.0, 400.0, 320.0)]
    advice = knee.recommend([*flat, step(200.0, figure(2400, 200), figure(93, 199))], knee.Wish())
    assert advice.step is None
    assert advice.plateau_w == 247
    assert any("limits of 320 W and more do nothing" in note and "247 W" in note for note in advice.notes)
    assert "saves more than the measurement's own spread" in advice.reason


def test_a_cap_that_does_not_bind_is_never_recommended() -> None:
    """The draw differs by a hair at two caps that both do nothing: the lower one wins nothing."""
    steps = [step(350.0, figure(3000, 250.3), figure(100, 240.2)), step(300.0, figure(3001, 250.0), figure(100, 240.0))]
    assert knee.recommend(steps, knee.Wish()).step is None


def test_what_lies_within_the_noise_is_no_saving() -> None:
    steps = [step(350.0, figure(3000, 350, 0.02), figure(100, 300, 0.02)), step(330.0, figure(2980, 341, 0.02), figure(99.5, 294, 0.02))]
    assert knee.recommend(steps, knee.Wish()).step is None
    quiet = [step(350.0, figure(3000, 350), figure(100, 300)), step(330.0, figure(2980, 341), figure(99.5, 294))]
    chosen = knee.recommend(quiet, knee.Wish()).step
    assert chosen is not None
    assert chosen.value == 330


def test_of_equal_steps_the_faster_one_wins() -> None:
    """250 and 240 W cost the same energy within the spread: the higher limit is as cheap and no slower."""
    steps = [
        step(350.0, figure(3000, 350, 0.01), figure(100, 300, 0.01)),
        step(250.0, figure(2900, 250, 0.01), figure(98, 245, 0.01)),
        step(240.0, figure(2870, 246, 0.01), figure(97, 241, 0.01)),
    ]
    chosen = knee.recommend(steps, knee.Wish()).step
    assert chosen is not None
    assert chosen.value == 250


def test_a_lucky_best_does_not_move_the_floor() -> None:
    """The fastest of several equal steps is the luckiest measurement; the floor is taken from their mean."""
    steps = [
        step(350.0, figure(1000, 340, 0.02), figure(100, 300, 0.02)),
        step(340.0, figure(1015, 338, 0.02), figure(101.5, 299, 0.02)),
        step(330.0, figure(1002, 330, 0.02), figure(100.2, 295, 0.02)),
        step(250.0, figure(960, 250, 0.02), figure(96, 245, 0.02)),
    ]
    assert knee.best(steps, "prefill") == pytest.approx((1000 + 1015 + 1002) / 3)
    chosen = knee.recommend(steps, knee.Wish()).step
    assert chosen is not None
    assert chosen.value == 250


def test_the_floor_may_be_out_of_reach() -> None:
    """Prefill is best at one step and decode at another, and none keeps both."""
    steps = [step(350.0, figure(3000, 350), figure(80, 300)), step(250.0, figure(2000, 250), figure(100, 245))]
    advice = knee.recommend(steps, knee.Wish())
    assert advice.step is None
    assert "no step keeps 95 % of the best prefill and decode speed at once" in advice.reason


@pytest.mark.parametrize("steps", [[], [step(350.0, figure(3000, 350), None)]])
def test_nothing_whole_to_compare(steps: list[knee.Step]) -> None:
    advice = knee.recommend(steps, knee.Wish())
    assert advice.step is None
    assert "no step was measured whole" in advice.reason


def test_a_single_step_recommends_nothing() -> None:
    advice = knee.recommend(curve()[:1], knee.Wish())
    assert advice.step is None
    assert "only one step" in advice.reason


def test_a_phase_that_does_not_count_may_be_missing() -> None:
    steps = [step(350.0, None, figure(100, 300)), step(250.0, None, figure(98, 245))]
    chosen = knee.recommend(steps, knee.Wish(weight="decode")).step
    assert chosen is not None
    assert chosen.value == 250


def test_clock_ceilings_are_compared_like_limits() -> None:
    steps = [
        knee.Step("clocks_mhz", 1530.0, prefill=figure(900, 240), decode=figure(40, 200)),
        knee.Step("clocks_mhz", 1200.0, prefill=figure(880, 180), decode=figure(39.5, 150)),
        knee.Step("clocks_mhz", 900.0, prefill=figure(650, 140), decode=figure(30, 120)),
    ]
    advice = knee.recommend(steps, knee.Wish())
    assert advice.step is not None
    assert (advice.step.shown, advice.plateau_w) == ("1200 MHz", None)


def test_modes_are_compared_from_the_fastest_down() -> None:
    """A mode's number says nothing of its speed: MAXN may be 0 or 2."""
    steps = [
        knee.Step("mode", 0.0, "15W", figure(300, 14), figure(12, 13)),
        knee.Step("mode", 2.0, "MAXN_SUPER", figure(600, 29), figure(20, 24)),
        knee.Step("mode", 1.0, "25W", figure(590, 20), figure(19.8, 17)),
    ]
    advice = knee.recommend(steps, knee.Wish())
    assert advice.reference is not None
    assert advice.step is not None
    assert (advice.reference.name, advice.step.shown) == ("MAXN_SUPER", "25W")


def test_runs_that_scatter_more_than_steps_could_recommend_nothing() -> None:
    """A floor of 95 % cannot be told from runs that differ by 40 %: neither a knee nor "nothing saves" follows from them."""
    advice = knee.recommend(curve(spread=0.4), knee.Wish())
    assert advice.step is None
    assert not advice.nothing_saves
    assert "equal runs differ" in advice.reason
    assert any("differs by up to 40 %" in note for note in advice.notes)


def test_scatter_does_not_bend_the_floor() -> None:
    steps = [step(350.0, figure(3000, 350, 0.09), figure(100, 300, 0.09)), step(150.0, figure(2700, 150, 0.09), figure(90, 145, 0.09))]
    assert knee.best(steps, "prefill") == 3000
    advice = knee.recommend(steps, knee.Wish())
    assert advice.step is None
    assert advice.nothing_saves


def test_watts_that_never_lay_still_are_told() -> None:
    steps = [step(350.0, figure(3000, 350), figure(100, 300)), step(250.0, figure(2900, 250, settled=False), figure(98, 245))]
    assert any("250 W" in note and "come to rest" in note for note in knee.recommend(steps, knee.Wish()).notes)


def test_a_throttled_step_binds_although_it_draws_less() -> None:
    """Short prefill bursts draw less than the limit on the mean, and the driver's counter tells that it held them back."""
    assert knee.binds(step(300.0, figure(3000, 250, throttled=40.0), None))
    assert not knee.binds(step(300.0, figure(3000, 250, throttled=1.0), None))


LIMITS = st.lists(st.floats(100, 700), min_size=1, max_size=10, unique=True)


@given(LIMITS, st.data())
def test_whatever_was_measured_the_advice_keeps_its_promise(limits: list[float], data: st.DataObject) -> None:
    """The recommended step was measured, keeps the floor in each phase, and takes less energy per token than the reference."""
    rates = st.floats(1, 5000)
    steps = [
        step(limit, figure(data.draw(rates), data.draw(st.floats(5, 700))), figure(data.draw(rates), data.draw(st.floats(5, 700))))
        for limit in limits
    ]
    wish = knee.Wish(floor_percent=data.draw(st.floats(50, 100)))
    advice = knee.recommend(steps, wish)
    assert advice.reason
    if advice.step is not None:
        assert advice.step in steps
        assert all(knee.keeps(advice.step, steps, phase, wish.floor_percent) for phase in knee.PHASES)
        assert 0 < advice.saving < 1
        assert advice.step is not advice.reference


def test_cards_that_work_together_are_judged_by_what_each_may_draw() -> None:
    steps = [
        knee.Step("limit_w", 350.0, prefill=figure(900, 400), decode=figure(40, 390), cards=2),
        knee.Step("limit_w", 150.0, prefill=figure(700, 298), decode=figure(33, 297), cards=2),
    ]
    assert [knee.binds(one) for one in steps] == [False, True]
    assert knee.plateau(steps) == 200.0
    assert "limits of 350 W and more do nothing: this load draws 200 W on each card by itself" in knee.recommend(steps, knee.Wish()).notes
