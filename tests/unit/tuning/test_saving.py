"""The yearly saving, to the exact decimal, and where its hours are from."""

from __future__ import annotations

from decimal import Decimal

import pytest

from wattherd.verbs import saving


def test_hours_that_were_given() -> None:
    """348 W, a fifth of it saved, 6 h a day: 348 * 0.2 * 6 * 365 / 1000 kWh."""
    made = saving.saving(348.0, 0.2, None, Decimal(6))
    assert made.kwh == Decimal("152.424")
    assert (made.hours_per_day, made.basis) == (Decimal(6), "given")


def test_hours_that_were_seen() -> None:
    """A server that runs for 10 days and computed for 20 h of them is under load for 2 h a day."""
    use = saving.Use(since_s=864_000, busy_s=72_000.0)
    made = saving.saving(300.0, 0.25, use, None)
    assert (made.hours_per_day, made.basis) == (Decimal("2.00"), "observed")
    assert made.kwh == Decimal(300) * Decimal("0.25") * 2 * 365 / 1000


def test_what_the_user_says_counts_more_than_what_was_seen() -> None:
    assert saving.saving(300.0, 0.25, saving.Use(since_s=864_000, busy_s=72_000.0), Decimal("0.5")).basis == "given"


def test_unknown_hours_are_called_assumed_and_are_an_upper_bound() -> None:
    made = saving.saving(300.0, 0.25, None, None)
    assert (made.hours_per_day, made.basis) == (Decimal(24), "assumed")


@pytest.mark.parametrize(("since_s", "basis"), [(3599, "assumed"), (3600, "observed")])
def test_a_server_that_has_just_begun_has_seen_nothing(since_s: int, basis: str) -> None:
    assert saving.saving(300.0, 0.25, saving.Use(since_s=since_s, busy_s=60.0), None).basis == basis


def test_slots_that_compute_at_once_make_no_day_of_more_than_24_hours() -> None:
    assert saving.Use(since_s=86_400, busy_s=400_000.0).hours_per_day == Decimal(24)


def test_floats_do_not_reach_the_money() -> None:
    made = saving.saving(0.1 + 0.2, 1 / 3, None, Decimal(1))
    assert made.kwh == Decimal("0.3") * Decimal("0.3333") * 365 / 1000
