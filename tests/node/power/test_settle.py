"""The one enforcer: what it writes, what it believes, what it remembers, and that it can be killed anywhere."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable, Sequence

import pytest

from tests import power_cases
from tests.node import strict
from tests.node.power import fake
from wattherd import errors
from wattherd import machine as machines
from wattherd.power import change, look, memory, reading, settings, settle, wanted

FIRST = "GPU-11111111-1111-1111-1111-111111111111"
SECOND = "GPU-22222222-2222-2222-2222-222222222222"


def limit(watts: float, uuid: str = FIRST) -> wanted.Policy:
    return wanted.Policy({uuid: wanted.CardPolicy(limit_w=watts)})


def apply(bench: strict.Bench, policy: wanted.Policy) -> tuple[settle.Step, ...]:
    return settle.apply(bench.machine, policy, look.look(bench.machine), bench.tell)


def restore(bench: strict.Bench, only: tuple[str, str] | None = None) -> tuple[settle.Step, ...]:
    return settle.restore(bench.machine, look.look(bench.machine), bench.tell, only=only)


def only(steps: tuple[settle.Step, ...]) -> settle.Step:
    assert len(steps) == 1, steps
    return steps[0]


def code(step: settle.Step) -> str:
    assert step.problem is not None, step
    return step.problem.code


def told(step: settle.Step) -> str:
    """What a person is told of a failure: message and hint."""
    assert step.problem is not None, step
    return f"{step.problem.message} {step.problem.hint}"


# -- what is written, and believed


def test_apply_pl_success(bench: strict.Bench) -> None:
    """Verified by reading back; 350 W is remembered, read before and not parsed from the sentence."""
    wish = re.search(r"want (\d+) W; before: power\.limit ([\d.]+)", power_cases.case("apply-pl-success").input)
    assert wish
    card = fake.Card(min_w=100, max_w=400, default_w=400, requested_w=float(wish.group(2)))
    fake.Cards(bench, [card])
    step = only(apply(bench, limit(float(wish.group(1)))))
    assert (step.outcome, step.was, step.now) == (settle.CHANGED, "350 W", "210 W")
    assert card.requested_w == 210
    assert memory.before(bench.machine) == {FIRST: {"limit_w": [350.0]}}, "the tool's own sentence says: from 400"


def test_nothing_is_written_when_all_is_as_wanted(bench: strict.Bench) -> None:
    cards = fake.Cards(bench, [fake.Card(requested_w=250)])
    seen = look.look(bench.machine)
    before = bench.tree()
    assert settle.apply(bench.machine, limit(250), seen, bench.tell) == ()
    assert settle.apply(bench.machine, limit(250.3), seen, bench.tell) == (), "a card may keep whole watts only"
    assert cards.set_calls == []
    assert bench.tree() == before


def test_settings_are_made_in_order_and_read_back_at_once(bench: strict.Bench) -> None:
    cards = fake.Cards(bench, [fake.Card(persistence=False)])
    policy = wanted.CardPolicy(250, (0, 1400), (0, 5001), persistence=True, temperature_c=75)
    steps = apply(bench, wanted.Policy({FIRST: policy}))
    assert [(step.setting, step.outcome) for step in steps] == [(setting, settle.CHANGED) for setting in settings.COUNTS]
    assert [call[2] for call in cards.set_calls] == ["-pm", "-pl", "-gtt", "-lgc", "-lmc"], (
        "without persistence the others may be forgotten"
    )
    assert cards.looks == 2
    assert apply(bench, wanted.Policy({FIRST: policy})) == ()
    assert len(cards.set_calls) == 5


def test_a_write_that_reaches_one_card_only_is_repeated(bench: strict.Bench) -> None:
    """At boot a single -pl may hit only the display card."""
    cards = fake.Cards(bench, [fake.Card(), fake.Card(uuid=SECOND, bus="0000:02:00.0", faults={"deaf"})])

    def later() -> None:
        if len(cards.set_calls) >= 3:
            cards.cards[1].faults.clear()

    cards.before_answer = later
    steps = apply(bench, wanted.Policy({**limit(250).cards, **limit(200, SECOND).cards}))
    assert [step.outcome for step in steps] == [settle.CHANGED, settle.CHANGED]
    assert (cards.cards[0].requested_w, cards.cards[1].requested_w) == (250, 200)
    assert [call[1] for call in cards.set_calls] == [FIRST, SECOND, SECOND, SECOND], "the card that was set is not set again"


def test_a_card_that_says_done_and_is_not_has_failed(bench: strict.Bench) -> None:
    cards = fake.Cards(bench, [fake.Card(faults={"deaf"})])
    step = only(apply(bench, limit(250)))
    assert (step.outcome, code(step)) == (settle.FAILED, "power-failed")
    assert "is 350 W after it was set to 250 W" in told(step)
    assert len(cards.set_calls) == settle.TRIES


def test_without_persistence_the_reason_is_named(bench: strict.Bench) -> None:
    """No client, no persistence: the driver lets the card go after each call, and forgets."""
    cards = fake.Cards(bench, [fake.Card(persistence=False)])
    cards.before_answer = lambda: cards.release(cards.cards[0])
    step = only(apply(bench, limit(250)))
    assert "persistence: true" in told(step)


def test_something_else_holds_the_card_lower(bench: strict.Bench) -> None:
    """smi-enforced-below-requested: 700 W asked for, a BMC holds 500. What software asked for is applied, and the other is named."""
    card = fake.Card(name="NVIDIA H100 80GB HBM3", min_w=200, max_w=700, default_w=700, outside_cap_w=500)
    fake.Cards(bench, [card])
    step = only(apply(bench, limit(600)))
    assert step.outcome == settle.CHANGED
    assert "something else holds the card at 500 W" in step.words
    assert apply(bench, limit(600)) == (), "and that is no drift"


def test_apply_pl_unsupported_rc0(bench: strict.Bench) -> None:
    """Not applied whatever the exit code; not tried again each cycle; tried anew by another driver."""
    assert "rc=0" in power_cases.case("apply-pl-unsupported-rc0").input
    cards = fake.Cards(bench, [fake.Card(name="NVIDIA GeForce RTX 4080 Laptop GPU", faults={"limit-unsupported"})])
    step = only(apply(bench, limit(175)))
    assert step.outcome == settle.UNSUPPORTED
    assert "use clocks instead" in step.words
    assert len(cards.set_calls) == 1
    assert memory.before(bench.machine) == {}, "nothing was changed, so there is nothing to go back to"
    assert only(apply(bench, limit(175))).outcome == settle.UNSUPPORTED
    assert len(cards.set_calls) == 1
    cards.driver = "595.80"
    cards.cards[0].faults.clear()
    assert only(apply(bench, limit(175))).outcome == settle.CHANGED


def test_a_card_without_a_limit_is_not_even_asked(bench: strict.Bench) -> None:
    """GB10: its limits read N/A."""
    cards = fake.Cards(bench, [fake.Card(name="NVIDIA GB10", faults={"no-limit"}, temperature_target_c=None)])
    policy = wanted.Policy({FIRST: wanted.CardPolicy(limit_w=100, clocks_mhz=(0, 2200), temperature_c=70)})
    steps = {step.setting: step for step in apply(bench, policy)}
    assert {setting: step.outcome for setting, step in steps.items()} == {
        "limit_w": settle.UNSUPPORTED,
        "temperature_c": settle.UNSUPPORTED,
        "clocks_mhz": settle.CHANGED,
    }
    assert [call[2] for call in cards.set_calls] == ["-lgc"]


def test_apply_pl_out_of_range(bench: strict.Bench) -> None:
    """Refused before the call: min and max were read first."""
    cards = fake.Cards(bench, [fake.Card(name="Tesla T4", min_w=60, max_w=70, default_w=70)])
    asked = re.search(r"-pl (\d+)", power_cases.case("apply-pl-out-of-range").input)
    assert asked
    step = only(apply(bench, limit(float(asked.group(1)))))
    assert code(step) == "power-range"
    assert "150 W is more than this card takes: 60 to 70 W" in told(step)
    assert cards.set_calls == []


def test_a_range_that_only_the_tool_knows_is_told(bench: strict.Bench) -> None:
    card = fake.Card(min_w=60, max_w=70, default_w=70)
    fake.Cards(bench, [card])
    seen = look.look(bench.machine)
    blind = reading.Look((reading.Card(FIRST, limits=reading.Limits(requested_w=70.0)),), driver=seen.driver, epoch=seen.epoch)
    step = only(settle.apply(bench.machine, limit(150), blind, bench.tell))
    assert code(step) == "power-range"
    assert "it takes 60 W to 70 W" in told(step)


def test_apply_pl_no_permission(bench: strict.Bench) -> None:
    assert "rc=4" in power_cases.case("apply-pl-no-permission").input
    cards = fake.Cards(bench, [fake.Card(faults={"no-permission"})])
    step = only(apply(bench, limit(120)))
    assert code(step) == "power-permission"
    assert "SYS_ADMIN" in told(step)
    assert len(cards.set_calls) == 1, "asking again changes nothing"


def test_persistence_is_believed_when_read(bench: strict.Bench) -> None:
    """The field's transcript: refused, claimed all the same, exit code 0. Only what the card says counts."""
    cards = fake.Cards(bench, [fake.Card(persistence=False, faults={"no-permission"})])
    policy = wanted.Policy({FIRST: wanted.CardPolicy(persistence=True)})
    assert code(only(apply(bench, policy))) == "power-permission"

    def really() -> None:
        if len(cards.set_calls) == 2:
            cards.cards[0].persistence = True

    cards.before_answer = really
    assert only(apply(bench, policy)).outcome == settle.CHANGED


