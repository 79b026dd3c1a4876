"""A new policy is watched and stands, or goes back: at once where the node is ill under it, at its deadline where nobody says yes."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.node import strict
from tests.node.power import fake
from wattherd import machine as machines
from wattherd import resources
from wattherd.node import confirming, keep, probe, putting_back, session
from wattherd.power import drift, health, memory, pending, wanted
from wattherd.power import look as looking
from wattherd.resources import power
from wattherd.wire import manifest

A, B = "GPU-aaaaaaaa-0000-0000-0000-000000000000", "GPU-bbbbbbbb-0000-0000-0000-000000000000"
UNIT = "Id=llama@qwen.service\nActiveState={active}\nNRestarts={restarts}\n"


class Host:
    """A node with two cards and one server, on which a session applies policies."""

    def __init__(self, bench: strict.Bench) -> None:
        self.bench = bench
        self.cards = fake.Cards(bench, [fake.Card(A, bus="0000:01:00.0"), fake.Card(B, bus="0000:02:00.0")])
        self.first, self.second = self.cards.cards
        self.units = UNIT.format(active="active", restarts=1)
        bench.runner.plan("systemctl", "show", strict.REST, effect=lambda _: machines.Result(0, self.units.encode(), b""), times=None)
        bench.folder("/run")
        bench.folder(wanted.FOLDER)
        self.said: list[str] = []
        self.keeper = keep.Keeper(bench.machine, say=self.said.append)

    def text(self, confirm_s: int = 180, **chosen: Any) -> str:
        return wanted.encode(wanted.Policy({uuid: wanted.CardPolicy(**chosen) for uuid in (A, B)}, confirm_s=confirm_s))

    def apply(self, confirm_s: int = 180, **chosen: Any) -> str:
        """What a deploy does: the policy, and then each card."""
        text = self.text(confirm_s, **chosen)
        power.PowerPolicy(text).fix(self.bench.machine, {}, self.bench.tell)
        for uuid in (A, B):
            for setting, value in chosen.items():
                one = power.Power(uuid, setting, tuple(value) if isinstance(value, tuple) else (float(value),))
                one.fix(self.bench.machine, {}, self.bench.tell)
        return text

    def confirm(self, settle_s: float = 10.0, **more: Any) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
        said: list[Mapping[str, Any]] = []
        return confirming.confirm(self.bench.machine, {"verb": "power-confirm", "settle_s": settle_s, **more}, said.append), said

    def problem(self, said: list[Mapping[str, Any]]) -> Mapping[str, Any]:
        failed = [one for one in said if one["event"] == "failed"]
        assert [one["id"] for one in failed] == ["power-policy:node"]
        problem: Mapping[str, Any] = failed[0]["problem"]
        assert problem["code"] == "power-put-back"
        return problem

    def later(self, moment: int, happens: Any) -> None:
        """At the n-th look from now on something happens."""
        start = self.cards.looks

        def moved() -> None:
            if self.cards.looks >= start + moment:
                happens()

        self.cards.before_answer = moved

    @property
    def limits(self) -> tuple[float | None, float | None]:
        return self.first.requested_w, self.second.requested_w


@pytest.fixture
def host(bench: strict.Bench) -> Host:
    return Host(bench)


def test_a_node_that_is_well_lets_the_policy_stand(host: Host) -> None:
    host.apply(limit_w=200.0)
    end, said = host.confirm()
    assert end == {"confirmed": True, "well": True}
    assert sum(host.bench.machine.waits) == 10.0
    assert all(one["event"] == "progress" for one in said)
    assert pending.waiting(host.bench.machine) is None
    host.bench.machine.wait(1000.0)
    host.keeper.round()
    assert host.limits == (200.0, 200.0)


def test_a_node_that_is_only_watched_puts_its_policy_back_unless_it_is_asked_again(host: Host) -> None:
    """A host that lost its network under the policy was well for itself."""
    host.apply(limit_w=200.0)
    end, _ = host.confirm(stand=False)
    assert end == {"confirmed": False, "well": True}
    assert pending.waiting(host.bench.machine) is not None
    host.bench.machine.wait(1000.0)
    host.keeper.round()
    assert host.limits == (350.0, 350.0)
    host.apply(limit_w=200.0)
    host.confirm(stand=False)
    assert host.confirm(0)[0] == {"confirmed": True, "well": True}
    host.bench.machine.wait(1000.0)
    host.keeper.round()
    assert host.limits == (200.0, 200.0)


def test_with_nothing_waiting_there_is_nothing_to_watch(host: Host) -> None:
    assert host.confirm()[0] == {"confirmed": True, "well": True}
    host.bench.runner.planned.clear()


def _lose(host: Host) -> None:
    host.first.faults.add("lost")


def _heat(host: Host) -> None:
    host.first.throttle = ("hw_thermal_slowdown",)


def _brake(host: Host) -> None:
    host.second.throttle = ("hw_power_brake_slowdown",)


def _loop(host: Host) -> None:
    host.units = UNIT.format(active="active", restarts=3)


def _fail(host: Host) -> None:
    host.units = UNIT.format(active="failed", restarts=1)


def _hang(host: Host) -> None:
    host.cards.silent = True


ILLS = {
    "lost": (_lose, "is lost"),
    "heat": (_heat, "held back by heat (hardware)"),
    "brake": (_brake, "power brake"),
    "loop": (_loop, "llama@qwen.service restarts again and again (2 times)"),
    "failed": (_fail, "llama@qwen.service failed"),
    "silent": (_hang, "cannot be read any more"),
}


@pytest.mark.parametrize("ill", ILLS)
def test_an_ill_node_gets_its_old_values_back_at_once(host: Host, ill: str) -> None:
    happens, words = ILLS[ill]
    host.first.requested_w, host.second.requested_w = 300.0, 320.0
    host.apply(limit_w=120.0)
    host.later(1, lambda: happens(host))
    end, said = host.confirm(settle_s=120.0)
    assert end == {"confirmed": False, "well": False}
    assert words in host.problem(said)["message"]
    assert sum(host.bench.machine.waits) < 15.0
    assert pending.current(host.bench.machine) is None
    if ill not in {"lost", "silent"}:
        assert host.limits == (300.0, 320.0), "what was there before the first change, not the default"
        assert not host.bench.machine.exists(pending.PLACE)


def test_one_odd_reading_is_none(host: Host) -> None:
    host.apply(limit_w=120.0)
    start = host.cards.looks

    def flicker() -> None:
        host.first.throttle = ("sw_thermal_slowdown",) if host.cards.looks == start + 1 else ()

    host.cards.before_answer = flicker
    assert host.confirm()[0] == {"confirmed": True, "well": True}


def test_an_ill_sign_in_the_last_moment_is_looked_at_once_more(host: Host) -> None:
    host.apply(limit_w=120.0)
    host.later(3, lambda: _heat(host))
    assert host.confirm(settle_s=9.0)[0] == {"confirmed": False, "well": False}


def test_what_was_ill_before_the_policy_is_not_held_against_it(host: Host) -> None:
    host.first.throttle = ("hw_thermal_slowdown",)
    host.second.faults.add("lost")
    host.units = UNIT.format(active="failed", restarts=7)
    text = host.text(limit_w=200.0)
    power.PowerPolicy(text).fix(host.bench.machine, {}, host.bench.tell)
    host.units = UNIT.format(active="failed", restarts=8)
    assert host.confirm()[0] == {"confirmed": True, "well": True}


def test_back_means_the_last_confirmed_policy_and_nothing_that_only_the_new_one_had(host: Host) -> None:
    old = host.apply(limit_w=250.0)
    assert host.confirm()[0] == {"confirmed": True, "well": True}
    host.apply(limit_w=120.0, clocks_mhz=(0, 900), persistence=True)
    host.first.locked_mhz, host.second.locked_mhz = (0, 900), (0, 900)
    host.later(1, lambda: _heat(host))
    assert host.confirm()[0] == {"confirmed": False, "well": False}
    assert pending.current(host.bench.machine) == old
    assert host.limits == (250.0, 250.0)
    assert [one.locked_mhz for one in host.cards.cards] == [None, None]
    assert set(memory.before(host.bench.machine)[A]) == {"limit_w"}


def test_without_a_yes_the_keeper_puts_it_back_at_the_deadline_and_not_before(host: Host) -> None:
    host.apply(confirm_s=90, limit_w=120.0)
    host.bench.machine.wait(80.0)
    host.keeper.round()
    assert host.limits == (120.0, 120.0)
    host.bench.machine.wait(11.0)
    host.keeper.round()
    assert host.limits == (350.0, 350.0)
    assert pending.current(host.bench.machine) is None
    back = drift.load(host.bench.machine).put_back
    assert back is not None
    assert "nobody confirmed it within 90 s" in back.why
    assert any("put back" in words for words in host.said)


def test_a_yes_that_comes_too_late_hears_what_happened(host: Host) -> None:
    host.apply(confirm_s=90, limit_w=120.0)
    host.bench.machine.wait(91.0)
    host.keeper.round()
    end, said = host.confirm()
    assert end == {"confirmed": False, "well": False}
    assert "nobody confirmed it within 90 s" in host.problem(said)["message"]


def test_a_yes_in_time_wins_over_a_keeper_that_is_late(host: Host) -> None:
    host.apply(confirm_s=90, limit_w=120.0)
    host.bench.machine.wait(91.0)
    assert host.confirm()[0] == {"confirmed": True, "well": True}
    host.keeper.round()
    assert host.limits == (120.0, 120.0)


def test_a_keeper_that_was_off_at_the_deadline_does_it_at_its_next_start_also_after_a_reboot(host: Host) -> None:
    old = host.apply(limit_w=250.0)
    host.confirm()
    host.apply(confirm_s=90, limit_w=120.0)
    host.bench.machine.wait(600.0)
    host.cards.reboot()
    keeper = keep.Keeper(host.bench.machine, say=host.said.append)
    for _ in range(3):
        keeper.round()
    assert pending.current(host.bench.machine) == old
    assert host.limits == (250.0, 250.0)


def test_a_put_back_that_reaches_no_card_goes_on_when_they_answer(host: Host) -> None:
    host.apply(confirm_s=90, limit_w=120.0)
    host.bench.machine.wait(91.0)
    host.cards.silent = True
    begun, machine = host.cards.looks, host.bench.machine
    for _ in range(60):
        machine.wait(host.keeper.round())
    assert pending.current(machine) is None
    assert host.cards.looks - begun < 12, "ever more rarely"
    assert sum("cannot be reached yet" in words for words in host.said) == 1
    host.cards.silent = False
    for _ in range(40):
        machine.wait(host.keeper.round())
    assert host.limits == (350.0, 350.0)
    assert not host.bench.machine.exists(pending.PLACE)


def test_a_lost_card_does_not_keep_the_others_from_the_policy_that_came_back(host: Host) -> None:
    host.apply(limit_w=250.0)
    host.confirm()
    host.apply(confirm_s=90, limit_w=120.0)
    host.bench.machine.wait(91.0)
    host.first.faults.add("lost")
    for _ in range(3):
        host.bench.machine.wait(host.keeper.round())
    assert host.second.requested_w == 250.0
    host.second.requested_w = 300.0
    host.bench.machine.wait(host.keeper.round())
    assert host.second.requested_w == 250.0
    assert host.bench.machine.exists(pending.PLACE), "the other one is not back yet"


def test_a_put_back_is_told_of_until_another_policy_is_in_force(host: Host) -> None:
    host.apply(confirm_s=90, limit_w=120.0)
    host.bench.machine.wait(91.0)
    host.keeper.round()
    assert putting_back.standing(host.bench.machine, drift.load(host.bench.machine)) is not None
    host.apply(limit_w=200.0)
    host.confirm()
    assert putting_back.standing(host.bench.machine, drift.load(host.bench.machine)) is None


def test_restarts_that_began_anew_are_counted_from_nothing() -> None:
    """A start by hand sets systemd's count to 0."""
    before, now = health.Vitals(restarts={"llama@a.service": 40}), health.Vitals(restarts={"llama@a.service": 1})
    assert health.complaints(before, now) == ()
    assert health.complaints(before, health.Vitals(restarts={"llama@a.service": 2})) != ()


