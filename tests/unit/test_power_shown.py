"""What the operator sees of `power-status`: whole pictures at 80 and 200 columns, the JSON contract, and money that adds up."""

from __future__ import annotations

import io
import json
import pathlib
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest

from tests import power_cases
from tests.unit import fleet_of_cards as herd
from wattherd import console
from wattherd.console import money, power, power_document, power_table
from wattherd.policy import idle
from wattherd.power import faults, reading
from wattherd.verbs import idle_waste, power_chosen, power_rows, power_status, power_told, rests
from wattherd.wire import facts

#: Whole pictures as text, one for each width; a change of words shows as a change there.
SHOWN = pathlib.Path(__file__).parent / "power_shown"


def said(picture: power_status.Picture, width: int, *, verbose: bool = False, brief: bool = False) -> list[str]:
    out = console.Screen(verbose=verbose)
    out.out.width = width
    out.out.file = written = io.StringIO()
    power.shown(out, picture, brief=brief)
    return written.getvalue().splitlines()


def line(picture: power_status.Picture, begins: str, width: int = 80) -> str:
    return next(one for one in said(picture, width) if one.startswith(begins))


@pytest.mark.parametrize("width", [80, 200])
def test_the_whole_picture(width: int) -> None:
    assert said(herd.picture(), width) == (SHOWN / f"{width}.txt").read_text().splitlines()


def test_80_columns_hold_the_table() -> None:
    table = power_table.lines(herd.picture().rows, 80)
    assert max(len(words) for words, _ in table) <= 80
    long = herd.rows("a-very-long-host-name.of-some-datacenter", herd.card(name="NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"))
    table = power_table.lines(long, 80)
    assert max(len(words) for words, _ in table) <= 80
    assert "…" in table[1][0]
    assert table[1][0].endswith("ok"), "the verdict is never cropped away"


def test_what_is_wrong_is_nearest_to_the_prompt() -> None:
    lines = said(herd.picture(), 80)
    assert lines[-1] == "wrong: atlas 0 RTX 3090 (drift), atlas 1 RTX 3090 (failed), ghost (unreachable)"
    order = [next(at for at, one in enumerate(lines) if one.startswith(name)) for name in ("titan", "laptop", "atlas", "ghost")]
    assert order == sorted(order)


def test_when_all_is_well_it_ends_with_the_idle_waste() -> None:
    well = power_status.Picture(hosts={"titan": herd.well(*herd.rows("titan", herd.card()))})
    assert said(well, 80)[-1] == "idle waste: none: no process holds an idle card"
    assert well.exit_code == 0


def test_many_good_cards_are_told_by_kind_and_the_bad_one_alone() -> None:
    lines = said(herd.many(150), 80)
    assert len(lines) == 7
    assert lines[1].split() == ["151", "hosts", "301", "x", "RTX", "3090", "6441", "280", "35", "ok"]
    assert lines[2].startswith("odd        0 RTX 3090")
    assert len(said(herd.many(150), 200)) == 7
    assert sum(one.startswith(("rig", "odd")) for one in said(herd.many(150), 80, verbose=True)) == 302


def test_cards_with_one_and_the_same_trouble_are_told_together_and_by_host() -> None:
    bare = {"policy": None, "keeper": ""}
    want = power_chosen.Chosen(source=power_chosen.INVENTORY, cards=herd.policy(herd.card(0), herd.card(1), limit_w=250.0).cards)
    hosts = {f"rig{at:02d}": herd.well(*herd.rows(f"rig{at:02d}", herd.card(0), herd.card(1), told=bare, want=want)) for at in range(40)}
    lines = said(power_status.Picture(hosts=hosts), 100)
    assert lines[1].split()[:5] == ["40", "hosts", "80", "x", "RTX"]
    assert lines[2] == "    not applied yet: invoke power-apply; power limit is 280 W, not 250 W"
    assert lines[3].startswith("    on rig00, rig01,")
    assert "and 28 more (--verbose names all)" in " ".join(one.strip() for one in lines[3:5])