def test_smi_gpu_lost(bench: strict.Bench) -> None:
    """A card that falls off the bus in the middle: nothing is applied to it, its neighbour is set."""
    assert "GPU is lost" in power_cases.case("smi-gpu-lost").input
    gone = fake.Card(bus="0000:02:00.0")
    cards = fake.Cards(bench, [gone, fake.Card(uuid=SECOND, bus="0000:01:00.0")])
    seen = look.look(bench.machine)
    gone.faults.add("lost")
    steps = {
        step.uuid: step
        for step in settle.apply(bench.machine, wanted.Policy({**limit(250).cards, **limit(200, SECOND).cards}), seen, bench.tell)
    }
    assert code(steps[FIRST]) == "card-lost"
    assert "reboot this node" in told(steps[FIRST])
    assert (steps[SECOND].outcome, cards.card(SECOND).requested_w) == (settle.CHANGED, 200)
    before = len(cards.set_calls)
    again = only(apply(bench, wanted.Policy({**limit(250).cards, **limit(200, SECOND).cards})))
    assert code(again) == "card-lost"
    assert len(cards.set_calls) == before, "a card that is known to be lost is left alone"


def test_a_driver_that_hangs_is_asked_once(bench: strict.Bench) -> None:
    cards = fake.Cards(bench, [fake.Card(), fake.Card(uuid=SECOND, bus="0000:02:00.0")])
    cards.silent = True
    steps = apply(bench, wanted.Policy({**limit(250).cards, **limit(200, SECOND).cards}))
    assert [code(step) for step in steps] == ["driver-silent", "driver-silent"]
    assert cards.set_calls == []


