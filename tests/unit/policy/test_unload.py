"""Which models may go now, with a reason for each; and whether that is worth anything, by measured watts."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest

from tests import power_cases
from wattherd.policy import unload

HOUR_S = 3600.0


def clock_s(text: str) -> float:
    parts = [int(part) for part in text.split(":")]
    return parts[0] * HOUR_S + parts[1] * 60.0 + (parts[2] if len(parts) > 2 else 0)


def of_case(text: str) -> list[unload.Model]:
    """The models of the case's own sentence, as they are at the instant that it begins with."""
    now_s = clock_s(re.match(r"([\d:]+)", text)[1])  # type: ignore[index]
    models = []
    for name, words in re.findall(r"model (\w): ([^;]+)", text):
        last = re.search(r"last request ([\d:]+)", words)
        running = re.search(r"(\d+) request running", words)
        models.append(
            unload.Model(
                name,
                unload.LOADING if "loading" in words else unload.LOADED,
                requests=int(running[1]) if running else 0,
                idle_s=now_s - clock_s(last[1]) if last else None,
                pinned="pinned" in words,
            )
        )
    return models


def test_only_what_nobody_uses_is_unloaded_and_every_reason_is_told() -> None:
    """plan-do-not-unload-busy"""
    told = power_cases.case("plan-do-not-unload-busy")
    decisions = {one.model: one for one in unload.decide(of_case(told.input), idle_after_s=HOUR_S)}
    assert "Unload D only" in told.expect
    assert [name for name, one in decisions.items() if one.unload] == ["D"]
    assert [one.reason for one in decisions.values()] == ["busy", "loading", "pinned", "idle"]
    assert decisions["A"].words == "it answers 1 request: when the last has ended, it may go"
    assert decisions["D"].words == "nobody has asked it for 5400 s"


@pytest.mark.parametrize(
    ("model", "unloaded", "reason"),
    [
        (unload.Model("m", unload.LOADED, requests=0, idle_s=599.0), False, "active"),
        (unload.Model("m", unload.LOADED, requests=0, idle_s=600.0), True, "idle"),
        (unload.Model("m", unload.LOADED, requests=3, idle_s=9e9), False, "busy"),
        (unload.Model("m", unload.LOADED, requests=None, idle_s=9e9), False, "unknown"),
        (unload.Model("m", unload.LOADED, requests=0, idle_s=None), False, "unknown"),
        (unload.Model("m", unload.SLEEPING), True, "asleep"),
        (unload.Model("m", unload.SLEEPING, pinned=True), False, "pinned"),
        (unload.Model("m", unload.LOADING, pinned=True), False, "pinned"),
        (unload.Model("m", unload.UNLOADED, pinned=True), False, "unloaded"),
        (unload.Model("m", unload.FAILED), False, "unloaded"),
        (unload.Model("m", "downloading", requests=0, idle_s=9e9), False, "unknown"),
        (unload.Model("m", "", requests=0, idle_s=9e9), False, "unknown"),
    ],
)
def test_the_reason(model: unload.Model, unloaded: bool, reason: str) -> None:
    decision = unload.decide([model], idle_after_s=600.0)[0]
    assert (decision.unload, decision.reason) == (unloaded, reason)
    assert decision.words


def test_a_card_that_rests_as_well_loaded_is_left_alone_and_one_that_does_not_is_worth_it() -> None:
    """plan-no-saving-p8-card"""
    told = power_cases.case("plan-no-saving-p8-card")
    pairs = [(float(loaded), float(empty)) for loaded, empty in re.findall(r"loaded (\d+) W \(P\d\) / unloaded (\d+) W", told.input)]
    hours, reloads = re.search(r"(\d+) h per night, (\d+) reloads", told.input).groups()  # type: ignore[union-attr]
    flat, p40 = (unload.worth(loaded, empty, Decimal(hours), reloads=int(reloads)) for loaded, empty in pairs)
    assert (flat.kwh, flat.worthwhile) == (Decimal(0), False)
    assert flat.words == "no saving: 24 W loaded, 24 W empty"
    assert (p40.kwh, p40.worthwhile) == (Decimal("0.328"), True)
    assert "0.328 kWh per night" in told.expect
    assert p40.words == "50 W loaded, 9 W empty: 41 W less for 8 h, before what 2 reloads take, which is not measured yet"


def test_the_reloads_are_taken_off() -> None:
    some = unload.worth(50.0, 9.0, Decimal(8), reloads=2, reload_kwh=Decimal("0.0015"))
    assert (some.kwh, some.worthwhile) == (Decimal("0.325"), True)
    assert some.words == "50 W loaded, 9 W empty: 0.328 kWh less in 8 h, of which 2 reloads take 0.003 kWh"
    lost = unload.worth(14.0, 6.0, Decimal("0.25"), reloads=1, reload_kwh=Decimal("0.002"))
    assert (lost.kwh, lost.worthwhile) == (Decimal(0), False)
    assert lost.words.endswith("nothing is left")
    assert unload.worth(50.0, 9.0, Decimal(8)).words == "50 W loaded, 9 W empty: 0.328 kWh less in 8 h"


@pytest.mark.parametrize(("loaded", "empty", "lacking"), [(None, 9.0, "loaded"), (50.0, None, "empty"), (None, None, "loaded")])
def test_without_both_measurements_there_is_no_figure(loaded: float | None, empty: float | None, lacking: str) -> None:
    told = unload.worth(loaded, empty, Decimal(8))
    assert (told.kwh, told.worthwhile) == (None, False)
    assert told.words == f"what this card draws {lacking} has not been measured on this host yet"
