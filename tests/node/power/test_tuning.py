"""A sweep on the fake card: what it measures, whom it leaves alone, and that the value that was there comes back from wherever it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from typing import Any

import pytest

from tests.node import strict
from tests.node.power import fake, sweeping
from wattherd import errors
from wattherd.node import tuning, tuning_guard
from wattherd.policy import knee
from wattherd.power import look, memory, tuning_record
from wattherd.wire import fields


def steps(answer: Mapping[str, Any]) -> list[knee.Step]:
    return [fields.build(knee.Step, row) for row in answer["steps"]]


def measured(one: knee.Figure | None) -> knee.Figure:
    assert one is not None
    return one


def test_a_sweep_measures_each_step_and_sets_the_card_back(bench: strict.Bench) -> None:
    world = sweeping.world(bench, fake.Card(requested_w=280.0, violations_ns={"sw_power_cap": 0}))
    answer = world.tune()
    found = steps(answer)
    assert len(found) == 6
    assert (found[0].value, found[-1].value) == (350.0, 100.0)
    for one in found:
        for phase in knee.PHASES:
            figure = measured(one.figure(phase))
            expected_w = min(sweeping.NATURAL_W[phase], one.value)
            assert figure.watts == pytest.approx(expected_w, rel=0.01)
            assert figure.method == "energy counter"
            assert figure.settled
            assert figure.temperature_c == 65
            assert figure.throttled_percent == (100.0 if one.value < sweeping.NATURAL_W[phase] else 0.0)
            share = expected_w / sweeping.NATURAL_W[phase]
            speed = sweeping.FASTEST[phase] * (1 - (1 - share) * 0.12 if share >= 0.75 else 0.97 * share / 0.75)
            assert figure.tok_s == pytest.approx(speed, rel=0.02)
            assert figure.tok_j == pytest.approx(figure.tok_s / figure.watts)
    assert world.card.requested_w == 280.0
    assert answer["not_restored"] == []
    assert bench.machine.read(tuning_record.RECORD) is None
    advice = knee.recommend(found, knee.Wish())
    assert advice.step is not None
    assert 200 < advice.step.value < 350


def test_steps_begin_at_the_plateau_that_the_first_one_shows(bench: strict.Bench) -> None:
    """At 350 W prefill draws 330 by itself: no second step between there and 330 would differ."""
    values = [one.value for one in steps(sweeping.world(bench).tune())]
    assert values[0] == 350.0
    assert values[1] == 330.0
    assert values == sorted(values, reverse=True)


def test_the_bench_works_as_the_server_does(bench: strict.Bench) -> None:
    world = sweeping.world(bench)
    world.tune()
    assert world.process is not None
    words = " ".join(world.process.argv)
    assert f"-m {sweeping.MODEL}" in words
    assert "-ngl 999 -fa 1 -ctk q8_0 -t 4" in words
    assert world.process.environment["CUDA_VISIBLE_DEVICES"] == sweeping.UUID


def test_progress_and_steps_are_told(bench: strict.Bench) -> None:
    world = sweeping.world(bench)
    world.tune()
    told = [one for one in world.events if one["event"] == "step"]
    assert [one["done"] for one in told] == list(range(1, 13))
    assert told[-1]["left_s"] == 0
    assert 0 < told[5]["left_s"] < 600
    assert any("waiting until the watts lie still" in one.get("words", "") for one in world.events)


def test_a_check_touches_nothing(bench: strict.Bench) -> None:
    world = sweeping.world(bench)
    before = bench.tree()
    answer = world.tune(check=True)
    assert answer["plan"]["values"][0] == 350.0
    assert answer["plan"]["values"][-1] == 100.0
    assert answer["plan"]["seconds"] > 60
    assert answer["plan"]["load"] == "llama-bench"
    assert bench.tree() == before
    assert world.cards.set_calls == []


def test_without_an_energy_counter_samples_are_integrated(bench: strict.Bench) -> None:
    world = sweeping.world(bench, fake.Card(name="Tesla P40", energy_mj=None, max_w=250.0, default_w=250.0, min_w=125.0))
    for one in steps(world.tune()):
        figure = measured(one.decode)
        assert figure.method == "power samples"
        assert figure.watts == pytest.approx(min(270.0, one.value), rel=0.01)


def test_a_card_whose_draw_nobody_knows_is_told_so(bench: strict.Bench) -> None:
    world = sweeping.world(bench, fake.Card(energy_mj=None, draw_w=None))
    with pytest.raises(errors.Problem, match="does not say what it draws") as caught:
        world.tune()
    assert caught.value.code == "tune-unfit"
    assert world.card.requested_w == 350.0


# -- what is turned


def test_clock_ceilings_where_no_limit_can_be_set(bench: strict.Bench) -> None:
    """A laptop tells a range and takes none of it: found at the first try, remembered, and its clocks are swept instead."""
    world = sweeping.world(bench, fake.Card(faults={"limit-unsupported"}))
    answer = world.tune()
    found = steps(answer)
    assert {one.kind for one in found} == {"clocks_mhz"}
    assert found[0].value == 2100
    assert found[-1].value == 840
    assert world.card.locked_mhz is None
    assert "cannot be set" in " ".join(answer["plan"]["notes"])
    assert memory.unsupported(bench.machine, sweeping.UUID, "limit_w", world.cards.driver)


def test_our_own_clock_lock_comes_back(bench: strict.Bench) -> None:
    world = sweeping.world(bench, fake.Card(faults={"no-limit"}, locked_mhz=(0, 1400)))
    memory.keep_set(bench.machine, sweeping.UUID, "clocks_mhz", (0, 1400), look.look(bench.machine).epoch)
    world.tune()
    assert world.card.locked_mhz == (0, 1400)


def test_a_card_that_ignores_the_lock_is_not_tuned(bench: strict.Bench) -> None:
    world = sweeping.world(bench, fake.Card(faults={"no-limit", "deaf"}))
    with pytest.raises(errors.Problem, match="runs at 1950 MHz all the same") as caught:
        world.tune()
    assert caught.value.code == "tune-unfit"


def test_neither_limit_nor_clocks(bench: strict.Bench) -> None:
    """A P40 whose limit cannot be set has no clock lock either."""
    world = sweeping.world(bench, fake.Card(faults={"no-limit", "clocks-unsupported"}))
    with pytest.raises(errors.Problem) as caught:
        world.tune()
    assert caught.value.code == "tune-unfit"
    assert bench.machine.read(tuning_record.RECORD) is None


def test_a_limit_that_is_taken_and_does_not_stay_is_found_by_reading_back(bench: strict.Bench) -> None:
    world = sweeping.world(bench, fake.Card(faults={"deaf"}, requested_w=300.0))
    with pytest.raises(errors.Problem, match="was set to 350 W, and the card says 300 W") as caught:
        world.tune()
    assert caught.value.code == "power-failed"
    assert world.card.requested_w == 300.0


def test_no_permission_is_told_with_what_to_do(bench: strict.Bench) -> None:
    world = sweeping.world(bench, fake.Card(faults={"no-permission"}, requested_w=300.0))
    with pytest.raises(errors.Problem) as caught:
        world.tune()
    assert caught.value.code == "power-permission"
    assert "container" in caught.value.hint


def test_what_something_else_caps_is_told_and_swept_below(bench: strict.Bench) -> None:
    """An H100 whose BMC holds it at 500 of the 700 W that software asked for: steps above would measure 500 again."""
    card = fake.Card(name="NVIDIA H100", min_w=200.0, max_w=700.0, default_w=700.0, outside_cap_w=300.0)
    answer = sweeping.world(bench, card).tune()
    assert max(one.value for one in steps(answer)) == 300.0
    assert any("caps it at 300 W" in note for note in answer["plan"]["notes"])


def test_persistence_is_switched_on_for_the_while(bench: strict.Bench) -> None:
    """Without it the driver would forget the limit between two loads; afterwards it is off again."""
    world = sweeping.world(bench, fake.Card(persistence=False))
    world.tune()
    assert world.card.persistence is False
    assert any("-pm" in call and "1" in call for call in world.cards.set_calls)


# -- whom it leaves alone


def test_another_ones_job_is_left_alone_and_named(bench: strict.Bench) -> None:
    world = sweeping.world(bench)
    world.cards.hold(world.card, 4711, "python3", "user-1000.scope")
    with pytest.raises(errors.Problem, match="python3") as caught:
        world.tune()
    assert caught.value.code == "card-busy"
    assert "4711" in caught.value.message
    assert world.cards.set_calls == []


def test_work_that_nobody_is_seen_to_do_is_somebodys(bench: strict.Bench) -> None:
    world = sweeping.world(bench)
    world.cards.before_answer = lambda: setattr(world.card, "utilization_percent", 97)
    with pytest.raises(errors.Problem, match="load 97 %") as caught:
        world.tune()
    assert caught.value.code == "card-busy"


def test_the_free_one_of_two_cards_is_taken(bench: strict.Bench) -> None:
    other = fake.Card(uuid="GPU-22222222-1111-1111-1111-111111111111", bus="0000:02:00.0")
    world = sweeping.world(bench, fake.Card(), other)
    world.cards.hold(world.card, 4711, "python3")
    plan = world.tune(check=True)["plan"]
    assert [one["uuid"] for one in plan["cards"]] == [other.uuid]


@pytest.mark.parametrize(("asked", "words"), [("GPU-9", "no such card"), ("GPU-", "2 cards begin so")])
def test_a_card_that_cannot_be_told(bench: strict.Bench, asked: str, words: str) -> None:
    other = fake.Card(uuid="GPU-22222222-1111-1111-1111-111111111111", bus="0000:02:00.0")
    world = sweeping.world(bench, fake.Card(), other)
    with pytest.raises(errors.Problem, match=words) as caught:
        world.tune(card=asked)
    assert caught.value.code == "card-unknown"
    assert other.uuid in caught.value.hint


def test_a_lost_card_beside_a_healthy_one(bench: strict.Bench) -> None:
    lost = fake.Card(uuid="GPU-22222222-1111-1111-1111-111111111111", bus="0000:02:00.0", faults={"lost"})
    world = sweeping.world(bench, fake.Card(), lost)
    assert [one["uuid"] for one in world.tune(check=True)["plan"]["cards"]] == [sweeping.UUID]


def test_a_driver_that_does_not_answer(bench: strict.Bench) -> None:
    world = sweeping.world(bench)
    world.cards.silent = True
    with pytest.raises(errors.Problem) as caught:
        world.tune()
    assert caught.value.code == "driver-silent"


def test_no_release_and_no_model_say_deploy_first(bench: strict.Bench) -> None:
    world = sweeping.world(bench)
    bench.machine.unlink(sweeping.MODEL)
    with pytest.raises(errors.Problem, match="no model yet") as caught:
        world.tune()
    assert caught.value.code == "tune-load"
    assert "invoke deploy" in caught.value.hint
    with pytest.raises(errors.Problem, match="serves no model"):
        world.tune(servers=[])


def test_a_bench_that_fails_says_why(bench: strict.Bench) -> None:
    world = sweeping.world(bench)

    def crash() -> None:
        if world.process is not None:
            world.process.crash("ggml_cuda: CUDA error: out of memory\nmain: error: failed to load model 'small.gguf'\n")

    world.at_wait = crash
    with pytest.raises(errors.Problem, match="out of memory") as caught:
        world.tune()
    assert caught.value.code == "tune-load"
    assert world.card.requested_w == 350.0


# -- it comes back


class Cut(BaseException):
    """The end of the process in the middle: nothing of ours runs after it but what `finally` does."""


@pytest.mark.parametrize("at", range(1, 60, 3))
def test_a_lost_controller_at_any_moment(bench: strict.Bench, at: int) -> None:
    """The session's writer raises BrokenPipeError: whatever was being done, the card is as it was, and the load has ended."""
    world = sweeping.world(bench, fake.Card(requested_w=260.0, persistence=False))
    told = 0

    def emit(_message: Mapping[str, Any]) -> None:
        nonlocal told
        told += 1
        if told == at:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        tuning.tune(bench.machine, world.order(seconds_per_step=2.0), emit, world.start)
    assert world.card.requested_w == 260.0
    assert world.card.persistence is False
    assert bench.machine.read(tuning_record.RECORD) is None
    assert world.process is not None
    assert world.process.code is not None