def test_driver_and_library_of_two_versions(bench: strict.Bench) -> None:
    cards = fake.Cards(bench, [fake.Card()])
    cards.mismatch = True
    step = only(apply(bench, limit(250)))
    assert code(step) == "driver-mismatch"
    assert cards.set_calls == []


def test_no_tool_to_write_with(bench: strict.Bench) -> None:
    """NVML reads, and nvidia-smi is not there: told with what to install."""
    fake.Cards(bench, [fake.Card()]).missing = True
    step = only(apply(bench, limit(250)))
    assert code(step) == "power-failed"
    assert "install the tools of the driver" in told(step)


def test_a_policy_that_is_no_longer_wanted_is_not_set(bench: strict.Bench) -> None:
    """Read before the lock was had, taken back meanwhile."""
    cards = fake.Cards(bench, [fake.Card()])
    assert settle.apply(bench.machine, limit(250), look.look(bench.machine), bench.tell, still=lambda: False) == ()
    assert cards.set_calls == []
    assert memory.changed(bench.machine) == {}


def test_a_card_that_sleeps_is_left_asleep(bench: strict.Bench) -> None:
    """Nothing can be read of it, which is neither a fault nor a card without settings."""
    asleep = reading.Look((reading.Card(FIRST, suspended=True),), driver="580.95.05", epoch="one")
    assert settle.apply(bench.machine, limit(250), asleep, bench.tell) == (), "and no program is run"
    assert "sleeps" in settle.obstacle(bench.machine, asleep, asleep.cards[0], "limit_w")


