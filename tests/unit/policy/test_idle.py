"""Idle power is what looks agree on; what holding a card wastes is measured on that card; what wakes a model is not polled."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest

from tests import power_cases
from wattherd.policy import idle, unload


def looks(*watts: float | None, busy: int | None = 0) -> list[idle.Sample]:
    return [idle.Sample(one, busy) for one in watts]


def test_a_draw_that_still_falls_is_not_idle_power() -> None:
    falling = (242.0, 145.0, 66.0, 65.0, 51.0, 37.0, 36.5, 36.0)  # an L40S after it was woken: the field fact's own figures
    told = [idle.rest(looks(*falling[: count + 1])) for count in range(len(falling))]
    assert [one.watts for one in told] == [None] * 7 + [36.0]
    assert told[0].why == "looked at too few times to call it idle power"
    assert told[4].why == "its draw has not settled yet (66, 65, 51 W)"
    assert all(one.busy is False for one in told)


@pytest.mark.parametrize(
    ("samples", "watts", "busy", "why"),
    [
        ([], None, None, "does not say what it draws"),
        (looks(50.0, 50.0, None), None, None, "does not say what it draws"),
        (looks(50.0, 50.0, 50.0, busy=None), None, None, "does not say how busy"),
        (looks(50.0, 50.0, 50.0, busy=97), None, True, "at work"),
        ([*looks(50.0, 50.0), *looks(50.0, busy=12)], None, True, "at work"),
        ([*looks(300.0, busy=99), *looks(50.0, 52.0, 51.0)], 50.0, False, ""),
        ([*looks(50.0, None, 50.0)], None, False, "too few times"),
        (looks(9.0, 11.0, 10.0), 9.0, False, ""),
        (looks(9.0, 11.5, 10.0), None, False, "has not settled"),
        (looks(50.0, 55.0, 52.0, busy=2), 50.0, False, ""),
    ],
)
def test_what_looks_come_to(samples: list[idle.Sample], watts: float | None, busy: bool | None, why: str) -> None:
    told = idle.rest(samples)
    assert (told.watts, told.busy) == (watts, busy)
    assert why in told.why
    assert bool(told.why) == (watts is None)


def test_what_a_card_draws_empty_is_the_lowest_ever_seen() -> None:
    assert idle.lowest(None, None) is None
    assert idle.lowest(None, 0.0) == 0.0
    assert idle.lowest(9.5, None) == 9.5
    assert idle.lowest(9.5, 11.0) == 9.5


def test_waste_is_exact_and_nothing_within_what_two_looks_may_differ() -> None:
    assert idle.waste_w(50.1, 9.9) == Decimal("40.200")
    assert idle.kwh_per_year(Decimal("40.200")) == Decimal("352.152")
    assert idle.waste_w(11.0, 9.0) == 0
    assert idle.waste_w(78.0, 72.0) == 0, "an H200 at rest reads anything from 70 to 78 W"
    assert idle.waste_w(20.0, 50.0) == 0, "drawing less than empty is no negative waste"


def test_a_poll_that_wakes_a_model_is_known_as_one() -> None:
    """plan-metrics-poll-wakes-model: every request of the field's log, judged."""
    told = power_cases.case("plan-metrics-poll-wakes-model")
    asked = re.findall(r"(?:GET |then )(/\S+)", told.input)
    assert asked == ["/v1/models", "/metrics?model=m", "/v1/models", "/metrics?model=m&autoload=false"]
    assert [idle.wakes(path, router=True) for path in asked] == [False, True, False, True], "unknown version: assumed to wake"
    assert [idle.wakes(path, build=11434, router=True) for path in asked] == [False, True, False, False]
    assert not any(idle.wakes(path) for path in ("/health", "/props", "/v1/models"))
    assert all(idle.wakes(path, build=99999) for path in ("/slots", "/lora-adapters", "/tokenize", "/v1/chat/completions", "/", ""))


@pytest.mark.parametrize(("build", "wakes"), [(0, True), (9093, True), (11433, True), (11434, False), (12000, False)])
def test_counters_are_read_only_from_builds_that_were_tried(build: int, wakes: bool) -> None:
    assert idle.wakes("/metrics", build=build) is wakes
    assert idle.wakes("/slots", build=build) is True


def test_a_page_of_a_router_that_is_passed_on_or_reloads_is_not_harmless() -> None:
    assert idle.wakes("/props?model=m", build=12000, router=True)
    assert idle.wakes("/models?reload=1", build=12000, router=True)
    assert idle.wakes("/metrics?model=m&autoload=true", build=12000, router=True)
    assert idle.wakes("/metrics?model=autoload=false&autoload=true", build=12000, router=True)


def test_a_sleeping_server_that_keeps_its_context_saves_nothing() -> None:
    """plan-sleep-leaves-context: 90 W asleep, 5 W without a process."""
    told = power_cases.case("plan-sleep-leaves-context")
    asleep, empty = (float(one) for one in re.findall(r"(\d+) W", told.input))
    words = unload.left_by_sleep(asleep, empty)
    assert "no saving: 85 W still go into the card" in words
    assert "the process must end (unload it in router mode, stop its unit)" in words
    assert "85 W still spent" in told.expect
    assert unload.left_by_sleep(5.4, empty) == "", "a card that did come to rest is not complained of"
    assert "still holds the card" in unload.left_by_sleep(asleep, None), "without a measurement no figure is claimed"
