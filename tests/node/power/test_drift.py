"""What is counted as drift, when it becomes a conflict, and when that ends. Pure: records in, records out."""

from __future__ import annotations

import time

from tests.node import strict
from wattherd.power import drift, reading

BOOT = "boot-1"
NOON_S = 1_700_000_000.0
CARD, LIMIT = "GPU-a", "limit_w"


def off(found: str = "280 W", cause: str = drift.WRITTEN) -> drift.Difference:
    return drift.Difference(CARD, LIMIT, "200 W", found, "RTX 3090 GPU-a", cause)


def one(record: drift.Record) -> drift.Drift:
    found = record.of(CARD, LIMIT)
    assert found is not None
    return found


def fight(record: drift.Record, now_s: float, *, cause: str = drift.WRITTEN, lives: bool = True) -> drift.Record:
    """One round: it differs, is put right, and holds until somebody comes again."""
    differences = [off(cause=cause)]
    record = drift.found(record, differences, BOOT, now_s)
    record = drift.decide(drift.named(record, ("cap.service",), lives, now_s), now_s)
    if not one(record).conflict_s:
        record = drift.fought(record, [off().key], now_s)
        record = drift.corrected(record, [], now_s, {})
    return record


def test_what_differs_still_is_not_counted_again() -> None:
    record = drift.found(drift.Record(), [off()], BOOT, NOON_S)
    record = drift.found(record, [off("281 W")], BOOT, NOON_S + 20)
    assert (one(record).total, one(record).since_boot, one(record).last_day(NOON_S + 20)) == (1, 1, 1)
    assert (one(record).wanted, one(record).found, one(record).is_open) == ("200 W", "281 W", True)


def test_each_time_it_comes_back_is_counted_by_total_boot_and_day() -> None:
    record = drift.Record()
    for hours in (0, 1, 30):
        record = fight(record, NOON_S + hours * 3600)
    assert (one(record).total, one(record).since_boot, one(record).last_day(NOON_S + 30 * 3600)) == (3, 3, 1)
    record = drift.found(record, [off()], "boot-2", NOON_S + 31 * 3600)
    assert (one(record).total, one(record).since_boot, one(record).last_day(NOON_S + 31 * 3600)) == (4, 1, 2)


def test_it_is_put_right_when_that_was_read_back_and_not_before() -> None:
    record = drift.found(drift.Record(), [off()], BOOT, NOON_S)
    record = drift.corrected(record, [off()], NOON_S, {off().key: "Insufficient Permissions"})
    assert (one(record).is_open, one(record).corrected_s, one(record).words) == (True, 0.0, "Insufficient Permissions")
    record = drift.corrected(record, [], NOON_S + 20, {})
    assert (one(record).is_open, one(record).corrected_s, one(record).words) == (False, NOON_S + 20, "")


def test_the_fourth_time_within_ten_minutes_is_a_conflict() -> None:
    record = drift.Record()
    for at_s in (0, 20, 40):
        record = fight(record, NOON_S + at_s)
        assert not record.conflicts
    record = fight(record, NOON_S + 60)
    assert record.conflicts == (one(record),)
    assert one(record).writers == ("cap.service",)
    assert one(record).is_open, "it stays as the other one wants it, and is shown"


def test_a_writer_that_comes_every_five_minutes_is_corrected_for_ever() -> None:
    record = drift.Record()
    for round_of in range(20):
        record = fight(record, NOON_S + round_of * 301)
        assert not record.conflicts
    assert one(record).total == 20


def test_what_the_driver_forgets_is_no_fight() -> None:
    record = drift.Record()
    for round_of in range(20):
        record = fight(record, NOON_S + round_of * 20, cause=drift.RELEASED)
    assert not record.conflicts
    assert one(record).total == 20


def in_conflict() -> drift.Record:
    record = drift.Record(policy="p")
    for at_s in (0, 20, 40, 60):
        record = fight(record, NOON_S + at_s)
    assert record.conflicts
    return record