def test_systemd_that_says_nothing_is_no_ill_sign(host: Host) -> None:
    host.units = ""
    look = looking.look(host.bench.machine)
    assert health.take(host.bench.machine, look).restarts == {}
    assert health.complaints(health.Vitals(cards=(A, B)), health.take(host.bench.machine, look)) == ()


# -- as a session says it


def say(host: Host, *orders: Mapping[str, Any] | tuple[Mapping[str, Any], manifest.Manifest]) -> list[dict[str, Any]]:
    source = b""
    for order in orders:
        head, body = (order[0], manifest.encode(order[1])) if isinstance(order, tuple) else (order, b"")
        source += json.dumps({**head, **({"bytes": len(body)} if body else {})}).encode() + b"\n" + body
    sink = io.BytesIO()
    assert session.Session(host.bench.machine, io.BytesIO(source), sink).serve() == 0
    return [json.loads(line) for line in sink.getvalue().splitlines()][1:]


def test_a_run_that_changed_the_policy_ends_with_the_time_that_it_has(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "facts_of", lambda _: {})
    host.bench.folder("/var/lib")
    entry = resources.encode(power.PowerPolicy(host.text(90, limit_w=200.0)), role="power", tags=("power",))
    wish = manifest.Manifest("here", (entry,))
    said = say(host, ({"verb": "apply"}, wish), {"verb": "power-confirm", "settle_s": 5}, ({"verb": "apply"}, wish))
    ends = [one for one in said if one["event"] == "end"]
    assert ends[0]["unconfirmed_s"] == 90
    assert ends[1]["confirmed"] is True
    assert "unconfirmed_s" not in ends[2]


def test_an_apply_ends_what_the_keeper_had_given_up(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "facts_of", lambda _: {})
    host.bench.folder("/var/lib")
    text = host.apply(confirm_s=0, limit_w=200.0)
    for _ in range(8):
        host.keeper.round()
        host.first.requested_w = 280.0
    assert drift.load(host.bench.machine).conflicts
    entry = resources.encode(power.PowerPolicy(text), role="power", tags=("power",))
    say(host, ({"verb": "apply"}, manifest.Manifest("here", (entry,))))
    assert not drift.load(host.bench.machine).conflicts
