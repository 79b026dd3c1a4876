"""What the power keys of a host come to on its own cards and board: watts, names, precedence, what is refused and what is said."""

from __future__ import annotations

import re

import pytest

from tests import power_cases
from tests.unit.powering import boxes
from wattherd import errors
from wattherd.powering import cards, plan
from wattherd.wire import facts

ONE, TWO = boxes.UUIDS[:2]
TITAN = boxes.box(boxes.rtx_3090(0), boxes.rtx_3090(1))


def limits(made: plan.Plan) -> list[float | None]:
    return [one.limit_w for one in made.cards]


def refused(text: str, told: facts.Facts = TITAN) -> errors.Problem:
    with pytest.raises(errors.Problem) as caught:
        boxes.planned(text, told)
    return caught.value


def test_plan_5090_floor() -> None:
    """Field case: 60 % of each card's own default, never below what that card takes, and said where it was raised."""
    case = power_cases.case("plan-5090-floor")
    share = re.search(r"(\d+) % of default", case.input)
    rows = re.findall(r"GPU (RTX [\w ]+?): default (\d+), min (\d+), max (\d+)", case.input)
    assert share is not None
    assert len(rows) == 3
    told = boxes.box(
        *(
            boxes.card(f"NVIDIA GeForce {name}", float(low), float(high), float(default), number)
            for number, (name, default, low, high) in enumerate(rows)
        )
    )
    made = boxes.planned(f"power: {{limit: {share[1]}%}}", told)
    assert limits(made) == [400, 210, 150]
    assert made.doubts == (
        "RTX 5090: 60 % of 600 W is 360 W, below what this card takes: 400 W",
        "RTX 5060 Ti: 60 % of 180 W is 108 W, below what this card takes: 150 W",
    )
    assert all(f"{watts} W" in case.expect for watts in (400, 210, 150))
    for one in made.cards:
        assert one.card.power_min_w is not None
        assert one.limit_w is not None
        assert one.card.power_min_w <= one.limit_w <= (one.card.power_max_w or 0)


@pytest.mark.parametrize(
    ("percent", "low", "high", "default", "watts"),
    [
        (83, 150, 180, 180, 150),  # 149.4 W would be refused by the card
        (80, 100, 350, 350, 280),
        (33.3, 100, 350, 350, 117),
        (100, 100, 350, 350, 350),
        (120, 100, 390, 350, 390),
        (50, 99.5, 350.4, 200, 100),
        (100, 100, 349.6, 349.6, 349),
    ],
)
def test_per_cent_are_whole_watts_within_the_range(percent: float, low: float, high: float, default: float, watts: float) -> None:
    made = boxes.planned(f"power: {{limit: {percent}%}}", boxes.box(boxes.card("NVIDIA X", low, high, default)))
    assert limits(made) == [watts]


def test_per_cent_of_an_unknown_default_are_skipped_with_the_reason() -> None:
    made = boxes.planned("power: {limit: 80%, clocks: '0,2000'}", boxes.box(boxes.card("NVIDIA GB10", None, None, None)))
    rows = {row.setting: row for row in made.cards[0].rows}
    assert rows["limit_w"].unfit.startswith("GB10 tells no default power limit, so 80 % of it is unknown")
    assert rows["clocks_mhz"].value == (0, 2000)
    assert made.policy.cards[ONE].limit_w is None
    assert made.policy.cards[ONE].clocks_mhz == (0, 2000)


def test_watts_outside_the_range_are_refused_for_every_card_at_once() -> None:
    problem = refused("power: {limit: 90, cards: {GPU-22222222: {limit: 400}}}")
    assert problem.code == "power-range"
    assert (
        problem.message == "titan: RTX 3090 GPU-11111111 takes 100 to 350 W, not 90 W; RTX 3090 GPU-22222222 takes 100 to 350 W, not 400 W"
    )
    assert "within that range" in problem.hint


@pytest.mark.parametrize(("low", "high", "said"), [(None, 140, "at most 140 W"), (100, None, "at least 100 W")])
def test_a_range_of_which_one_end_is_known(low: float | None, high: float | None, said: str) -> None:
    watts = 50 if high is None else 500
    assert said in refused(f"power: {{limit: {watts}}}", boxes.box(boxes.card("NVIDIA RTX A4000", low, high, 140))).message


def test_watts_on_a_card_that_tells_nothing_are_left_to_the_node() -> None:
    assert limits(boxes.planned("power: {limit: 250}", boxes.box(boxes.card("NVIDIA GeForce RTX 2080 Ti", None, None, None)))) == [250]


