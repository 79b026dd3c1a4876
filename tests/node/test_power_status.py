"""`power` on the node: what is there is told, nothing is changed, and a draw counts as idle only after it has settled."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.node import strict
from tests.node.power import fake
from wattherd import machine as machines
from wattherd.node import power_status, sleepers
from wattherd.policy import idle
from wattherd.power import drift, empty, health, memory, pending, reading, settings, wanted
from wattherd.wire import fields

OTHER = "GPU-22222222-2222-2222-2222-222222222222"


@pytest.fixture
def cards(bench: strict.Bench) -> fake.Cards:
    return fake.Cards(bench, [fake.Card(), fake.Card(uuid=OTHER, bus="0000:02:00.0", faults={"clocks-unsupported"})])


def look(cards: fake.Cards, **order: object) -> dict[str, Any]:
    return dict(power_status.look(cards.bench.machine, {"verb": "power", **order}))


def watts(told: dict[str, Any], uuid: str) -> list[float | None]:
    return [row[0] for row in told["samples"][uuid]]


def test_where_nothing_of_ours_is_installed_all_is_told_and_nothing_written(cards: fake.Cards) -> None:
    before = cards.bench.tree()
    told = look(cards)
    assert cards.bench.tree() == before
    assert cards.set_calls == []
    found = fields.build(reading.Look, told["look"])
    assert [card.uuid for card in found.cards] == [fake.Card().uuid, OTHER]
    assert found.cards[0].draw == reading.Draw(25.0, "average", "nvml", 1.0)
    assert (told["policy"], told["policy_fault"], told["keeper"], told["drifts"], told["put_back"]) == (None, "", "", [], None)
    assert told["samples"] == {fake.Card().uuid: [[25.0, 0]], OTHER: [[25.0, 0]]}
    assert told["unsupported"] == {fake.Card().uuid: {}, OTHER: {}}
    assert told["tuned"] == []


def test_looks_go_on_until_the_draw_has_settled_and_no_longer(cards: fake.Cards) -> None:
    falling = iter([242.0, 145.0, 37.0, 36.5, 36.2, 36.1])

    def cool() -> None:
        cards.cards[0].draw_w = next(falling)

    cards.before_answer = cool
    told = look(cards, looks=6)
    assert watts(told, fake.Card().uuid) == [242.0, 145.0, 37.0, 36.5, 36.2]
    assert cards.bench.machine.waits == [idle.REST_PAUSE_S] * 4


def test_a_card_at_work_or_measured_before_is_not_waited_for(cards: fake.Cards) -> None:
    for card in cards.cards:
        card.utilization_percent = 98
    assert watts(look(cards, looks=5), OTHER) == [25.0]
    for card in cards.cards:
        card.utilization_percent = 0
    assert watts(look(cards, looks=5, known={fake.Card().uuid: 24.0, OTHER: 24.0}), OTHER) == [25.0]
    assert watts(look(cards, looks=5, known={fake.Card().uuid: 9.0, OTHER: 9.0}), OTHER) == [25.0] * 3, "it has rested lower"
    assert watts(look(cards, looks=5), OTHER) == [25.0] * 3
    assert len(watts(look(cards, looks=500), OTHER)) == 3


def test_a_card_that_is_let_go_between_looks_begins_anew(cards: fake.Cards) -> None:
    one = cards.cards[0]
    cards.hold(one, 4242, "llama-server", "llama@smol.service")
    one.draw_w = 60.0

    def ends() -> None:
        if cards.looks == 2:
            one.holders.clear()
            one.draw_w = 9.0

    cards.before_answer = ends
    assert watts(look(cards, looks=4), one.uuid) == [9.0, 9.0], "its 60 W are not what it draws empty"


def test_what_was_chosen_remembered_and_found_travels_along(cards: fake.Cards) -> None:
    bench, one = cards.bench, cards.cards[0]
    policy = wanted.Policy(cards={one.uuid: wanted.CardPolicy(limit_w=200.0, clocks_mhz=(0, 1400))})
    bench.put(wanted.POLICY, wanted.encode(policy))
    bench.runner.plan("systemctl", "is-active", power_status.KEEPER, out="failed\n", code=3)
    epoch = fields.build(reading.Look, look(cards)["look"]).epoch
    memory.remember(bench.machine, one.uuid, settings.LIMIT, [350.0])
    memory.keep_set(bench.machine, one.uuid, settings.CLOCKS, (0.0, 1400.0), epoch)
    memory.keep_unsupported(bench.machine, OTHER, settings.CLOCKS, "580.95.05", "no locks")
    bench.put(empty.PLACE, f'{{"{OTHER}": {{"watts": 9.5, "at_s": 5.0}}}}')
    now_s = bench.machine.now_s()
    record = drift.found(drift.Record(), [drift.Difference(one.uuid, settings.LIMIT, "200 W", "350 W")], "boot", now_s)
    record = drift.warmed(record, reading.Look(cards=(reading.Card(one.uuid, temperature_c=71),)), now_s)
    drift.save(bench.machine, record)
    bench.runner.plan("systemctl", "is-active", power_status.KEEPER, out="failed\n", code=3)
    told = look(cards)
    assert fields.build(wanted.Policy, told["policy"]) == policy
    assert told["keeper"] == "failed"
    assert told["before"] == {one.uuid: {settings.LIMIT: [350.0]}}
    assert told["locks"][one.uuid] == {settings.CLOCKS: [0.0, 1400.0]}
    assert told["unsupported"][OTHER] == {settings.CLOCKS: "no locks"}
    assert told["empty"] == {OTHER: {"watts": 9.5, "at_s": 5.0}}
    assert told["highest"] == {one.uuid: 71.0}
    assert [(row["owner"], row["count"], row["last_day"], row["is_open"]) for row in told["drifts"]] == [(one.uuid, 1, 1, True)]
    bench.machine.clock_s += 2 * 86400
    bench.runner.plan("systemctl", "is-active", power_status.KEEPER, out="active\n")
    assert look(cards)["highest"] == {}, "the day before yesterday is not today"


def test_without_root_the_cards_are_told_and_what_nobody_else_may_see_is_named(cards: fake.Cards, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, one = cards.bench, cards.cards[0]
    memory.remember(bench.machine, one.uuid, settings.LIMIT, [350.0])
    closed = bench.machine.path(wanted.STATE)
    real_stat, real_list = os.stat, os.listdir

    def stat(path: Any, **more: Any) -> os.stat_result:
        if str(path).startswith(closed + "/"):
            raise PermissionError(13, "Permission denied", str(path))
        return real_stat(path, **more)

    def names(path: Any) -> list[str]:
        if str(path) == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return real_list(path)

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(os, "listdir", names)
    told = look(cards)
    assert [card.uuid for card in fields.build(reading.Look, told["look"]).cards] == [one.uuid, OTHER]
    assert told["before"] == {}
    assert "read without root" in told["look"]["notes"][-1]


def test_a_policy_on_its_way_back_waits_for_no_yes(cards: fake.Cards) -> None:
    """Its time to be confirmed would be told, although nobody can confirm it any more."""
    bench = cards.bench
    text = wanted.encode(wanted.Policy(cards={cards.cards[0].uuid: wanted.CardPolicy(limit_w=200.0)}))
    pending.begin(bench.machine, text, health.Vitals())
    bench.put(wanted.POLICY, text)
    bench.runner.plan("systemctl", "is-active", power_status.KEEPER, out="active\n", times=None)
    assert 0 < look(cards)["unconfirmed_s"] <= 180
    waiting = pending.waiting(bench.machine)
    assert waiting is not None
    pending.condemn(bench.machine, waiting, "a card is lost")
    assert look(cards)["unconfirmed_s"] is None


def test_a_policy_that_somebody_broke_is_told_as_such(cards: fake.Cards) -> None:
    cards.bench.put(wanted.POLICY, "{not json")
    told = look(cards)
    assert told["policy"] is None
    assert "JSON" in told["policy_fault"]


def test_a_lost_card_and_a_silent_driver_are_values(cards: fake.Cards) -> None:
    cards.cards[1].faults.add("lost")
    found = fields.build(reading.Look, look(cards, looks=5)["look"])
    assert [card.fault for card in found.cards] == ["", "GPU is lost"]
    cards.silent = True
    told = look(cards, looks=5)
    assert told["look"]["fault_kind"] == "silent"
    assert told["samples"] == {}


def test_a_card_that_sleeps_is_shown_asleep_and_not_woken(bench: strict.Bench) -> None:
    cards = fake.Cards(bench, [fake.Card()])
    bench.put("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")
    bench.put("/sys/bus/pci/devices/0000:01:00.0/class", "0x030000\n")
    bench.put("/sys/bus/pci/devices/0000:01:00.0/power/runtime_status", "suspended\n")
    told = look(cards, looks=5)
    assert cards.looks == 0
    assert told["look"]["cards"][0]["suspended"] is True
    assert told["samples"] == {}
    bench.runner.planned.clear()


# -- sleeping servers


def server(bench: strict.Bench, *words: str, environment: str = "") -> reading.Card:
    bench.put("/proc/4242/cmdline", "\0".join(("/opt/wattherd/current/bin/llama-server", *words)) + "\0")
    bench.put("/proc/4242/environ", environment)
    return reading.Card("GPU-1", holders=(reading.Holder(4242, "llama-server", 614, unit="llama@smol.service"),))


def asleep(machine: machines.Machine, card: reading.Card, **key_files: str) -> bool | None:
    return sleepers.Sleepers(machine, key_files).told(card).holders[0].asleep


def test_a_server_that_was_never_told_to_sleep_is_awake_and_not_asked(bench: strict.Bench) -> None:
    assert asleep(bench.machine, server(bench, "--port", "1")) is False
    assert asleep(bench.machine, server(bench, "--sleep-idle-seconds", "-1")) is False


def test_what_is_no_llama_server_or_does_not_answer_is_unknown(bench: strict.Bench) -> None:
    stranger = reading.Card("GPU-1", holders=(reading.Holder(1, "python3"),))
    assert asleep(bench.machine, stranger) is None
    assert asleep(bench.machine, server(bench, "--sleep-idle-seconds", "60", "--port", "1")) is None
    assert asleep(bench.machine, reading.Card("GPU-1", holders=(reading.Holder(77, "llama-server"),))) is None


@pytest.mark.parametrize(
    ("words", "variables", "url"),
    [
        ([], {}, "http://127.0.0.1:8080"),
        (["--host", "0.0.0.0", "--port", "9000"], {}, "http://127.0.0.1:9000"),  # noqa: S104 - what a server was told
        (["--host=::", "--port=9000"], {}, "http://[::1]:9000"),
        (["--host", "192.168.1.5"], {"LLAMA_ARG_PORT": "81"}, "http://192.168.1.5:81"),
        (["--host", "/run/wattherd/llama-smol/llama.sock", "--port", "8080"], {}, "unix:/run/wattherd/llama-smol/llama.sock:"),
        (["--ssl-cert-file", "/x"], {}, ""),
        (["--port", "1", "--port", "2"], {}, "http://127.0.0.1:2"),
    ],
)
def test_where_a_server_is_asked(words: list[str], variables: dict[str, str], url: str) -> None:
    assert sleepers.address(["llama-server", *words], variables) == url