def test_the_good_ones_are_one_line_when_asked_for() -> None:
    lines = said(herd.many(), 80, brief=True)
    assert lines[0] == "61 cards on 31 hosts are as they should be: 1305 W drawn"
    assert lines[2].startswith("odd   0 RTX 3090")
    well = power_status.Picture(hosts={"titan": herd.well(*herd.rows("titan", herd.card()))})
    assert said(well, 80, brief=True)[0] == "1 card on 1 host is as it should be: 21.4 W drawn"


def test_cards_of_a_host_that_cannot_be_read_are_told_once() -> None:
    gpus = tuple(facts.Gpu(f"0000:0{at}:00.0", "nvidia", "NVIDIA H200", uuid) for at, uuid in enumerate(herd.UUIDS[:8]))
    look = reading.Look(fault="the NVIDIA driver gives no answer", fault_kind="silent")
    silent = herd.rows("h1", told={"look": look, "policy": None, "keeper": ""}, known=herd.seen(*gpus))
    fault = faults.driver(look)
    picture = power_status.Picture(hosts={"h1": herd.well(*silent, fault=fault)})
    lines = said(picture, 80)
    assert lines[1].split()[:4] == ["h1", "8", "x", "H200"]
    assert lines[2] == "    the NVIDIA driver gives no answer"
    assert "idle waste: not known: 8 cards could not be read" in lines
    assert lines[-1] == "wrong: h1 (failed)"
    assert picture.exit_code == 2


@pytest.mark.parametrize(
    ("hosts", "code"),
    [
        ({"a": herd.well(*herd.rows("a", herd.card()))}, 0),
        ({"a": herd.well(*herd.rows("a", herd.card(fault="GPU is lost")))}, 2),
        ({"a": herd.gone()}, 4),
        ({"a": herd.well(*herd.rows("a", herd.card(fault="GPU is lost"))), "b": herd.gone()}, 6),
        ({"a": herd.well(*herd.rows("a", herd.card(limits=reading.Limits(100.0, 350.0, 350.0, 350.0, 350.0))))}, 0),
    ],
)
def test_the_exit_code_is_ansibles(hosts: Mapping[str, Any], code: int) -> None:
    assert power_status.Picture(hosts=hosts).exit_code == code


def test_simulated_figures_are_called_so_wherever_they_are_printed() -> None:
    card = herd.card(holders=(herd.SERVER,))
    made = herd.rows("lab", card, rest={card.uuid: idle.Rest(60.0, busy=False)}, empty_w={card.uuid: 20.0}, known=herd.seen(simulated=True))
    for width in (80, 200):
        for brief in (False, True):
            lines = said(power_status.Picture(hosts={"lab": herd.well(*made)}), width, brief=brief)
            assert all("simulated" in one for one in lines if " W drawn" in one or one.startswith("idle waste:") or " ok" in one)
            assert any(one.startswith("idle waste (simulated): 350.4 kWh") for one in lines)
    assert power_document.row_document(made[0])["simulated"] is True


def test_simulated_watts_are_never_added_to_real_ones() -> None:
    card = herd.card(holders=(herd.SERVER,))
    more: dict[str, Any] = {"rest": {card.uuid: idle.Rest(60.0, busy=False)}, "empty_w": {card.uuid: 20.0}}
    hosts = {
        "lab": herd.well(*herd.rows("lab", card, known=herd.seen(simulated=True), **more)),
        "real": herd.well(*herd.rows("real", card, **more)),
    }
    waste = power_document.waste_document(power_status.Picture(hosts=hosts).waste)
    assert (waste["kwh_per_year"], waste["simulated"]) == ("350.4", False)
    assert [(total.simulated, total.cards) for total in power_status.Picture(hosts=hosts).waste.totals] == [(False, 1), (True, 1)]


# -- what idling wastes


def holding(host: str, held_w: float, empty_w: float | None, *, name: str = "NVIDIA GeForce RTX 3090", **rest: Any) -> power_rows.Row:
    card = herd.card(name=name, holders=(herd.SERVER,))
    told = idle.Rest(**rest) if rest else idle.Rest(held_w, busy=False)
    (row,) = herd.rows(host, card, rest={card.uuid: told}, empty_w={} if empty_w is None else {card.uuid: empty_w})
    return row