@pytest.mark.parametrize(
    ("capability", "setting", "can"),
    [
        ((6, 1), "clocks_mhz", False),
        ((7, 0), "clocks_mhz", True),
        ((7, 5), "memory_clocks_mhz", False),
        ((8, 6), "memory_clocks_mhz", True),
        ((), "clocks_mhz", True),
        ((6, 1), "limit_w", True),
    ],
)
def test_what_a_card_is_too_old_for_is_known_beforehand(capability: tuple[int, ...], setting: str, can: bool) -> None:
    """Pascal has no clock lock, Turing no memory lock: a check can say so. Of an unknown card nothing is concluded."""
    card = reading.Card(FIRST, limits=reading.Limits(requested_w=250.0), capability=capability)
    assert (settings.cannot(card, setting) == "") is can


def test_only_one_at_a_time_changes_cards(bench: strict.Bench) -> None:
    fake.Cards(bench, [fake.Card()])
    with memory.alone(bench.machine), pytest.raises(errors.Problem) as caught:
        apply(bench, limit(250))
    assert caught.value.code == "node-busy"
    assert only(apply(bench, limit(250))).outcome == settle.CHANGED


# -- clocks, which nobody can read


def test_apply_lgc_ok_but_volatile(bench: strict.Bench) -> None:
    """Applied, and it is said that it will not last."""
    assert "persistence mode is disabled" in power_cases.case("apply-lgc-ok-but-volatile").input
    card = fake.Card(name="NVIDIA A10", persistence=False)
    fake.Cards(bench, [card])
    step = only(apply(bench, wanted.Policy({FIRST: wanted.CardPolicy(clocks_mhz=(0, 1400))})))
    assert (step.outcome, card.locked_mhz) == (settle.CHANGED, (0, 1400))
    assert "lost whenever the driver lets the card go" in step.words


def test_a_lock_is_set_once_in_each_life_of_the_driver(bench: strict.Bench) -> None:
    cards = fake.Cards(bench, [fake.Card()])
    policy = wanted.Policy({FIRST: wanted.CardPolicy(clocks_mhz=(0, 1400))})
    assert only(apply(bench, policy)).now == "0 to 1400 MHz"
    assert apply(bench, policy) == ()
    cards.reload()
    assert only(apply(bench, policy)).outcome == settle.CHANGED
    cards.reboot()
    assert only(apply(bench, policy)).outcome == settle.CHANGED
    assert cards.cards[0].locked_mhz == (0, 1400)
    memory.drop_lock(bench.machine, FIRST, "clocks_mhz")
    assert only(apply(bench, policy)).outcome == settle.CHANGED
    assert memory.before(bench.machine) == {FIRST: {"clocks_mhz": []}}


def test_a_driver_that_is_loaded_anew_right_after_the_write_took_the_lock_with_it(bench: strict.Bench) -> None:
    cards = fake.Cards(bench, [fake.Card()])
    real, reloads = bench.runner, [1]

    def reloading(argv: Sequence[str], *words: object) -> machines.Result:
        done = real(argv, *words)  # type: ignore[arg-type]
        if "-lgc" in argv and reloads:
            reloads.pop()
            cards.reload()
        return done

    machine = strict.Machine(bench.machine.root, reloading)
    step = only(settle.apply(machine, wanted.Policy({FIRST: wanted.CardPolicy(clocks_mhz=(0, 1400))}), look.look(machine), bench.tell))
    assert (step.outcome, cards.cards[0].locked_mhz) == (settle.CHANGED, (0, 1400))


def test_apply_lgc_unsupported_four_gpus(bench: strict.Bench) -> None:
    """K80: four cards, four verdicts, none applied."""
    buses = sorted(change.per_card(power_cases.case("apply-lgc-unsupported-four-gpus").input))
    four = [
        fake.Card(uuid=f"GPU-{at}", name="Tesla K80", bus=bus[4:].lower(), faults={"clocks-unsupported"}) for at, bus in enumerate(buses)
    ]
    cards = fake.Cards(bench, four)
    policy = wanted.Policy({card.uuid: wanted.CardPolicy(clocks_mhz=(0, 560)) for card in four})
    steps = apply(bench, policy)
    assert [step.outcome for step in steps] == [settle.UNSUPPORTED] * 4
    assert {step.uuid for step in steps} == {card.uuid for card in four}
    assert "Volta or newer" in steps[0].words
    assert len(cards.set_calls) == 4
    apply(bench, policy)
    assert len(cards.set_calls) == 4
    assert memory.changed(bench.machine) == {}