def test_the_nearest_entry_wins_and_the_rest_stays() -> None:
    text = """
    power:
      limit: 80%
      clocks: 0,1700
      temperature_c: 80
      cards:
        RTX 3090: {limit: 300}
        GPU-22222222: {limit: 250, clocks: null}
    """
    made = boxes.planned(text, TITAN)
    assert limits(made) == [300, 250]
    assert [made.policy.cards[uuid].clocks_mhz for uuid in (ONE, TWO)] == [(0, 1700), ()]
    assert [made.policy.cards[uuid].temperature_c for uuid in (ONE, TWO)] == [80, 80]


def test_a_longer_product_name_is_nearer_than_a_shorter() -> None:
    text = "power: {cards: {'3090': {limit: 300}, 'GeForce RTX 3090': {limit: 200}}}"
    assert limits(boxes.planned(text, TITAN)) == [200, 200]


@pytest.mark.parametrize(
    ("name", "product", "fits"),
    [
        ("RTX 3090", "NVIDIA GeForce RTX 3090", True),
        ("rtx 3090", "GeForce RTX 3090", True),
        ("3090", "NVIDIA GeForce RTX 3090", True),
        ("RTX 3090", "NVIDIA GeForce RTX 3090 Ti", False),
        ("RTX 3090 Ti", "NVIDIA GeForce RTX 3090 Ti", True),
        ("RTX 2080", "NVIDIA GeForce RTX 2080 SUPER", False),
        ("RTX 4090", "NVIDIA GeForce RTX 4090 Laptop GPU", False),
        ("RTX 4090", "NVIDIA GeForce RTX 4090 D", False),
        ("P40", "Tesla P40", True),
        ("P4", "Tesla P40", False),
        ("A100", "NVIDIA A100-SXM4-80GB", True),
        ("V100", "Tesla V100-SXM2-16GB", True),
        ("H100", "NVIDIA H100 80GB HBM3", True),
        ("H100", "NVIDIA H200", False),
        ("L40", "NVIDIA L40S", False),
        ("RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell Server Edition", True),
        ("RTX PRO 6000 Blackwell", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", False),
        ("RTX 6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", False),
        ("RTX 6000", "NVIDIA RTX 6000 Ada Generation", False),
        ("NVIDIA", "NVIDIA H200", False),
    ],
)
def test_which_products_a_name_means(name: str, product: str, *, fits: bool) -> None:
    assert cards.fits(name, boxes.card(product, None, None, None)) is fits


@pytest.mark.parametrize("bus", ["0000:02:00.0", "00000000:02:00.0", "02:00.0", "02:00", "0000:02:00"])
def test_a_bus_as_every_tool_writes_it(bus: str) -> None:
    assert limits(boxes.planned(f"power: {{cards: {{'{bus}': {{limit: 250}}}}}}", TITAN)) == [None, 250]


def test_a_mistyped_uuid_names_the_nearest() -> None:
    slip = TWO.replace("2222-2222", "2223-2222", 1)
    problem = refused(f"power: {{cards: {{{slip}: {{limit: 250}}}}}}")
    assert problem.code == "card-unknown"
    assert problem.message == f"titan: power.cards: no card here is '{slip}'"
    assert problem.hint == f"did you mean '{TWO}'?"
    assert refused("power: {cards: {GPU-22222232: {limit: 250}}}").hint == f"did you mean '{TWO}'?"


def test_a_uuid_of_another_box_is_told_from_a_slip() -> None:
    problem = refused("power: {cards: {GPU-abcdef01: {limit: 250}}}")
    assert problem.code == "card-unknown"
    assert ONE in problem.hint
    assert "host_vars" in problem.hint


def test_a_whole_uuid_that_resembles_none_is_left_to_the_node_which_knows_lost_cards() -> None:
    lost = "GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
    made = boxes.planned(f"power: {{limit: 80%, cards: {{{lost}: {{limit: 250}}}}}}", TITAN)
    assert limits(made) == [280, 280, 250]
    assert made.policy.cards[lost].limit_w == 250


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("power: {cards: {'0000:09:00.0': {limit: 250}}}", "no card here is '0000:09:00.0'"),
        (f"power: {{cards: {{GPU-11111111: {{limit: 250}}, {ONE}: {{limit: 240}}}}}}", "are both RTX 3090 GPU-11111111"),
        ("power: {cards: {GPU-11111111: {limit: 250}, '01:00.0': {limit: 240}}}", "are both RTX 3090 GPU-11111111"),
        ("power: {cards: {'RTX 3090': {limit: 250}, 'NVIDIA RTX 3090': {limit: 240}}}", "are both RTX 3090"),
    ],
)
def test_an_entry_that_cannot_be_meant(text: str, said: str) -> None:
    problem = refused(text)
    assert problem.code == "card-unknown"
    assert said in problem.message