def test_a_card_that_rests_as_low_held_wastes_nothing() -> None:
    """plan-no-saving-p8-card, as idle waste: 24 W held and empty; the P40's 50 and 9 W."""
    assert "loaded 24 W (P8) / unloaded 24 W" in power_cases.case("plan-no-saving-p8-card").input
    flat, p40 = holding("a", 24.0, 24.0), holding("b", 50.0, 9.0, name="Tesla P40")
    waste = idle_waste.waste([flat, p40], {"a": herd.EURO, "b": herd.EURO})
    assert [(one.waste_w, one.kwh) for one in waste.counted] == [(Decimal(0), Decimal(0)), (Decimal(41), Decimal("359.16"))]
    alone = power_status.Picture(hosts={"a": herd.well(flat)})
    assert said(alone, 80)[-1] == "idle waste: none: 1 idle card that something holds draw no more than empty"


def test_without_a_measurement_there_is_no_figure_and_an_estimate_is_called_one() -> None:
    picture = power_status.Picture(hosts={"b": herd.well(holding("b", 50.0, None, name="Tesla P40"))})
    lines = said(picture, 100)
    assert "idle waste: not known yet" in lines
    assert "not counted: b 0 P40: not measured on this host yet" in lines
    assert "  b 0 P40: estimate 39-41 W, from reports of other people's machines; it is in no sum" in lines
    document = power_document.waste_document(picture.waste)
    assert (document["kwh_per_year"], document["cost_per_year"], document["totals"]) == (None, None, [])
    assert document["not_counted"][0]["estimate_w"] == [39.0, 41.0]  # type: ignore[index]


def test_a_card_at_work_is_no_waste_and_one_that_settles_is_said_to() -> None:
    busy = holding("a", 300.0, 20.0, busy=True, why="at work")
    settling = holding("b", 66.0, 20.0, busy=False, why="its draw has not settled yet (145, 66, 65 W)")
    waste = idle_waste.waste([busy, settling], {})
    assert waste.counted == ()
    lines = said(power_status.Picture(hosts={"a": herd.well(busy), "b": herd.well(settling)}), 100)
    assert "not counted: b 0 RTX 3090: its draw has not settled yet (145, 66, 65 W)" in lines
    assert not any("at work" in one for one in lines)


def test_without_a_price_there_is_energy_and_no_money() -> None:
    picture = power_status.Picture(hosts={"a": herd.well(holding("a", 50.0, 9.0), price=None)})
    assert "idle waste: 359.2 kWh a year" in said(picture, 100)
    assert "price_per_kwh in the inventory makes money of it" in " ".join(said(picture, 100))
    document = power_document.waste_document(picture.waste)
    assert (document["kwh_per_year"], document["cost_per_year"], document["currency"]) == ("359.16", None, None)


def test_two_currencies_are_never_added() -> None:
    yen = idle_waste.Price(per_kwh=Decimal(31), currency="JPY")
    picture = power_status.Picture(hosts={"a": herd.well(holding("a", 50.0, 9.0)), "b": herd.well(holding("b", 50.0, 9.0), price=yen)})
    heads = [one for one in said(picture, 100) if one.startswith("idle waste")]
    assert heads == ["idle waste: 359.2 kWh and 111.34 EUR a year", "idle waste: 359.2 kWh and 11134 JPY a year"]
    document = power_document.waste_document(picture.waste)
    assert (document["kwh_per_year"], document["cost_per_year"], document["currency"]) == ("718.32", None, None)
    totals = document["totals"]
    assert isinstance(totals, list)
    assert [one["cost_per_year"] for one in totals] == ["111.3396", "11133.96"]


def test_the_rows_add_up_to_the_total_that_is_printed() -> None:
    rows = [holding(f"h{at}", 20.0 + at / 7, 10.0) for at in range(12)]
    picture = power_status.Picture(hosts={row.host: herd.well(row) for row in rows})
    lines = said(picture, 200, verbose=True)
    head = next(one for one in lines if one.startswith("idle waste")).split()
    begins = next(at for at, one in enumerate(lines) if one.lstrip().startswith("host") and "kWh/year" in one)
    table = [one.split() for one in lines[begins + 1 : begins + 13]]
    assert sum(Decimal(row[7]) for row in table) == Decimal(head[2])
    assert sum(Decimal(row[8]) for row in table) == Decimal(head[5])
    short = said(picture, 200)
    more = next(one for one in short if "more with" in one)
    assert more.startswith("  and 4 cards more with ")


