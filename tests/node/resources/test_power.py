"""Cards in a whole run: what refuses the host beforehand, what fails alone, what is skipped, what a check foresees, and the way back."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from tests.node import strict
from tests.node.power import fake
from wattherd import errors, resources
from wattherd.node import session
from wattherd.power import memory, wanted
from wattherd.resources import base, directory, power
from wattherd.wire import manifest

FIRST = "GPU-5f1d6c1a-9a0b-4c3d-8e2f-0123456789ab"
SECOND = "GPU-77aa88bb-1234-4567-89ab-cdef01234567"
TYPO = "GPU-77aa88bb-1234-4567-89ab-cdef01234566"
AFTER = "/srv/after"


def two(bench: strict.Bench) -> fake.Cards:
    bench.folder("/srv")
    bench.folder("/run")
    bench.runner.plan("systemctl", "show", strict.REST, times=None)
    return fake.Cards(bench, [fake.Card(uuid=FIRST), fake.Card(uuid=SECOND, bus="0000:02:00.0")])


def after(bench: strict.Bench) -> directory.Directory:
    return directory.Directory(AFTER, owner=bench.me, group=bench.my_group)


def verb(bench: strict.Bench, word: str, *made: base.Resource, **order: object) -> list[dict[str, Any]]:
    """One verb of a session with this manifest; its events."""
    body = manifest.encode(manifest.Manifest("here", tuple(resources.encode(one, role="power") for one in made)))
    source = json.dumps({"verb": word, "bytes": len(body), **order}).encode() + b"\n" + body
    sink = io.BytesIO()
    one = session.Session(bench.machine, io.BytesIO(source), sink)
    one.emit(one.answer(one.source.readline()))
    return [json.loads(each) for each in sink.getvalue().splitlines()]


def ids(said: list[dict[str, Any]], word: str) -> list[str]:
    return [one["id"] for one in said if one["event"] == word]


def problem(said: list[dict[str, Any]], name: str) -> errors.Problem:
    return next(errors.Problem.from_dict(one["problem"]) for one in said if one["event"] == "failed" and one["id"] == name)


def words(said: list[dict[str, Any]], word: str) -> str:
    return " | ".join(str(one.get("words", one.get("reason", ""))) for one in said if one["event"] == word)


def limit(uuid: str, watts: float) -> power.Power:
    return power.Power(uuid, "limit_w", (watts,), "RTX 3090")


def test_a_run_changes_what_its_check_names_and_a_second_one_nothing(bench: strict.Bench) -> None:
    cards = two(bench)
    made = (limit(FIRST, 250), limit(SECOND, 350), power.Power(FIRST, "clocks_mhz", (0, 1400)), after(bench))
    before = bench.tree()
    foreseen = verb(bench, "check", *made)
    assert bench.tree() == before
    assert cards.set_calls == []
    done = verb(bench, "apply", *made)
    assert ids(done, "changed") == ids(foreseen, "would_change") == [made[0].id, made[2].id, made[3].id]
    assert next(one for one in done if one["event"] == "changed")["delta"] == {"limit_w": ["350 W", "250 W"]}
    assert (cards.cards[0].requested_w, cards.cards[0].locked_mhz) == (250, (0, 1400))
    assert ids(verb(bench, "apply", *made), "ok") == [one.id for one in made]


def test_one_typo_among_two_cards_refuses_the_host(bench: strict.Bench) -> None:
    """The operator's own slip: nothing is touched, not even the card that is right; the nearest and those that are there are named."""
    cards = two(bench)
    made = (limit(FIRST, 250), limit(TYPO, 250), after(bench))
    for word in ("check", "apply"):
        said = verb(bench, word, *made)
        assert ids(said, "failed") == [f"power:{TYPO}/limit_w"]
        refused = problem(said, f"power:{TYPO}/limit_w")
        assert refused.code == "card-unknown"
        assert f"the nearest is {SECOND}" in refused.message
        assert FIRST in refused.hint
        assert SECOND in refused.hint
    assert cards.set_calls == []
    assert not bench.machine.exists(AFTER)


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("limit_w", (400,), "400 W is more than this card takes: 100 to 350 W"),
        ("limit_w", (99.5,), "99.5 W is less than this card takes: 100 to 350 W"),
        ("temperature_c", (95,), "95 °C is more than this card takes: 65 to 91 °C"),
        ("clocks_mhz", (2200, 2300), "2200 MHz is more than this card takes: up to 2100 MHz"),
        ("clocks_mhz", (1400, 210), "ends before it begins"),
        ("memory_clocks_mhz", (9752, 9752), "up to 9751 MHz"),
    ],
)
def test_a_value_outside_its_range_refuses_the_host(bench: strict.Bench, setting: str, value: tuple[float, ...], told: str) -> None:
    cards = two(bench)
    wrong = power.Power(SECOND, setting, value)
    said = verb(bench, "apply", limit(FIRST, 250), wrong, after(bench))
    refused = problem(said, wrong.id)
    assert refused.code == "power-range"
    assert told in refused.message
    assert "RTX 3090" in refused.message
    assert cards.set_calls == []
    assert not bench.machine.exists(AFTER)


