"""What a node's answer comes to: ok, drift, skipped or failed, each with its reason; and nothing in an answer is trusted."""

from __future__ import annotations

import pathlib
from types import SimpleNamespace
from typing import Any

import pytest

from tests import power_cases
from tests.unit import fleet_of_cards as herd
from wattherd import errors
from wattherd.policy import idle
from wattherd.power import drift, reading, settings, wanted
from wattherd.powering import plan
from wattherd.verbs import power_chosen, power_rows, power_told, rests
from wattherd.wire import facts, fields

LIMITS = reading.Limits(100.0, 350.0, 350.0, 350.0, 350.0)
INVENTORY = power_chosen.INVENTORY


def only(*cards: reading.Card, **more: Any) -> power_rows.Row:
    found = herd.rows("titan", *cards, **more)
    assert len(found) == 1
    return found[0]


def chosen(uuid: str = herd.UUIDS[0], **keys: Any) -> power_chosen.Chosen:
    return power_chosen.Chosen(source=INVENTORY, cards={uuid: wanted.CardPolicy(**keys)})


def test_as_it_was_chosen_is_ok() -> None:
    row = only(herd.card())
    assert (row.status, row.reason, row.desired_w, row.chosen_by, row.applied) == ("ok", "", 280.0, power_chosen.NODE, None)


def test_where_nothing_was_chosen_a_card_is_ok_as_it_is() -> None:
    row = only(herd.card(limits=LIMITS), told={"policy": None, "keeper": ""})
    assert (row.status, row.reason, row.desired_w, row.chosen_by) == ("ok", "", None, "")


@pytest.mark.parametrize(
    ("card", "keys", "status", "reason"),
    [
        ({"limits": LIMITS}, {"limit_w": 280.0}, "drift", "power limit is 350 W, not 280 W"),
        ({"persistence": False}, {"persistence": True}, "drift", "persistence is off, not on"),
        ({"persistence": None}, {"persistence": True}, "skipped", "the card does not say what it has"),
        ({"temperature_target_c": 90}, {"temperature_c": 80}, "drift", "temperature target is 90 °C, not 80 °C"),
        ({"temperature_target_c": None}, {"temperature_c": 80}, "skipped", "this card has no temperature target"),
        ({"limits": reading.Limits()}, {"limit_w": 280.0}, "skipped", "this card's limit cannot be set"),
        ({}, {"clocks_mhz": (0, 1400)}, "drift", "clock range is not set, not 0 to 1400 MHz"),
        (
            {"limits": reading.Limits(200.0, 700.0, 700.0, 700.0, 500.0)},
            {"limit_w": 700.0},
            "drift",
            "something else holds the card at 500 W",
        ),
    ],
)
def test_one_setting_at_a_time(card: dict[str, Any], keys: dict[str, Any], status: str, reason: str) -> None:
    policy = wanted.Policy(cards={herd.UUIDS[0]: wanted.CardPolicy(**keys)})
    row = only(herd.card(**card), told={"policy": policy})
    assert row.status == status
    assert reason in row.reason


def test_a_clock_range_is_known_by_the_nodes_own_record_and_by_a_clock_above_it() -> None:
    policy = wanted.Policy(cards={herd.UUIDS[0]: wanted.CardPolicy(clocks_mhz=(0, 1400))})
    locks = {herd.UUIDS[0]: {settings.CLOCKS: (0.0, 1400.0)}}
    assert only(herd.card(), told={"policy": policy, "locks": locks}).status == "ok"
    other = only(herd.card(), told={"policy": policy, "locks": {herd.UUIDS[0]: {settings.CLOCKS: (0.0, 1900.0)}}})
    assert (other.status, other.reason) == ("drift", "clock range is 0 to 1900 MHz, not 0 to 1400 MHz")
    fast = only(herd.card(clocks=reading.Clocks(1900, 9501, 2100, 9751)), told={"policy": policy, "locks": locks})
    assert fast.status == "drift"
    assert fast.reason.startswith("it runs at 1900 MHz")


def test_what_the_driver_refused_once_is_skipped_with_its_reason() -> None:
    row = only(herd.card(limits=LIMITS), told={"unsupported": {herd.UUIDS[0]: {settings.LIMIT: "not for laptops"}}})
    assert (row.status, row.reason) == ("skipped", "power limit 280 W: not for laptops")