# -- money


@pytest.mark.parametrize(
    ("values", "places", "shown"),
    [
        (["0.125"], 2, ["0.13"]),
        (["0.005", "0.005"], 2, ["0.01", "0.00"]),
        (["0.333", "0.333", "0.333"], 2, ["0.34", "0.33", "0.33"]),
        (["1.5", "1.5"], 0, ["2", "1"]),
        (["10.004", "0.001"], 2, ["10.01", "0.00"]),
        (["0"], 2, ["0.00"]),
        ([], 2, []),
    ],
)
def test_rows_are_rounded_by_largest_remainder(values: list[str], places: int, shown: list[str]) -> None:
    exact = [Decimal(one) for one in values]
    told = money.shares(exact, places)
    assert [str(one) for one in told] == shown
    assert sum(told, Decimal(0)) == money.rounded(sum(exact, Decimal(0)), places)


def test_money_is_rounded_half_up_in_its_own_smallest_unit() -> None:
    assert [money.digits(one) for one in ("EUR", "USD", "JPY", "BHD", "XYZ")] == [2, 2, 0, 3, 2]
    assert [str(money.rounded(Decimal(one), 2)) for one in ("2.345", "2.355", "-2.345", "2.3449")] == ["2.35", "2.36", "-2.35", "2.34"]
    assert [money.plain(Decimal(one)) for one in ("352.15200", "100", "0.000", "1E+3")] == ["352.152", "100", "0", "1000"]


# -- for programs


def test_the_json_contract(capsys: pytest.CaptureFixture[str]) -> None:
    power.shown(console.Screen(as_json=True), herd.picture())
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert set(document) == {"cards", "hosts", "idle_waste"}
    cards = {(one["host"], one["uuid"]): one for one in document["cards"]}
    assert len(cards) == len(document["cards"]) == 6
    contract = {"host", "uuid", "name", "desired_w", "requested_w", "enforced_w", "drawn_w", "source", "status", "reason", "simulated"}
    assert all(contract <= set(one) for one in document["cards"])
    assert {one["status"] for one in document["cards"]} == {"ok", "drift", "skipped", "failed"}
    held = cards["titan", herd.UUIDS[1]]
    assert (held["desired_w"], held["requested_w"], held["enforced_w"], held["drawn_w"], held["source"]) == (
        280.0,
        280.0,
        280.0,
        61.5,
        "nvml",
    )
    assert (held["sensor"], held["averaging_s"], held["pstate"], held["temperature_highest_today_c"]) == ("average", 1.0, 2, 66.0)
    assert held["holders"] == [
        {
            "pid": 4242,
            "name": "llama-server",
            "user": "llama",
            "unit": "llama@smol.service",
            "model": "smollm2",
            "memory_mib": 614,
            "asleep": None,
        }
    ]
    drifting = cards["atlas", herd.UUIDS[0]]
    assert (drifting["drift"]["count"], drifting["drift"]["last_at"]) == (7, "2027-01-15T07:48:00+00:00")
    assert drifting["throttle"] == ["sw_power_cap", "hw_thermal_slowdown"]
    board = cards["orin", "board"]
    assert (board["mode"], board["desired"], board["basis"], board["enforced_w"]) == (
        "15W",
        {"mode": "15W"},
        "module, not board input",
        None,
    )
    assert "unreachable" in told.err