def test_memory_clocks_of_a_turing_card(bench: strict.Bench) -> None:
    fake.Cards(bench, [fake.Card(name="NVIDIA GeForce RTX 2080 SUPER", faults={"memory-clocks-unsupported"})])
    step = only(apply(bench, wanted.Policy({FIRST: wanted.CardPolicy(memory_clocks_mhz=(0, 5000))})))
    assert (step.outcome, step.words) == (settle.UNSUPPORTED, "this card's memory clocks cannot be locked (that takes Ampere or newer)")


@pytest.mark.parametrize(
    ("sm_mhz", "memory_mhz", "words"),
    [
        (1400, 5001, ""),
        (1440, 5001, ""),
        (210, 405, ""),
        (None, None, ""),
        (1860, 5001, "it runs at 1860 MHz, and its clock range ends at 1400 MHz"),
        (1400, 9751, "it runs at 9751 MHz, and its memory clock range ends at 5001 MHz"),
    ],
)
def test_a_clock_above_its_ceiling_betrays_a_lost_lock(sm_mhz: int | None, memory_mhz: int | None, words: str) -> None:
    card = reading.Card(FIRST, clocks=reading.Clocks(sm_mhz, memory_mhz))
    found = settle.clock_suspect(card, wanted.CardPolicy(clocks_mhz=(0, 1400), memory_clocks_mhz=(0, 5001)))
    assert words in found
    assert bool(found) == bool(words)


def test_a_range_beyond_what_the_card_runs_is_doubted_and_no_other() -> None:
    card = reading.Card(FIRST, name="NVIDIA GeForce RTX 3090 Ti", clocks=reading.Clocks(sm_max_mhz=1950, memory_max_mhz=10501))
    assert "never runs faster than 1950 MHz" in settings.doubts(card, "clocks_mhz", (0.0, 2100.0))[0]
    assert "never runs faster than 10501 MHz" in settings.doubts(card, "memory_clocks_mhz", (0.0, 10600.0))[0]
    assert settings.doubts(card, "clocks_mhz", (210.0, 1950.0)) == (), "the controller says it, once for all cards of a kind"
    assert settings.doubts(reading.Card(FIRST), "clocks_mhz", (0.0, 9000.0)) == (), "a card that does not say how fast it runs"


# -- going back


def test_apply_restore_previous_not_default(bench: strict.Bench) -> None:
    """A 4090 run at 250 W by its owner goes back to 250 W, not to the card's own 480."""
    figures = [
        float(one)
        for one in re.findall(
            r"(?:power\.limit|default_limit|night cap) ([\d.]+)", power_cases.case("apply-restore-previous-not-default").input
        )
    ]
    assert figures == [250.0, 480.0, 150.0]
    card = fake.Card(name="NVIDIA GeForce RTX 4090", min_w=150, max_w=480, default_w=figures[1], requested_w=figures[0])
    fake.Cards(bench, [card])
    apply(bench, limit(figures[2]))
    apply(bench, limit(200))
    assert memory.before(bench.machine) == {FIRST: {"limit_w": [250.0]}}, "never overwritten by a later change"
    step = only(restore(bench))
    assert (step.outcome, step.was, step.now) == (settle.CHANGED, "200 W", "250 W")
    assert card.requested_w == 250
    assert memory.changed(bench.machine) == {}
    assert restore(bench) == ()


def test_a_restore_goes_the_other_way_round(bench: strict.Bench) -> None:
    cards = fake.Cards(bench, [fake.Card(persistence=False)])
    apply(bench, wanted.Policy({FIRST: wanted.CardPolicy(250, (0, 1400), persistence=True)}))
    cards.set_calls.clear()
    steps = restore(bench)
    assert [call[2] for call in cards.set_calls] == ["-rgc", "-pl", "-pm"], "persistence last, or the driver forgets what was set back"
    assert {step.setting: step.now for step in steps} == {"clocks_mhz": "free", "limit_w": "350 W", "persistence": "off"}
    card = cards.cards[0]
    assert (card.locked_mhz, card.requested_w, card.persistence) == (None, 350, False)