def test_an_inventory_that_the_node_does_not_keep_yet_is_not_applied() -> None:
    row = only(herd.card(limits=LIMITS), want=chosen(limit_w=250.0), told={"policy": None, "keeper": ""})
    assert (row.status, row.applied, row.desired_w, row.chosen_by) == ("drift", False, 250.0, INVENTORY)
    assert row.reason == "not applied yet: invoke power-apply; power limit is 350 W, not 250 W"
    other = only(herd.card(), want=chosen(limit_w=250.0))
    assert other.reason.startswith("not applied yet (the node keeps power limit 280 W): invoke power-apply")
    assert only(herd.card(), want=chosen(limit_w=280.0)).applied is True


def test_a_policy_that_was_put_back_says_why() -> None:
    back = drift.PutBack(1.0, "its cards ran hot", "0" * 64)
    row = only(herd.card(limits=LIMITS), want=chosen(limit_w=250.0), told={"policy": None, "keeper": "", "put_back": back})
    assert row.reason.startswith("not applied: the policy was put back, since its cards ran hot")


def test_what_cannot_be_had_is_skipped_and_a_plan_that_fails_is_told() -> None:
    want = power_chosen.Chosen(source=INVENTORY, unfit={herd.UUIDS[0]: {settings.LIMIT: "it tells no default power limit"}})
    row = only(herd.card(), want=want, told={"policy": None, "keeper": ""})
    assert (row.status, row.reason) == ("skipped", "power limit: it tells no default power limit")
    told = power_told.Told(look=reading.Look(cards=(herd.card(),)))
    host: Any = SimpleNamespace(name="titan", settings=SimpleNamespace(roles=("power",), power=object(), power_tuned={}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "of", _refuse)
        doubtful = power_chosen.chosen(host, herd.seen(), told)
    row = only(herd.card(), want=doubtful, told={"policy": None, "keeper": ""})
    assert row.status == "drift"
    assert row.reason == "what the inventory wants cannot be had: 99 W is less than this card takes"


def _refuse(*_: object) -> None:
    raise errors.Problem("power-range", "99 W is less than this card takes")


def test_another_agent_that_wins_is_named() -> None:
    one = power_told.Drifted(
        owner=herd.UUIDS[0],
        setting="limit_w",
        found="350 W",
        count=9,
        last_s=5.0,
        is_open=True,
        in_conflict=True,
        writers=("lactd.service",),
    )
    row = only(herd.card(limits=LIMITS), told={"drifts": (one,)})
    assert row.status == "drift"
    assert "lactd.service sets power limit 350 W again and again: no longer fought over" in row.reason
    assert (row.drift_count, row.drift_last_s) == (9, 5.0)


@pytest.mark.parametrize(("keeper", "status"), [("active", "ok"), ("activating", "ok"), ("failed", "drift"), ("inactive", "drift")])
def test_what_nobody_keeps_is_said(keeper: str, status: str) -> None:
    row = only(herd.card(), told={"keeper": keeper})
    assert row.status == status
    assert ("nothing keeps it: the keeper is" in row.reason) == (status == "drift")


def test_a_lost_card_fails_beside_a_healthy_one() -> None:
    """smi-gpu-lost: the sentence of the field's case is the fault."""
    fault = power_cases.case("smi-gpu-lost").input.partition(": ")[2].strip()
    well, lost = herd.rows("titan", herd.card(0), herd.card(1, fault=fault, draw=None))
    assert (well.status, lost.status) == ("ok", "failed")
    assert lost.reason.startswith("GPU is lost. Reboot the system to recover this GPU: it can be neither read nor set")


def test_cards_that_only_the_facts_know_fail_with_the_hosts_reason() -> None:
    """smi-driver-mismatch: unmeasurable, and no figure is 0."""
    gpus = (facts.Gpu("0000:01:00.0", "nvidia", "NVIDIA GeForce RTX 3090", herd.UUIDS[0]), facts.Gpu("0000:0a:00.0", "amd", "", ""))
    fault = power_cases.case("smi-driver-mismatch").input.splitlines()[0]
    look = reading.Look(fault=fault, fault_kind="mismatch")
    (row,) = herd.rows("titan", told={"look": look, "policy": None, "keeper": ""}, known=herd.seen(*gpus))
    assert (row.uuid, row.status, row.reason, row.draw) == (herd.UUIDS[0], "failed", fault, None)
    both = herd.rows("titan", herd.card(), known=herd.seen(*gpus))
    assert [one.uuid for one in both] == [herd.UUIDS[0]], "a card is one row"


def test_a_sleeping_card_is_not_complained_of() -> None:
    row = only(reading.Card(herd.UUIDS[0], "0000:01:00.0", name="RTX 4060", suspended=True), told={"policy": herd.policy(herd.card())})
    assert (row.status, row.reason) == ("ok", "")
    assert "not woken" in row.note


def test_a_card_that_is_being_tuned_has_not_drifted() -> None:
    row = only(herd.card(limits=LIMITS), told={"tuned": (herd.UUIDS[0],)})
    assert row.status == "skipped"
    assert row.reason.startswith("power-tune is at work on it")


def test_a_card_that_stays_awake_with_nothing_on_it_is_told_of() -> None:
    card = herd.card()
    stuck = only(card, rest={card.uuid: idle.Rest(34.5, busy=False)}, empty_w={card.uuid: 9.5})
    assert stuck.status == "ok"
    assert stuck.note.startswith("draws 34.5 W at rest although nothing holds it, and has rested at 9.5 W here")
    assert only(card, rest={card.uuid: idle.Rest(10.0, busy=False)}, empty_w={card.uuid: 9.5}).note == ""


def test_a_model_that_sleeps_saves_nothing_and_says_so() -> None:
    """plan-sleep-leaves-context, on the card itself: 614 MiB, P0, 90 W asleep; 5 W empty."""
    told = power_cases.case("plan-sleep-leaves-context")
    assert "614 MiB, pstate P0, 90 W" in told.input
    holder = reading.Holder(4242, "llama-server", 614, "llama", "llama@smol.service", "smollm2", asleep=True)
    card = herd.card(pstate=0, draw=reading.Draw(90.0), holders=(holder,))
    row = only(card, rest={card.uuid: idle.Rest(90.0, busy=False)}, empty_w={card.uuid: 5.0})
    assert "no saving: 85 W still go into the card" in row.note


# -- boards


def board(**more: Any) -> reading.Board:
    given: dict[str, Any] = {"name": "Jetson Orin NX", "mode": "15W", "modes": {"15W": 2, "25W": 3}, "pinned": False, "fan": "quiet"}
    return reading.Board(**{**given, **more})


def of_board(seen: reading.Board, **keys: Any) -> power_rows.Row:
    policy = wanted.Policy(board=wanted.BoardPolicy(**keys))
    (row,) = herd.rows("orin", told={"look": reading.Look(board=seen), "policy": policy, "highest": {"board": 61.0}})
    return row


@pytest.mark.parametrize(
    ("seen", "keys", "status", "reason"),
    [
        ({}, {"mode": "15W", "pinned": False, "fan": "Quiet"}, "ok", ""),
        ({}, {"mode": "25W"}, "drift", "mode is 15W, not 25W"),
        (
            {"pending_mode": "25W"},
            {"mode": "25W"},
            "skipped",
            "reboot required for mode 25W; it is in 15W until then: invoke power-apply --hosts orin --reboot",
        ),
        ({"pinned": True}, {"pinned": False}, "drift", "clock setting is pinned, not free"),
        ({"fan": "", "unknown": {"fan": "no nvfancontrol"}}, {"fan": "cool"}, "skipped", "fan profile cool: no nvfancontrol"),
    ],
)
def test_a_board_is_a_row_too(seen: dict[str, Any], keys: dict[str, Any], status: str, reason: str) -> None:
    row = of_board(board(**seen), **keys)
    assert (row.uuid, row.status) == ("board", status)
    assert reason in row.reason


# -- the answer is data


def test_what_a_node_says_is_read_back_and_made_harmless() -> None:
    card = herd.card(name="RTX\x1b[2J 3090", holders=(herd.SERVER,), binding=("sw_power_cap",))
    document = {
        "look": fields.plain(reading.Look(cards=(card,), driver="580", source="nvml")),
        "samples": {card.uuid: [[20.5, 0], [None, None]]},
        "empty": {card.uuid: {"watts": 9.5, "at_s": 3.0}},
        "policy": fields.plain(herd.policy(card)),
        "locks": {card.uuid: {"clocks_mhz": [0, 1400]}},
        "unsupported": {card.uuid: {"limit_w": "\x9b2Jno"}},
        "drifts": [{"owner": card.uuid, "setting": "limit_w", "count": 2, "writers": ["x\r"]}],
        "highest": {card.uuid: 71},
        "put_back": {"at_s": 1.0, "why": "hot", "digest": "0"},
        "unconfirmed_s": 12,
        "tuned": [card.uuid],
    }
    told = power_told.decode(document)
    assert told.look.cards[0].name == "RTX 3090"
    assert told.look.cards[0].holders == (herd.SERVER,)
    assert told.samples == {card.uuid: (idle.Sample(20.5, 0), idle.Sample(None, None))}
    assert told.locks == {card.uuid: {"clocks_mhz": (0.0, 1400.0)}}
    assert told.unsupported == {card.uuid: {"limit_w": "�2Jno"}}
    assert (told.highest, told.unconfirmed_s, told.drifts[0].writers) == ({card.uuid: 71.0}, 12.0, ("x",))
    assert (told.policy, told.tuned) == (herd.policy(card), (card.uuid,))


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"look": []},
        {"look": {"cards": [{"uuid": 5}]}},
        {"look": {}, "samples": {"GPU-1": [["hot", 0]]}},
        {"look": {}, "locks": {"GPU-1": {"clocks_mhz": "0,1400"}}},
        {"look": {}, "highest": {"GPU-1": None}},
        {"look": {}, "drifts": [{"owner": "GPU-1"}]},
        {"look": {}, "policy": {"cards": {"GPU-1": {"limit": 5}}}},
    ],
)
def test_an_answer_of_another_shape_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(errors.Problem) as caught:
        power_told.decode(broken)
    assert caught.value.code == "manifest-invalid"


