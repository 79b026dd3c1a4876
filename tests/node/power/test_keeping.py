"""The keeper's rounds: what drifted is put right and counted, a fight ends, the driver may be gone."""

from __future__ import annotations

import pytest

from tests.node import strict
from tests.node.power import fake
from tests.node.power.keeping import A, B, Node, card
from tests.power_cases import case
from wattherd.node import keep
from wattherd.power import drift, settings, wanted


@pytest.fixture
def node(bench: strict.Bench) -> Node:
    return Node(bench)


def test_without_a_policy_no_card_is_read_and_nothing_is_written(node: Node) -> None:
    before = node.bench.tree()
    assert node.round(3) == keep.INTERVAL_S
    assert (node.cards.looks, node.writes, node.said) == (0, 0, [])
    assert node.bench.tree() == before
    node.bench.runner.planned.clear()


def test_a_policy_that_holds_costs_one_look_and_no_write(node: Node) -> None:
    node.begin(limit_w=200.0)
    node.round(3)  # what the card draws empty is noted, once
    before, looks, writes = node.bench.tree(), node.cards.looks, node.writes
    node.round(3)
    assert (node.cards.looks - looks, node.writes - writes) == (3, 0)
    assert node.bench.tree() == before


def test_a_limit_that_somebody_changed_is_put_right_within_a_round_and_counted_once(node: Node) -> None:
    one = node.begin(limit_w=200.0)
    one.requested_w = 280.0
    node.round(2)
    assert one.requested_w == 200.0
    found = node.drifted()
    assert (found.total, found.found, found.wanted, found.is_open, found.cause) == (1, "280 W", "200 W", False, drift.WRITTEN)
    assert found.corrected_s > 0
    assert len(node.said) == 1
    assert "its power limit is 280 W, not 200 W" in node.said[0]


def test_every_setting_is_held(node: Node) -> None:
    one = node.begin(limit_w=200.0, persistence=True, temperature_c=80)
    one.persistence, one.temperature_target_c = False, 83
    node.round(2)
    assert (one.persistence, one.temperature_target_c, one.requested_w) == (True, 80, 200.0)
    assert node.drifted(settings.PERSISTENCE).total == node.drifted(settings.TEMPERATURE).total == 1


@pytest.mark.parametrize("how", ["boot", "reload"])
def test_a_reboot_and_a_reload_are_nobodys_drift(node: Node, how: str) -> None:
    one = node.begin(limit_w=200.0, clocks_mhz=(0, 1400), persistence=True)
    if how == "boot":
        node.cards.reboot()
    else:
        node.cards.reload()
    node.killed()
    node.round(2)
    assert (one.requested_w, one.locked_mhz, one.persistence) == (200.0, (0, 1400), True)
    assert node.record.drifts == ()
    assert node.record.reapplied == 1
    assert node.record.reapplied_why == ("the node booted" if how == "boot" else "the driver was loaded anew")


def test_a_new_policy_that_a_run_left_half_done_is_brought_to_its_end_and_is_no_drift(node: Node) -> None:
    one = node.begin(limit_w=200.0)
    node.policy(limit_w=150.0)
    node.round(2)
    assert one.requested_w == 150.0
    assert (node.record.drifts, node.record.reapplied) == ((), 0)


def test_a_clock_above_its_ceiling_proves_that_the_lock_is_gone(node: Node) -> None:
    one = node.begin(clocks_mhz=(0, 1400))
    one.sm_mhz = 1380
    node.round(2)
    assert node.record.drifts == ()
    one.locked_mhz, one.sm_mhz, one.utilization_percent = None, 1905, 99
    node.round()
    assert one.locked_mhz == (0, 1400)
    assert node.drifted(settings.CLOCKS).total == 1