def test_one_setting_goes_back_alone(bench: strict.Bench) -> None:
    cards = fake.Cards(bench, [fake.Card()])
    apply(bench, wanted.Policy({FIRST: wanted.CardPolicy(250, (0, 1400))}))
    assert only(restore(bench, (FIRST, "limit_w"))).now == "350 W"
    assert cards.cards[0].locked_mhz == (0, 1400)
    assert memory.changed(bench.machine) == {FIRST: ("clocks_mhz",)}


def test_a_card_that_is_lost_keeps_its_record_until_it_is_back(bench: strict.Bench) -> None:
    cards = fake.Cards(bench, [fake.Card()])
    apply(bench, limit(250))
    cards.cards[0].faults.add("lost")
    assert code(only(restore(bench))) == "card-lost"
    cards.cards[0].faults.clear()
    assert only(restore(bench)).now == "350 W"


def test_a_lost_record_leads_to_the_cards_own_default_and_says_so(bench: strict.Bench) -> None:
    card = fake.Card(requested_w=300)
    fake.Cards(bench, [card])
    apply(bench, limit(250))
    pathlib.Path(bench.machine.path(memory.BEFORE)).write_text("{ half a rec")
    apply(bench, limit(200))
    assert memory.before(bench.machine) == {FIRST: {"limit_w": None}}, "250 W were ours: nobody's value before"
    assert bench.machine.text(memory.BEFORE + ".damaged") == "{ half a rec"
    step = only(restore(bench))
    assert (step.now, card.requested_w) == ("350 W", 350)
    assert "not known" in step.words


def test_smi_csv_unknown_error_default(bench: strict.Bench) -> None:
    """No default, no record: it stays as it is, and that is said. With a record the default is not needed."""
    assert "[Unknown Error]" in power_cases.case("smi-csv-unknown-error-default").input
    card = fake.Card(name="GeForce RTX 2080 Ti", default_w=250, max_w=300, requested_w=210, faults={"default-unknown"})
    fake.Cards(bench, [card])
    apply(bench, limit(180))
    assert only(restore(bench)).now == "210 W"
    apply(bench, limit(180))
    bench.machine.unlink(memory.BEFORE)
    step = only(restore(bench))
    assert (step.outcome, card.requested_w) == (settle.UNSUPPORTED, 180)
    assert "not known: it stays as it is" in step.words


# -- killed anywhere


class Cut(BaseException):
    """The power goes out."""


class Cards(fake.Cards):
    """Cards whose node loses power at the `moment`-th answer of the outside world: before it (`late` False), or right after what it did."""

    moment = 0
    late = False
    answers = 0

    def _read(self, argv: Sequence[str]) -> machines.Result:
        return self._answer(super()._read, argv)

    def _smi(self, argv: Sequence[str]) -> machines.Result:
        return self._answer(super()._smi, argv)

    def _answer(self, real: Callable[[Sequence[str]], machines.Result], argv: Sequence[str]) -> machines.Result:
        self.answers += 1
        if self.answers == self.moment and not self.late:
            raise Cut
        done = real(argv)
        if self.answers == self.moment:
            raise Cut
        return done

    def killed(self, moment: int, work: Callable[[strict.Bench], object]) -> bool:
        """True when `work` was cut short there; False when it ended before."""
        self.answers, self.moment = 0, moment
        try:
            work(self.bench)
        except Cut:
            return True
        finally:
            self.moment = 0
        return False


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("moment", range(1, 7))
def test_killed_anywhere_the_next_call_converges(bench: strict.Bench, moment: int, late: bool) -> None:
    """Asked for: a look, three writes, a look. The sixth moment is after all of it."""
    card = fake.Card(persistence=False, requested_w=300)
    cards = Cards(bench, [card])
    cards.late = late
    policy = wanted.Policy({FIRST: wanted.CardPolicy(250, (0, 1400), persistence=True)})
    assert cards.killed(moment, lambda bench: apply(bench, policy)) is (moment < 6)
    apply(bench, policy)
    assert (card.requested_w, card.locked_mhz, card.persistence) == (250, (0, 1400), True)
    assert apply(bench, policy) == ()
    assert memory.before(bench.machine) == {FIRST: {"limit_w": [300.0], "persistence": [0.0], "clocks_mhz": []}}
    assert cards.killed(moment, restore) is (moment < 6)
    restore(bench)
    assert (card.requested_w, card.locked_mhz, card.persistence) == (300, None, False)
    assert memory.changed(bench.machine) == {}