# -- what rests is remembered


def told_of(card: reading.Card, *watts: float) -> power_told.Told:
    return power_told.Told(look=reading.Look(cards=(card,)), samples={card.uuid: herd.samples(*watts)})


def test_what_a_card_draws_empty_is_remembered_across_commands_and_never_goes_up(tmp_path: pathlib.Path) -> None:
    free, held = herd.card(), herd.card(holders=(herd.SERVER,))
    first = rests.Rests(tmp_path / "state")
    assert first.see("titan", told_of(free, 9.5, 9.4, 9.6)).empty_w == {free.uuid: 9.4}
    first.save()
    later = rests.Rests(tmp_path / "state")
    assert later.known("titan") == {free.uuid: 9.4}
    assert later.known("atlas") == {}, "another host's card is another card"
    assert later.see("titan", told_of(free, 21.0, 21.0, 21.0)).empty_w == {free.uuid: 9.4}
    seen = later.see("titan", told_of(held, 60.0, 60.0, 60.0))
    assert (seen.rest[free.uuid].watts, seen.empty_w) == (60.0, {free.uuid: 9.4})


def test_two_commands_at_once_leave_what_both_have_seen(tmp_path: pathlib.Path) -> None:
    one, other = rests.Rests(tmp_path), rests.Rests(tmp_path)
    one.see("titan", told_of(herd.card(0), 20.0, 20.0, 20.0))
    other.see("atlas", told_of(herd.card(1), 9.0, 9.0, 9.0))
    other.see("titan", told_of(herd.card(0), 18.0, 18.0, 18.0))
    other.save()
    one.save()
    last = rests.Rests(tmp_path)
    assert (last.known("titan"), last.known("atlas")) == ({herd.UUIDS[0]: 18.0}, {herd.UUIDS[1]: 9.0})