def test_a_beginning_that_two_cards_share() -> None:
    twin = facts.Gpu("0000:02:00.0", "nvidia", "NVIDIA GeForce RTX 3090", ONE[:-1] + "2")
    problem = refused("power: {cards: {GPU-11111111: {limit: 250}}}", boxes.box(boxes.rtx_3090(), twin))
    assert "'GPU-11111111' is the beginning of 2 cards" in problem.message


def test_a_product_that_is_not_here_is_fine() -> None:
    made = boxes.planned("power: {limit: 80%, cards: {P40: {limit: 200}}}", TITAN)
    assert limits(made) == [280, 280]
    assert made.unmatched == ("P40",)


def test_plan_lock_min_clock_wastes_idle() -> None:
    """Field case: a raised least clock keeps the card awake all day; it is said, with what caps all the same."""
    case = power_cases.case("plan-lock-min-clock-wastes-idle")
    ranges = re.findall(r"(\d{3,4}),(\d{4})", case.input)
    assert ranges == [("1860", "1860"), ("210", "1950")]
    for least, most in ranges:
        made = boxes.planned(f"power: {{clocks: '{least},{most}'}}", boxes.box(boxes.card("NVIDIA GeForce RTX 3090 Ti", 100, 450, 450)))
        (words,) = made.doubts
        assert words.startswith(f"RTX 3090 Ti: clocks '{least},{most}' raises the least clock to {least} MHz, so the card never sleeps")
        assert f"'0,{most}' caps it all the same" in words
        assert made.policy.cards[ONE].clocks_mhz == (int(least), int(most)), "warned about, not bent"
    assert "(0,max)" in case.expect
    assert boxes.planned("power: {clocks: '0,1860'}", TITAN).doubts == ()


def test_a_raised_memory_clock_is_said_too() -> None:
    assert "memory_clocks '5001,9501' raises the least clock" in boxes.planned("power: {memory_clocks: '5001,9501'}", TITAN).doubts[0]


def test_nvp_choose_by_name() -> None:
    """Field case, the controller's half: a name means that mode on every board, whatever its number there."""
    case = power_cases.case("nvp-choose-by-name")
    board_a = boxes.board(*re.findall(r"ID=\d+ NAME=(\w+)", case.input))
    listed = re.search(r"board B: (.+)", case.input)
    assert listed is not None
    board_b = boxes.board(*re.findall(r"\d+ (\w+)", listed[1]))
    assert board_a.power_modes == ("15W", "25W", "MAXN_SUPER", "7W")
    assert board_b.power_modes == ("MAXN_SUPER", "10W", "15W", "25W", "40W")
    chosen = {
        (name, mode): boxes.planned(f"power: {{mode: {mode}}}", told).policy.board
        for name, told in (("A", board_a), ("B", board_b))
        for mode in ("fastest", "15W")
    }
    modes = {key: one.mode for key, one in chosen.items() if one is not None}
    assert modes == {("A", "fastest"): "MAXN_SUPER", ("A", "15W"): "15W", ("B", "fastest"): "MAXN_SUPER", ("B", "15W"): "15W"}
    assert [board_a.power_modes.index(modes["A", mode]) for mode in ("fastest", "15W")] == [2, 0], case.expect
    assert [board_b.power_modes.index(modes["B", mode]) for mode in ("fastest", "15W")] == [0, 2], case.expect


@pytest.mark.parametrize(
    ("asked", "known", "mode"),
    [
        ("30W", ("MAXN", "MODE_15W", "MODE_30W"), "MODE_30W"),
        ("MODE_30W", ("MAXN", "15W", "30W"), "30W"),
        ("maxn", ("MAXN", "5W"), "MAXN"),
        ("25W", (), "25W"),
        ("fastest", (), "fastest"),
    ],
)
def test_a_mode_in_the_words_of_that_board(asked: str, known: tuple[str, ...], mode: str) -> None:
    board = boxes.planned(f"power: {{mode: {asked}}}", boxes.board(*known)).policy.board
    assert board is not None
    assert board.mode == mode


def test_an_unknown_mode_names_what_the_board_has() -> None:
    problem = refused("power: {mode: 26W}", boxes.board("MAXN_SUPER", "10W", "15W", "25W", "40W"))
    assert problem.code == "mode-unknown"
    assert problem.message == "titan has no power mode '26W'; it has MAXN_SUPER, 10W, 15W, 25W, 40W"
    assert "did you mean '25W'" in problem.hint


