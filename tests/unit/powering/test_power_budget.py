"""Sums against what feeds them: what counts, what is named as unknown, and limits that would fit, by water-filling."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.powering import boxes
from wattherd.powering import budget, proposal


def part(number: int, watts: float | None, least: float | None = 100) -> budget.Part:
    return budget.Part(uuid=boxes.UUIDS[number], shown=f"card {number}", watts=watts, min_w=least)


def test_a_card_counts_with_its_limit_else_its_default_else_its_most() -> None:
    cards = (boxes.rtx_3090(0), boxes.card("NVIDIA A", 100, 400, None, 1), boxes.card("NVIDIA B", None, None, None, 2))
    made = boxes.planned("power: {cards: {RTX 3090: {limit: 280}}}", boxes.box(*cards))
    load = budget.load("titan", made.cards, 80)
    assert [one.watts for one in load.parts] == [280, 400, None]
    assert load.total_w == 760
    assert load.words == "titan 760 W (280 + 400 + 80 W for the rest)"
    assert load.gaps == ("B GPU-33333333 tells no power limit",)
    assert "power.base_load_w is not set" in budget.load("titan", made.cards, None).gaps


def test_the_largest_come_down_first() -> None:
    loads = [budget.Load(host="titan", parts=(part(0, 450, 150), part(1, 350), part(2, 180, 150)), base_w=100)]
    assert budget.fitting(loads, 900) == {boxes.UUIDS[0]: 310, boxes.UUIDS[1]: 310, boxes.UUIDS[2]: 180}
    assert budget.fitting(loads, 1030) == {boxes.UUIDS[0]: 400, boxes.UUIDS[1]: 350, boxes.UUIDS[2]: 180}


def test_none_below_its_least() -> None:
    loads = [budget.Load(host="titan", parts=(part(0, 600, 400), part(1, 350)), base_w=0)]
    assert budget.fitting(loads, 650) == {boxes.UUIDS[0]: 400, boxes.UUIDS[1]: 250}
    assert budget.fitting(loads, 499) is None
    assert budget.least_w(loads) == 500


def test_what_is_not_in_the_run_or_tells_no_least_stays_as_it_is() -> None:
    away = budget.Load(host="atlas", parts=(part(1, 250),), base_w=50, movable=False)
    here = budget.Load(host="titan", parts=(part(0, 350), part(2, 140, None)), base_w=50)
    assert budget.fitting([here, away], 700) == {boxes.UUIDS[0]: 210}
    assert budget.fitting([here, away], 500) is None
    assert budget.fitting([away], 100) is None


@given(
    cards=st.lists(st.tuples(st.integers(50, 400), st.integers(0, 600)), min_size=1, max_size=12),
    base_w=st.integers(0, 300),
    budget_w=st.integers(1, 6000),
)
def test_a_proposal_always_fits_and_never_raises_or_starves_a_card(cards: list[tuple[int, int]], base_w: int, budget_w: int) -> None:
    parts = tuple(part(number, float(low + more), float(low)) for number, (low, more) in enumerate(cards))
    loads = [budget.Load(host="titan", parts=parts, base_w=float(base_w))]
    found = budget.fitting(loads, budget_w)
    if found is None:
        assert budget.least_w(loads) > budget_w
        return
    assert sum(found.values()) + base_w <= budget_w
    for one in parts:
        assert one.min_w is not None
        assert one.watts is not None
        assert one.min_w <= found[one.uuid] <= one.watts
    lowered = [one for one in parts if found[one.uuid] < (one.watts or 0)]
    assert len({found[one.uuid] for one in lowered} - {one.min_w for one in lowered}) <= 1, "the largest first, all to one level"
    if lowered:
        assert sum(found.values()) + base_w + len(lowered) > budget_w, "one watt more for each that came down would not fit"


def shown(text: str, watts: dict[int, float], cards: int = 2) -> object:
    box = boxes.box(*(boxes.rtx_3090(number) for number in range(cards)))
    written = proposal.text(boxes.asked(text).power, box.gpus, {boxes.UUIDS[number]: value for number, value in watts.items()})
    again = boxes.planned(written, box)
    assert [one.limit_w for one in again.cards] == [watts.get(number, again.cards[number].limit_w) for number in range(cards)]
    return yaml.safe_load(written)["power"]


def test_a_proposal_keeps_what_else_was_written() -> None:
    text = "power: {limit: 80%, clocks: '0,1700', persistence: true, budget_w: 650, base_load_w: 80.5, mode: 25W}"
    assert shown(text, {0: 280, 1: 280}) == {
        "limit": 280,
        "clocks": "0,1700",
        "persistence": True,
        "mode": "25W",
        "base_load_w": 80.5,
        "budget_w": 650,
    }


@pytest.mark.parametrize("entry", ["GPU-22222222", "0000:02:00.0"])
def test_cards_that_differ_get_entries_and_one_that_has_its_own_keeps_it(entry: str) -> None:
    text = f"power: {{limit: efficient, cards: {{'{entry}': {{limit: 350, clocks: '0,1500'}}, RTX 3090: {{limit: 300}}}}}}"
    assert shown(text, {0: 250, 1: 300}) == {
        "limit": "efficient",
        "cards": {entry: {"limit": 300, "clocks": "0,1500"}, "RTX 3090": {"limit": 300}, "GPU-11111111": {"limit": 250}},
    }


def test_one_number_for_all_takes_the_entries_limits_away() -> None:
    text = "power: {cards: {RTX 3090: {limit: 300}, GPU-22222222: {limit: 350, clocks: null}}}"
    assert shown(text, {0: 250, 1: 250}) == {"limit": 250, "cards": {"GPU-22222222": {"clocks": None}}}