def test_two_causes_are_told_apart(bench: strict.Bench) -> None:
    """apply-drift-two-causes: both were set to 200 W; one fell to its default with persistence off, the other was set to 280 W."""
    told = case("apply-drift-two-causes")
    rows = [line.split() for line in told.input.splitlines() if "power.limit" in line]
    found = {row[2].rstrip(":"): (float(row[4].rstrip(",")), row[-1] == "Enabled") for row in rows}
    assert found == {"GPU-a": (350.0, False), "GPU-b": (280.0, True)}
    node = Node(bench, card(A), card(B))
    for uuid in (A, B):
        node.policy(uuid=uuid, limit_w=200.0)
    node.round(2)
    writer = f"nvidia-smi\0-i\0{B}\0-pl\0{found['GPU-b'][0]:.0f}\0"
    bench.put("/proc/4242/cmdline", writer)
    bench.put("/proc/4242/cgroup", "0::/system.slice/night-cap.service\n")
    first, second = node.cards.card(A), node.cards.card(B)
    node.cards.release(first)
    assert (first.requested_w, first.persistence) == found["GPU-a"]
    for _ in range(6):
        second.requested_w = found["GPU-b"][0]
        node.round()
    assert (first.requested_w, first.persistence) == (200.0, True), "persistence was turned on, and the limit set again"
    assert node.drifted(uuid=A).cause == drift.RELEASED
    assert node.drifted(uuid=A).total == 1
    assert any("350 W, not 200 W; seen once so far; the driver let the card go" in words for words in node.said)
    other = node.drifted(uuid=B)
    assert other.cause == drift.WRITTEN
    assert other.conflict_s > 0
    assert other.writers[0].startswith("night-cap.service: process 4242 runs: nvidia-smi")
    writes = node.writes
    node.round(20)
    assert node.writes == writes, "a conflict is reported, and not fought in a loop"
    assert second.requested_w == 280.0
    assert sum("left alone" in words for words in node.said) == 1
    first.requested_w = 300.0
    node.round()
    assert first.requested_w == 200.0, "the other card is held all the same"


def test_what_the_driver_lets_go_comes_back_with_persistence_unless_that_is_off_by_policy(node: Node) -> None:
    one = node.begin(limit_w=200.0, persistence=False)
    node.cards.release(one)
    writes = node.writes
    node.round(5)
    assert (one.persistence, one.requested_w, node.writes) == (False, 350.0, writes), "it would be forgotten in the same moment"
    assert node.drifted().is_open
    node.cards.hold(one, 77, "python3")
    node.round()
    assert one.requested_w == 200.0, "somebody uses the card, so it holds"
    assert not node.drifted().is_open


def fight(node: Node, one: fake.Card, rounds: int = 6) -> None:
    for _ in range(rounds):
        one.requested_w = 280.0
        node.round()


def test_a_conflict_ends_with_another_policy(node: Node) -> None:
    one = node.begin(limit_w=200.0)
    fight(node, one)
    assert node.record.conflicts
    node.policy(limit_w=180.0)
    node.round(2)
    assert (one.requested_w, node.record.conflicts) == (180.0, ())


def test_without_a_policy_nothing_is_drift_any_more(node: Node) -> None:
    one = node.begin(limit_w=200.0)
    fight(node, one)
    assert node.record.conflicts
    node.bench.machine.unlink(wanted.POLICY)
    node.round()
    assert (node.record.conflicts, node.drifted().is_open, node.drifted().total) == ((), False, 4)
    assert one.requested_w == 280.0, "what is set now stays as it is"


def test_a_conflict_ends_when_an_operator_applies(node: Node) -> None:
    one = node.begin(limit_w=200.0)
    fight(node, one)
    drift.lift(node.bench.machine)
    node.round()
    assert one.requested_w == 200.0


def test_a_conflict_is_tried_once_more_after_an_hour_without_its_writer(node: Node) -> None:
    one = node.begin(limit_w=200.0)
    fight(node, one)
    node.round(170)
    assert one.requested_w == 280.0
    node.round(20)
    assert one.requested_w == 200.0
    one.requested_w = 280.0
    node.round(3)
    assert one.requested_w == 280.0, "it came again at once, so it is left alone at once"


