"""Reasons by one name, and which of them hold a card back."""

from __future__ import annotations

from typing import Any

import pytest

from wattherd import records
from wattherd.power import reading, throttle

BUSY = reading.Card(
    "GPU-1", limits=reading.Limits(enforced_w=200.0), draw=reading.Draw(198.0), utilization_percent=97, throttle=("sw_power_cap",)
)


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        (0x0, ()),
        (0x1, ()),
        (0x4, ("sw_power_cap",)),
        (0x5, ("sw_power_cap",)),
        (0x28, ("hw_slowdown", "sw_thermal_slowdown")),
        (0xC8, ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")),
        (0x112, ("applications_clocks_setting", "sync_boost", "display_clocks_setting")),
        (0x4004, ("sw_power_cap", "reason_0x4000")),
    ],
)
def test_a_mask_has_names(mask: int, names: tuple[str, ...]) -> None:
    assert throttle.named(mask) == names


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("clocks_throttle_reasons.sw_power_cap", "sw_power_cap"),
        ("clocks_event_reasons.hw_thermal_slowdown", "hw_thermal_slowdown"),
        ("clocks_throttle_reason_hw_power_brake_slowdown", "hw_power_brake_slowdown"),
        ("clocks_event_reasons_counters_sw_therm_slowdown", "sw_thermal_slowdown"),
        ("clocks_event_reasons_counters.hw_power_brake", "hw_power_brake_slowdown"),
        ("HW Power Braking", "hw_power_brake_slowdown"),
        ("SW Power Capping", "sw_power_cap"),
        ("Idle", "gpu_idle"),
        ("Display Clock Setting", "display_clocks_setting"),
    ],
)
def test_one_name_for_every_spelling(spelling: str, name: str) -> None:
    assert throttle.spelled(spelling) == name
    assert name in {known for _, known in throttle.BITS}


def test_a_power_cap_binds_where_the_card_works_at_its_limit() -> None:
    assert throttle.binding(BUSY) == ("sw_power_cap",)


@pytest.mark.parametrize(
    "change",
    [
        {"draw": reading.Draw(39.32)},
        {"draw": None},
        {"limits": reading.Limits()},
        {"utilization_percent": 0},
        {"utilization_percent": None},
        {"throttle": ()},
    ],
)
def test_the_flag_alone_is_no_proof(change: dict[str, Any]) -> None:
    assert throttle.binding(records.replace(BUSY, **change)) == ()


@pytest.mark.parametrize("reason", sorted(throttle.THERMAL | throttle.HARDWARE))
def test_heat_and_hardware_bind_whenever_they_are_active(reason: str) -> None:
    assert throttle.binding(reading.Card("GPU-1", throttle=(reason,))) == (reason,)
    assert reason in throttle.WORDS


@pytest.mark.parametrize("reason", ["applications_clocks_setting", "sync_boost", "display_clocks_setting"])
def test_what_somebody_set_is_no_throttle(reason: str) -> None:
    assert throttle.binding(reading.Card("GPU-1", throttle=(reason,))) == ()
    assert reason in throttle.WORDS


def test_a_counter_that_ran_on_is_proof_enough() -> None:
    before = reading.Card("GPU-1", violations_ns={"sw_power_cap": 100, "sw_thermal_slowdown": 7, "sync_boost": 1})
    now = reading.Card("GPU-1", violations_ns={"sw_power_cap": 101, "sw_thermal_slowdown": 7, "sync_boost": 9})
    assert throttle.binding(now, before) == ("sw_power_cap",)
    assert throttle.binding(now, now) == ()
    assert throttle.binding(before, now) == (), "counters start anew with the driver"
    assert throttle.binding(now, reading.Card("GPU-1")) == (), "a first count says nothing of since when"