def test_a_lost_card_fails_alone(bench: strict.Bench) -> None:
    """A fault of the hardware: its neighbour is set, and so is everything else of the run. A check says the same beforehand."""
    cards = two(bench)
    cards.cards[0].faults.add("lost")
    made = (limit(FIRST, 250), limit(SECOND, 250), after(bench))
    foreseen = verb(bench, "check", *made)
    done = verb(bench, "apply", *made)
    for said, changed in ((foreseen, "would_change"), (done, "changed")):
        assert ids(said, "failed") == [made[0].id]
        assert problem(said, made[0].id).code == "card-lost"
        assert problem(said, made[0].id).message == "NVIDIA GeForce RTX 3090 GPU-5f1d6c1a: lost (Xid 79): reboot this node"
        assert ids(said, changed) == [made[1].id, made[2].id]
    assert (cards.cards[0].requested_w, cards.cards[1].requested_w) == (350, 250)
    assert bench.machine.is_dir(AFTER)


def test_a_card_that_was_here_and_is_not_listed_any_more_is_lost_and_no_typo(bench: strict.Bench) -> None:
    cards = two(bench)
    verb(bench, "apply", limit(FIRST, 250), limit(SECOND, 250))
    gone = cards.cards.pop(0)
    bench.machine.remove_tree(f"/proc/driver/nvidia/gpus/{gone.bus}")
    said = verb(bench, "apply", limit(FIRST, 200), limit(SECOND, 200), after(bench))
    assert problem(said, f"power:{FIRST}/limit_w").code == "card-lost"
    assert "was in this node" in problem(said, f"power:{FIRST}/limit_w").message
    assert ids(said, "changed") == [f"power:{SECOND}/limit_w", f"directory:{AFTER}"]


@pytest.mark.parametrize(("fault", "code"), [("silent", "driver-silent"), ("mismatch", "driver-mismatch")])
def test_a_driver_that_cannot_be_asked_fails_the_cards_alone(bench: strict.Bench, fault: str, code: str) -> None:
    cards = two(bench)
    setattr(cards, fault, True)
    said = verb(bench, "apply", limit(FIRST, 250), limit(SECOND, 250), after(bench))
    assert {problem(said, f"power:{uuid}/limit_w").code for uuid in (FIRST, SECOND)} == {code}
    assert ids(said, "changed") == [f"directory:{AFTER}"]
    assert cards.set_calls == []


def test_what_a_card_cannot_have_is_skipped_by_what_it_says_what_it_answers_and_what_the_controller_knows(bench: strict.Bench) -> None:
    cards = two(bench)
    cards.cards[0].faults = {"no-limit"}
    cards.cards[1].faults = {"clocks-unsupported"}
    reads = limit(FIRST, 250)
    answers = power.Power(SECOND, "clocks_mhz", (0, 1400))
    told = power.Power(SECOND, "memory_clocks_mhz", unfit="Pascal: its memory clocks cannot be locked")
    said = verb(bench, "apply", reads, answers, told, after(bench))
    assert ids(said, "skipped") == [reads.id, answers.id, told.id]
    assert "use clocks instead" in words(said, "skipped")
    assert "Volta or newer" in words(said, "skipped")
    assert "Pascal" in words(said, "skipped")
    assert said[-1].get("failed") == 0, said[-1]
    calls = len(cards.set_calls)
    again = verb(bench, "apply", reads, answers, told, after(bench))
    assert ids(again, "skipped") == [reads.id, answers.id, told.id]
    assert len(cards.set_calls) == calls, "not tried again"
    assert ids(verb(bench, "check", reads, answers, told), "skipped") == [reads.id, answers.id, told.id]