def test_a_value_that_no_write_changes_is_given_up_too(node: Node) -> None:
    """Another agent sets it back before anybody looks."""
    one = node.begin(limit_w=200.0)
    one.faults.add("limit-reset")
    one.requested_w = 280.0
    node.round(10)
    assert node.record.conflicts
    assert node.drifted().words


def test_what_is_refused_is_tried_ever_more_rarely_and_is_no_conflict(node: Node) -> None:
    one = node.begin(limit_w=200.0)
    one.faults.add("no-permission")
    one.requested_w = 280.0
    node.round(30)
    assert not node.record.conflicts
    assert "Insufficient Permissions" in node.drifted().words
    tried = [call for call in node.cards.set_calls if "-pl" in call]
    assert len(tried) < 10
    one.faults.clear()
    node.round(30)
    assert one.requested_w == 200.0


def test_a_setting_that_the_card_does_not_have_is_tried_once(node: Node) -> None:
    node.cards.cards[0].faults.add("clocks-unsupported")
    node.policy(limit_w=200.0, clocks_mhz=(0, 1400))
    node.round(10)
    assert len([call for call in node.cards.set_calls if "-lgc" in call]) == 1
    assert node.record.drifts == ()


def test_a_lost_card_does_not_keep_its_neighbour_waiting(bench: strict.Bench) -> None:
    node = Node(bench, card(A), card(B))
    for uuid in (A, B):
        node.policy(uuid=uuid, limit_w=200.0)
    node.round(2)
    node.cards.card(A).faults.add("lost")
    node.cards.card(B).requested_w = 300.0
    node.round(2)
    assert node.cards.card(B).requested_w == 200.0
    assert node.record.of(A, settings.LIMIT) is None


def test_a_driver_that_does_not_answer_is_asked_ever_more_rarely_and_told_of_once(node: Node) -> None:
    node.begin(limit_w=200.0)
    node.cards.silent = True
    waits = [node.keeper.round() for _ in range(8)]
    assert waits[:4] == [20.0, 40.0, 80.0, 160.0]
    assert waits[-1] == 600.0
    assert len(node.said) == 1
    node.cards.silent = False
    node.cards.cards[0].requested_w = 280.0
    assert node.keeper.round() == keep.INTERVAL_S
    assert node.cards.cards[0].requested_w == 200.0
    assert node.said[1] == "the cards can be read again"


def test_a_damaged_policy_is_told_of_once_and_nothing_is_touched(node: Node) -> None:
    node.begin(limit_w=200.0)
    writes = node.writes
    node.bench.put(wanted.POLICY, "{")
    node.round(3)
    assert (node.writes, len(node.said)) == (writes, 1)


def test_a_card_that_sleeps_deeply_is_not_woken(node: Node) -> None:
    one = node.begin(limit_w=200.0)
    place = f"/sys/bus/pci/devices/{one.bus}"
    for name, body in (
        ("vendor", "0x10de\n"),
        ("class", "0x030200\n"),
        ("power/control", "auto\n"),
        ("power/runtime_status", "suspended\n"),
    ):
        node.bench.put(f"{place}/{name}", body)
    one.requested_w = 280.0
    looks, writes = node.cards.looks, node.writes
    node.round(3)
    assert (node.cards.looks, node.writes) == (looks, writes)
    node.bench.put(f"{place}/power/runtime_status", "active\n")
    node.round()
    assert one.requested_w == 200.0


def test_the_highest_temperature_of_today_is_kept(node: Node) -> None:
    one = node.begin(limit_w=200.0)
    for celsius in (61, 78, 64):
        one.temperature_c = celsius
        node.round()
    assert node.record.highest[A].celsius == 78.0
