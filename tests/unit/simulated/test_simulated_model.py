"""The power model of a simulated card: idle, context, load, the plateau of high caps and the knee below it, counters, inertia."""

from __future__ import annotations

import dataclasses
import math

import pytest

from tests.lab.simulated import figures, model

CARD = figures.cards()["rtx_3090"]
BUSY = model.Load(held=True, busy=1.0)
HELD = model.Load(held=True)


def capped(watts: float) -> model.Moment:
    return model.settle(CARD, model.Settings(limit_w=watts), BUSY)


def test_empty_held_and_busy_are_three_levels() -> None:
    levels = [model.settle(CARD, model.Settings(), load).watts for load in (model.Load(), HELD, BUSY)]
    assert levels == [27.23, 62, 330]


def test_the_states_follow_the_levels() -> None:
    assert [model.settle(CARD, model.Settings(), load).pstate for load in (model.Load(), HELD, BUSY)] == [8, 2, 2]
    assert model.settle(CARD, model.Settings(), model.Load()).sm_mhz == 0  # as the capture of a 3090 in P8 printed it


def test_caps_above_the_natural_draw_do_nothing() -> None:
    full = capped(math.inf)
    assert [capped(watts) for watts in (375, 350, 330)] == [full] * 3
    assert (full.watts, full.speed, full.reasons) == (330, 1.0, 0)


def test_a_cap_below_it_is_kept_to_and_costs_clock_by_its_cube_root() -> None:
    for watts in (300, 250, 200, 150, 100):
        found = capped(watts)
        assert found.watts == pytest.approx(watts)
        assert found.sm_mhz == pytest.approx(2100 * ((watts - 62) / 268) ** (1 / 3))
        assert found.reasons == model.POWER_CAP


def test_work_per_joule_grows_as_the_cap_falls_and_the_last_watts_buy_little() -> None:
    caps = (330, 300, 250, 200, 150)
    efficiency = [capped(watts).speed / capped(watts).watts for watts in caps]
    assert efficiency == sorted(efficiency)
    assert capped(290).speed > 0.94  # an eighth of the watts for a twentieth of the speed


def test_a_least_clock_keeps_an_empty_card_awake() -> None:
    awake = model.settle(CARD, model.Settings(gpu_lock_mhz=(1860, 1860)), model.Load())
    assert awake.watts > 100
    assert awake.sm_mhz == 1860
    assert model.settle(CARD, model.Settings(gpu_lock_mhz=(0, 1400)), model.Load()).watts == 27.23


def test_a_greatest_clock_slows_without_being_a_power_cap() -> None:
    locked = model.settle(CARD, model.Settings(limit_w=350, gpu_lock_mhz=(0, 1050)), BUSY)
    assert (locked.sm_mhz, locked.speed, locked.reasons) == (1050, 0.5, 0)
    assert locked.watts == pytest.approx(62 + 268 / 8)


def test_locked_memory_slows_too() -> None:
    slow = model.settle(CARD, model.Settings(memory_lock_mhz=(0, 5001)), BUSY)
    assert slow.memory_mhz == 5001
    assert 0.6 < slow.speed < 0.8


def test_the_temperature_target_holds_it_back_as_heat_does() -> None:
    cool = model.settle(CARD, model.Settings(limit_w=350, target_c=65), BUSY)
    assert cool.reasons == model.THERMAL
    assert model.AMBIENT_C + cool.watts * (model.FULL_LOAD_C - model.AMBIENT_C) / 330 == pytest.approx(65)


def test_energy_is_the_area_under_the_watts_and_only_grows() -> None:
    now, settings = model.start(CARD), model.Settings(limit_w=250)
    energies = []
    for tick in range(100):
        now = model.step(CARD, now, settings, BUSY if tick < 50 else model.Load(), 0.2)
        energies.append(now.energy_mj)
    assert energies == sorted(energies)
    assert 27.23 * 20 * 1000 < now.energy_mj < 250 * 20 * 1000


def test_violations_count_only_while_the_cap_binds() -> None:
    now = model.start(CARD)
    for load in (model.Load(), HELD, BUSY):
        now = model.step(CARD, now, model.Settings(limit_w=350), load, 1.0)
    assert now.power_violation_ns == 0
    now = model.step(CARD, now, model.Settings(limit_w=200), BUSY, 1.5)
    assert now.power_violation_ns == pytest.approx(1.5e9)


def test_watts_and_temperature_follow_with_inertia() -> None:
    start = model.start(CARD)
    soon = model.step(CARD, start, model.Settings(), BUSY, 0.1)
    late = model.step(CARD, start, model.Settings(), BUSY, 120)
    assert start.watts < soon.average_w < soon.watts < 330
    assert soon.temperature_c < start.temperature_c + 1
    assert late.watts == pytest.approx(330, abs=0.1)
    assert late.temperature_c == pytest.approx(model.FULL_LOAD_C, abs=0.5)
    assert late.fan_percent > 50


@pytest.mark.parametrize("card", figures.cards().values(), ids=lambda card: card.id)
def test_every_card_keeps_to_its_least_limit_under_load(card: figures.Card) -> None:
    limit = max(card.min_w or 0, card.loaded_w + 1)
    found = model.settle(card, model.Settings(limit_w=limit), BUSY)
    assert found.watts <= max(limit, card.loaded_w + (card.full_w - card.loaded_w) * 0.1**3) + 1e-6
    assert card.empty_w <= card.loaded_w <= card.full_w
    assert dataclasses.asdict(found)["speed"] > 0