def test_what_a_person_should_hear(bench: strict.Bench) -> None:
    cards = two(bench)
    cards.cards[0].persistence = False
    cards.cards[1].outside_cap_w = 200
    said = verb(bench, "apply", limit(FIRST, 250), limit(SECOND, 250), power.Power(SECOND, "clocks_mhz", (210, 9000)))
    notes = words(said, "note")
    assert "persistence is off, so its power limit is lost" in notes
    assert "something else holds the card at 200 W" in notes
    assert "so a clock range up to 9000 changes nothing" in notes
    assert "sleep" not in notes, "that a least clock keeps a card awake is told by the controller, once for all cards of a kind"
    assert ids(said, "failed") == []


def test_a_policy_that_brings_persistence_silences_that_doubt(bench: strict.Bench) -> None:
    two(bench).cards[0].persistence = False
    policy = power.PowerPolicy(wanted.encode(wanted.Policy({FIRST: wanted.CardPolicy(limit_w=250, persistence=True)})))
    said = verb(bench, "apply", policy, power.Power(FIRST, "persistence", (1,)), limit(FIRST, 250))
    assert "persistence is off" not in words(said, "note")
    assert ids(said, "changed") == [policy.id, f"power:{FIRST}/persistence", f"power:{FIRST}/limit_w"]


def test_what_is_no_longer_wanted_goes_back_to_what_it_was(bench: strict.Bench) -> None:
    cards = two(bench)
    cards.cards[0].requested_w = 300
    verb(bench, "apply", limit(FIRST, 250), limit(SECOND, 350), power.Power(FIRST, "clocks_mhz", (0, 1400)))
    verb(bench, "apply", limit(FIRST, 200), limit(SECOND, 350), power.Power(FIRST, "clocks_mhz", (0, 1400)))
    said = verb(bench, "apply", power.Power(FIRST, "clocks_mhz", (0, 1400)))
    assert ids(said, "changed") == [f"power:{FIRST}/limit_w"]
    assert ids(said, "skipped") == [f"power:{SECOND}/limit_w"], "never changed here"
    assert (cards.cards[0].requested_w, cards.cards[0].locked_mhz) == (300, (0, 1400))


def test_remove_returns_every_card_and_leaves_no_record(bench: strict.Bench) -> None:
    cards = two(bench)
    cards.cards[0].requested_w = 300
    policy = power.PowerPolicy(wanted.encode(wanted.Policy({FIRST: wanted.CardPolicy(limit_w=250)})))
    folder = directory.Directory("/etc/wattherd/power", owner=bench.me, group=bench.my_group)
    bench.folder("/etc/wattherd")
    cards.cards[1].faults.add("clocks-unsupported")
    verb(bench, "apply", folder, policy, limit(FIRST, 250), limit(SECOND, 250), power.Power(SECOND, "clocks_mhz", (0, 1400)))
    bench.put(wanted.STATE + "/before.json.damaged", "{")
    bench.put(wanted.POLICY + ".wattherd-17", "{")
    assert "would_change" in {one["event"] for one in verb(bench, "remove", host="here", check=True)}
    assert cards.cards[0].requested_w == 250
    said = verb(bench, "remove", host="here")
    assert ids(said, "failed") == []
    assert [card.requested_w for card in cards.cards] == [300, 350]
    assert not bench.machine.exists(wanted.POLICY)
    assert not bench.machine.exists("/var/lib/wattherd")


def test_a_lost_card_does_not_keep_the_rest_from_being_removed(bench: strict.Bench) -> None:
    cards = two(bench)
    verb(bench, "apply", limit(FIRST, 250), limit(SECOND, 250), after(bench))
    cards.cards[0].faults.add("lost")
    said = verb(bench, "remove", host="here")
    assert ids(said, "failed") == []
    assert "nothing to set back" in words(said, "progress")
    assert cards.cards[1].requested_w == 350
    assert not bench.machine.exists(AFTER)