def test_a_group_of_both_kinds_just_works() -> None:
    text = "power: {limit: 80%, clocks: '0,1500', mode: 25W, fan: quiet, pin_clocks: false}"
    here = boxes.planned(text, TITAN)
    assert limits(here) == [280, 280]
    assert here.policy.board is None
    assert [(one.key, one.value) for one in here.apart] == [("mode", "25W"), ("pin_clocks", "no"), ("fan", "quiet")]
    assert "nvidia-smi cannot set a fan" in here.apart[2].why
    there = boxes.planned(text, boxes.board("15W", "25W"))
    assert there.cards == ()
    assert there.policy.board is not None
    assert (there.policy.board.mode, there.policy.board.pinned, there.policy.board.fan) == ("25W", False, "quiet")
    assert [one.key for one in there.apart] == ["limit", "clocks"]
    assert "power.mode" in there.apart[0].why


@pytest.mark.parametrize("name", [ONE, "GPU-11111111", "'0000:01:00.0'"])
def test_a_jetson_never_had_a_card_of_its_own(name: str) -> None:
    """A whole UUID too: on a box with cards it may be one that fell off the bus, and here it can only be another host's."""
    problem = refused(f"power: {{cards: {{{name}: {{limit: 250}}}}}}", boxes.board("15W", "25W"))
    assert problem.code == "card-unknown"
    assert "this host is a Jetson" in problem.message


def test_a_board_that_draws_more_than_feeds_it_is_refused_too() -> None:
    problem = refused("power: {base_load_w: 40, budget_w: 30}", boxes.board("15W", "25W"))
    assert problem.code == "over-budget"
    assert "titan is fed 30 W (power.budget_w)" in problem.message
    unknown = boxes.planned("power: {budget_w: 30}", boxes.board("15W", "25W"))
    assert unknown.doubts == ("power.budget_w: power.base_load_w is not set, so that is not in the sum",)


def test_efficient_is_what_was_measured_on_that_very_card() -> None:
    text = f"""
    power: {{limit: efficient}}
    power_tuned:
      {ONE}: {{limit_w: 220, tok_s: 41.5, tok_j: 0.19}}
    """
    made = boxes.planned(text, TITAN)
    assert limits(made) == [220, None]
    unfit = [row.unfit for row in made.cards[1].rows if row.setting == "limit_w"]
    assert unfit == ["not measured yet: invoke power-tune --hosts titan --write"]
    assert made.policy.cards[TWO].limit_w is None


def test_efficient_may_be_a_ceiling_for_the_clocks() -> None:
    tuned = f"power_tuned: {{{ONE}: {{clocks_mhz: [0, 1200]}}}}"
    one = boxes.box(boxes.card("Tesla P40", None, None, None))
    assert boxes.planned(f"power: {{limit: efficient}}\n{tuned}", one).policy.cards[ONE].clocks_mhz == (0, 1200)
    assert boxes.planned(f"power: {{limit: efficient, clocks: '0,1300'}}\n{tuned}", one).policy.cards[ONE].clocks_mhz == (0, 1300)
    assert boxes.planned(f"power: {{limit: 80%}}\n{tuned}", boxes.box(boxes.rtx_3090())).policy.cards[ONE].clocks_mhz == ()


def test_what_was_measured_on_another_board_is_checked_too() -> None:
    text = f"power: {{limit: efficient}}\npower_tuned: {{{ONE}: {{limit_w: 80}}}}"
    assert refused(text).code == "power-range"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("power: {limit: 280}", True),
        ("power: {clocks: '0,1400'}", True),
        ("power: {limit: 280, persistence: false}", False),
        ("power: {limit: 280, persistence: null}", None),
        ("power: {temperature_c: 80}", None),
        ("power: {}", None),
        ("power: {limit: efficient}", None),
    ],
)
def test_persistence_comes_along_with_what_the_driver_would_forget(text: str, *, kept: bool | None) -> None:
    made = boxes.planned(text, TITAN)
    assert made.policy.cards[ONE].persistence is kept
    rows = [row.setting for row in made.cards[0].rows]
    assert rows[:1] == ["persistence"] if kept is not None else "persistence" not in rows


def test_a_card_that_does_not_tell_its_uuid_is_skipped_beside_a_healthy_one() -> None:
    lost = facts.Gpu("0000:02:00.0", "nvidia", "NVIDIA GeForce RTX 3090")
    made = boxes.planned("power: {limit: 280}", boxes.box(boxes.rtx_3090(), lost))
    assert all("does not tell its UUID" in row.unfit for row in made.cards[1].rows)
    assert list(made.policy.cards) == [ONE]
    assert made.policy.cards[ONE].limit_w == 280


def test_a_box_without_card_and_board_has_nothing_to_hold() -> None:
    made = boxes.planned("power: {limit: 280, mode: 25W}", boxes.box())
    assert made.is_empty
    assert made.apart == ()
    amd = facts.Gpu("0000:03:00.0", "amd", "Radeon")
    assert boxes.planned("power: {limit: 280}", boxes.box(amd)).is_empty