def test_it_ends_with_another_policy() -> None:
    assert drift.under(in_conflict(), "p").conflicts
    assert not drift.under(in_conflict(), "another").conflicts


def test_it_ends_when_an_operator_applies(bench: strict.Bench) -> None:
    drift.save(bench.machine, in_conflict())
    drift.lift(bench.machine)
    assert not drift.load(bench.machine).conflicts
    assert one(drift.load(bench.machine)).total == 4


def test_it_ends_when_the_value_is_right_by_another_hand() -> None:
    record = drift.found(in_conflict(), [], BOOT, NOON_S + 80)
    assert not record.conflicts
    assert not one(record).is_open


def test_it_lasts_while_its_writer_is_seen_and_an_hour_longer() -> None:
    record = in_conflict()
    for minutes in range(5, 125, 5):
        now_s = NOON_S + 60 + minutes * 60
        record = drift.decide(drift.named(drift.found(record, [off()], BOOT, now_s), ("cap.service",), minutes <= 60, now_s), now_s)
        assert bool(record.conflicts) == (minutes < 120), minutes


def test_after_the_hour_one_more_try_decides() -> None:
    record = in_conflict()
    later_s = NOON_S + 60 + drift.WRITER_GONE_S
    record = drift.decide(drift.found(record, [off()], BOOT, later_s), later_s)
    assert not record.conflicts
    record = drift.corrected(drift.fought(record, [off().key], later_s), [], later_s, {})
    record = drift.decide(drift.found(record, [off()], BOOT, later_s + 20), later_s + 20)
    assert record.conflicts


def test_rounds_of_a_clock_that_was_set_back_count_for_nothing() -> None:
    record = drift.Record()
    for at_s in (0, 20, 40):
        record = fight(record, NOON_S + at_s)
    record = fight(record, NOON_S - 86400)
    assert not record.conflicts


def test_who_was_seen_is_not_forgotten_when_he_is_not_found_again() -> None:
    record = drift.named(in_conflict(), (), lives=False, now_s=NOON_S + 90)
    assert one(record).writers == ("cap.service",)


def warm(celsius: int | None, board_c: float | None = None) -> reading.Look:
    board = None if board_c is None else reading.Board(temperature_c=board_c)
    return reading.Look(cards=(reading.Card(CARD, temperature_c=celsius),), board=board)


def test_the_highest_temperature_is_kept_by_the_nodes_own_day() -> None:
    midnight_s = time.mktime((2026, 9, 30, 0, 0, 0, 0, 0, -1))
    record = drift.Record()
    for hours, celsius in ((1, 60), (2, 71), (3, 55)):
        record = drift.warmed(record, warm(celsius), midnight_s + hours * 3600)
    assert record.highest[CARD] == drift.Highest("2026-09-30", 71.0, midnight_s + 2 * 3600)
    record = drift.warmed(record, warm(40), midnight_s + 25 * 3600)
    assert record.highest[CARD] == drift.Highest("2026-10-01", 40.0, midnight_s + 25 * 3600)


def test_an_unknown_temperature_is_none_and_a_board_has_its_own() -> None:
    record = drift.warmed(drift.Record(), warm(None, board_c=51.5), NOON_S)
    assert {owner: row.celsius for owner, row in record.highest.items()} == {drift.BOARD: 51.5}


def test_a_node_that_stays_as_it_was_set_writes_nothing(bench: strict.Bench) -> None:
    drift.save(bench.machine, in_conflict())
    before = bench.tree()
    drift.save(bench.machine, drift.load(bench.machine))
    assert bench.tree() == before


def test_a_damaged_record_begins_anew(bench: strict.Bench) -> None:
    bench.put(drift.PLACE, "{")
    assert drift.load(bench.machine) == drift.Record()


def test_the_record_travels_whole(bench: strict.Bench) -> None:
    record = drift.warmed(drift.reapplied(in_conflict(), "the node booted", NOON_S), warm(60), NOON_S)
    drift.save(bench.machine, record)
    assert drift.load(bench.machine) == record