def test_power_restore_turns_the_policy_off_and_a_later_run_sets_it_again(bench: strict.Bench) -> None:
    cards = two(bench)
    cards.cards[0].requested_w = 300
    policy = power.PowerPolicy(wanted.encode(wanted.Policy({FIRST: wanted.CardPolicy(limit_w=250)})))
    made = (policy, limit(FIRST, 250))
    bench.folder("/etc/wattherd/power")
    verb(bench, "apply", *made)
    before = bench.tree()
    foreseen = verb(bench, "power-restore", check=True)
    assert bench.tree() == before
    done = verb(bench, "power-restore")
    assert ids(foreseen, "would_change") == ids(done, "changed") == [policy.id, f"power:{FIRST}/limit_w"]
    assert next(one for one in done if one.get("id") == f"power:{FIRST}/limit_w" and one["event"] == "changed")["delta"] == {
        "limit_w": ["250 W", "300 W"]
    }
    assert cards.cards[0].requested_w == 300
    assert not bench.machine.exists(wanted.POLICY)
    assert memory.changed(bench.machine) == {}
    assert "nothing to go back to" in words(verb(bench, "power-restore"), "note")
    assert ids(verb(bench, "apply", *made), "changed") == [one.id for one in made]
    assert ids(verb(bench, "apply", *made), "ok") == [one.id for one in made]
    verb(bench, "power-restore")
    cards.cards[0].requested_w = 275
    assert ids(verb(bench, "remove", host="here"), "changed") == ["directory:/var/lib/wattherd"]
    assert cards.cards[0].requested_w == 275, "what was given back is nobody's any more"


def test_power_restore_beside_a_lost_card(bench: strict.Bench) -> None:
    cards = two(bench)
    verb(bench, "apply", limit(FIRST, 250), limit(SECOND, 250))
    cards.cards[0].faults.add("lost")
    said = verb(bench, "power-restore")
    assert problem(said, f"power:{FIRST}/limit_w").code == "card-lost"
    assert ids(said, "changed") == [f"power:{SECOND}/limit_w"]
    assert said[-1]["failed"] == 1
    cards.cards[0].faults.clear()
    assert ids(verb(bench, "power-restore"), "changed") == [f"power:{FIRST}/limit_w"]
    assert [card.requested_w for card in cards.cards] == [350, 350]


def test_power_restore_disowns_what_could_not_be_set_in_the_first_place(bench: strict.Bench) -> None:
    """Remembered before the write, refused, and as before: a remove has nothing to tell of it."""
    cards = two(bench)
    cards.cards[0].faults.add("no-permission")
    for _ in range(2):
        assert ids(verb(bench, "apply", limit(FIRST, 250)), "failed") == [f"power:{FIRST}/limit_w"]
    verb(bench, "power-restore")
    assert ids(verb(bench, "remove", host="here"), "changed") == ["directory:/var/lib/wattherd"]


def test_what_is_only_judged_takes_one_look_at_all_the_cards(bench: strict.Bench) -> None:
    """A look at eight cards takes seconds where the driver has let them go; two settings of each are 16 resources."""
    bench.folder("/run")
    uuids = [f"GPU-{number}{FIRST[5:]}" for number in range(8)]
    fake.Cards(bench, [fake.Card(uuid=uuid, bus=f"0000:0{number}:00.0") for number, uuid in enumerate(uuids)])
    made = [power.Power(uuid, setting, value) for uuid in uuids for setting, value in (("limit_w", (250,)), ("clocks_mhz", (0, 1400)))]
    said = verb(bench, "check", *made)
    assert len(ids(said, "would_change")) == 16
    assert len([one for one in bench.runner.commands if one[0] != "nvidia-smi"]) == 1


@pytest.mark.parametrize(
    ("setting", "value"), [("limit", (250,)), ("limit_w", ()), ("limit_w", (250, 300)), ("clocks_mhz", (1400,)), ("persistence", ())]
)
def test_a_resource_that_makes_no_sense_is_refused(setting: str, value: tuple[float, ...]) -> None:
    with pytest.raises(errors.Problem) as caught:
        power.Power(FIRST, setting, value)
    assert caught.value.code == "manifest-invalid"


def test_a_policy_that_is_none_is_refused() -> None:
    with pytest.raises(errors.Problem):
        power.PowerPolicy("{")