def test_looks_of_a_watch_add_up_and_begin_anew_when_a_card_is_taken(tmp_path: pathlib.Path) -> None:
    memory = rests.Rests(tmp_path)
    free, held = herd.card(), herd.card(holders=(herd.SERVER,))
    told = [memory.see("titan", told_of(card, watts)).rest[free.uuid].watts for card, watts in [(free, 9.0), (free, 9.1), (free, 9.0)]]
    assert told == [None, None, 9.0]
    told = [memory.see("titan", told_of(held, 60.0)).rest[free.uuid].watts for _ in range(3)]
    assert told == [None, None, 60.0]
    assert memory.see("titan", told_of(free, 9.0)).rest[free.uuid].watts is None


def test_the_nodes_own_measurement_counts_too_and_a_damaged_file_is_no_end(tmp_path: pathlib.Path) -> None:
    (tmp_path / rests.FILE).write_text('{"titan": {"GPU-1": "much"}}')
    memory = rests.Rests(tmp_path)
    card = herd.card()
    told = power_told.decode({"look": fields.plain(reading.Look(cards=(card,))), "empty": {card.uuid: {"watts": 7.5, "at_s": 1.0}}})
    assert memory.see("titan", told).empty_w == {card.uuid: 7.5}
    (tmp_path / "file").write_text("")
    unwritable = rests.Rests(tmp_path / "file" / "state")
    unwritable.see("titan", told_of(card, 9.0, 9.0, 9.0))
    unwritable.save()
    assert not (tmp_path / "file" / "state").exists()