def test_unknown_is_null_and_never_zero() -> None:
    cards = {(row.host, row.uuid): power_document.row_document(row) for row in herd.picture().rows}
    lost = cards["atlas", herd.UUIDS[1]]
    figures = [key for key in lost if key.endswith(("_w", "_c", "_mhz", "_percent", "_mib", "_mj", "_s"))]
    assert len(figures) > 15
    assert {key: lost[key] for key in figures if lost[key] is not None} == {"desired_w": 280.0}
    laptop = cards["laptop", herd.UUIDS[0]]
    assert (laptop["drawn_w"], laptop["source"], laptop["requested_w"], laptop["unknown"]) == (
        None,
        None,
        None,
        {"limits": "Not Supported"},
    )
    assert "0 W" not in " ".join(said(herd.picture(), 80)).replace("280 W", "").replace("350 W", "")


def test_hosts_that_failed_or_were_not_reached_are_values() -> None:
    hosts = power_document.document(herd.picture())["hosts"]
    assert {name: one["status"] for name, one in hosts.items()} == {  # type: ignore[attr-defined]
        "atlas": "failed",
        "titan": "ok",
        "laptop": "ok",
        "orin": "ok",
        "web1": "ok",
        "ghost": "unreachable",
    }
    assert hosts["ghost"]["problem"]["code"] == "connect-timeout"  # type: ignore[index]
    assert (hosts["web1"]["cards"], hosts["web1"]["problem"]) == (0, None)  # type: ignore[index]


def test_energy_and_money_are_exact_decimal_strings() -> None:
    waste = power_document.document(herd.picture())["idle_waste"]
    assert isinstance(waste, dict)
    assert (waste["kwh_per_year"], waste["cost_per_year"], waste["currency"], waste["simulated"]) == ("352.152", "109.16712", "EUR", False)
    assert [(one["host"], one["waste_w"], one["kwh_per_year"], one["price_per_kwh"]) for one in waste["cards"]] == [
        ("titan", "40.2", "352.152", "0.31")
    ]
    assert [(one["host"], one["why"]) for one in waste["not_counted"]] == [("atlas", "at work")]


@pytest.mark.parametrize(("last_day", "told"), [(1, "not 280 W: once, put right"), (0, "not 280 W: once, not in the last day, put right")])
def test_what_drifted_once_is_told_as_once(last_day: int, told: str) -> None:
    one = power_told.Drifted(owner=herd.UUIDS[0], setting="limit_w", wanted="280 W", found="350 W", count=1, last_day=last_day)
    seen = power_told.Told(look=reading.Look(cards=(herd.card(),)), drifts=(one,))
    made = power_rows.rows("a", herd.seen(), seen, power_chosen.Chosen(), rests.Resting())
    assert told in "\n".join(said(power_status.Picture(hosts={"a": herd.well(*made)}), 200, verbose=True))


def test_what_a_node_says_cannot_steer_the_terminal() -> None:
    evil = herd.card(name="[red]RTX[/red]\x1b[2J", holders=(reading.Holder(1, "x\r\x07", user="[bold]me[/bold]"),), fault="\x9b2Jgone")
    told = power_told.Told(look=reading.Look(cards=(evil,)))
    made = power_rows.rows("a", herd.seen(), told, power_chosen.Chosen(), rests.Resting())
    shown = "\n".join(said(power_status.Picture(hosts={"a": herd.well(*made, notes=("\x1b[31mred",))}), 200, verbose=True))
    assert "[red]RTX[/red]" in shown, "markup is text here"
    assert not set(shown) & {"\x1b", "\x07", "\r", "\x9b"}


def test_verbose_names_where_each_figure_is_from() -> None:
    told = "\n".join(said(herd.picture(), 160, verbose=True))
    for words in (
        f"{herd.UUIDS[1]}, bus 0000:02:00.0",
        "power limit: takes 100 to 350 W, default 350 W, requested 280 W, enforced 280 W",
        "wanted by the policy on the node: power limit 280 W",
        "draw: 61.5 W, average over 1 s, told by nvml",
        "process 4242: llama-server, user llama, unit llama@smol.service, model smollm2, 614 MiB",
        "held and idle: 61.5 W; empty on this host: 21.3 W",
        "not told: limits (Not Supported)",
        "drift: power limit was 350 W, not 280 W: 7 times, 7 in the last day, in conflict; likely by lactd.service",
        "modes of this board: 15W, 25W; default unknown",
        "draw: 5.1 W, total over a time that is not told, told by ina3221; module, not board input",
    ):
        assert words in told