@pytest.mark.parametrize("at", [1, 4, 9, 20, 45])
def test_killed_at_any_moment_the_guard_sets_it_back(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """kill -9: no `finally` runs. The kernel lets go of the lock, and the guard finds the record."""
    world = sweeping.world(bench, fake.Card(requested_w=260.0))
    with monkeypatch.context() as dead:
        dead.setattr(tuning_record, "restore", lambda _machine: tuning_record.Restored())

        def cut() -> None:
            if world.waits == at:
                raise Cut

        world.at_wait = cut
        with pytest.raises(Cut):
            world.tune()
    world.at_wait = None
    assert bench.machine.read(tuning_record.RECORD) is not None
    assert tuning_guard.watch(bench.machine) == 0
    assert world.card.requested_w == 260.0
    assert bench.machine.read(tuning_record.RECORD) is None


def left_over(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch, card: fake.Card, at: int = 12) -> sweeping.World:
    """A node whose sweep was killed in the middle, and whose guard died with it."""
    world = sweeping.world(bench, card)

    def cut() -> None:
        if world.waits == at:
            raise Cut

    with monkeypatch.context() as dead:
        dead.setattr(tuning_record, "restore", lambda _machine: tuning_record.Restored())
        world.at_wait = cut
        with pytest.raises(Cut):
            world.tune()
    world.at_wait = None
    return world


def test_the_next_session_or_the_keeper_sets_it_back(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    world = left_over(bench, monkeypatch, fake.Card(requested_w=260.0, persistence=False))
    words = tuning_record.recover(bench.machine)
    assert any("its power limit is 260 W again" in one for one in words)
    assert (world.card.requested_w, world.card.persistence) == (260.0, False)
    assert tuning_record.recover(bench.machine) == ()


def test_after_a_reboot_the_value_that_was_there_is_set_again(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    world = left_over(bench, monkeypatch, fake.Card(requested_w=260.0))
    world.cards.reboot()
    assert world.card.requested_w == 350.0
    tuning_record.recover(bench.machine)
    assert world.card.requested_w == 260.0
    assert bench.machine.read(tuning_record.RECORD) is None


def test_after_a_reboot_what_somebody_set_since_stays(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    world = left_over(bench, monkeypatch, fake.Card(requested_w=260.0))
    world.cards.reboot()
    world.card.requested_w = 300.0
    tuning_record.recover(bench.machine)
    assert world.card.requested_w == 300.0
    assert bench.machine.read(tuning_record.RECORD) is None


def test_a_silent_driver_keeps_the_record_for_the_next_try(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    world = left_over(bench, monkeypatch, fake.Card(requested_w=260.0))
    world.cards.silent = True
    assert any("could not be set back" in one for one in tuning_record.recover(bench.machine))
    assert bench.machine.read(tuning_record.RECORD) is not None
    world.cards.silent = False
    tuning_record.recover(bench.machine)
    assert world.card.requested_w == 260.0


def test_the_guard_tries_until_the_driver_answers_again(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    world = left_over(bench, monkeypatch, fake.Card(requested_w=260.0))
    world.cards.silent = True
    waits = world.waits

    def answers() -> None:
        world.cards.silent = world.waits - waits < 4

    world.at_wait = answers
    assert tuning_guard.watch(bench.machine) == 0
    assert world.card.requested_w == 260.0


def test_a_card_that_does_not_take_its_value_back_is_told(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    world = left_over(bench, monkeypatch, fake.Card(requested_w=260.0))
    world.card.requested_w = 100.0
    world.card.faults.add("deaf")
    assert any("is 100.0 W, not 260 W" in one for one in tuning_record.recover(bench.machine))
    assert bench.machine.read(tuning_record.RECORD) is not None


def test_a_living_sweep_is_nobody_elses_to_mend(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has the lock: the keeper leaves its card alone, and no session restores under it."""
    world = left_over(bench, monkeypatch, fake.Card(requested_w=260.0))
    handle = os.open(bench.machine.path(tuning_record.LOCK), os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert tuning_record.live(bench.machine) == {sweeping.UUID}
        assert tuning_record.recover(bench.machine) == ()
        assert bench.machine.read(tuning_record.RECORD) is not None
    finally:
        os.close(handle)
    assert tuning_record.live(bench.machine) == frozenset()
    tuning_record.recover(bench.machine)
    assert world.card.requested_w == 260.0


def test_no_second_sweep_while_one_runs(bench: strict.Bench) -> None:
    world = sweeping.world(bench)
    handle = os.open(bench.machine.path(tuning_record.LOCK), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(errors.Problem) as caught:
            world.tune()
    finally:
        os.close(handle)
    assert caught.value.code == "node-busy"
    assert world.cards.set_calls == []


def test_no_change_without_a_guard(bench: strict.Bench) -> None:
    world = sweeping.world(bench, guard=False)
    bench.runner.plan("systemd-run", strict.REST, code=1, err="Failed to connect to bus")
    bench.runner.plan("sh", strict.REST, code=1, err="setsid: not found")
    with pytest.raises(errors.Problem, match="no guard could be started") as caught:
        world.tune()
    assert caught.value.code == "command-failed"
    assert world.cards.set_calls == []
    assert bench.machine.read(tuning_record.RECORD) is None


def test_a_container_without_systemd_gets_a_guard_of_its_own(bench: strict.Bench) -> None:
    world = sweeping.world(bench, guard=False)
    bench.runner.plan("systemd-run", strict.REST, code=127, err="systemd-run: not found")
    bench.runner.plan("sh", strict.REST)
    world.tune()
    assert any("setsid --fork" in " ".join(argv) for argv in bench.runner.commands)


def test_a_damaged_record_is_put_aside(bench: strict.Bench) -> None:
    bench.put(tuning_record.RECORD, "{not json")
    assert tuning_record.recover(bench.machine) == ()
    assert bench.machine.read(tuning_record.RECORD) is None
    assert bench.machine.read(tuning_record.RECORD + ".damaged") == b"{not json"
