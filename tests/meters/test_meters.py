"""Meters in the field's words: RAPL, a BMC, wall plugs, and cards' own counters. What cannot be known is None, never 0."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import power_cases
from tests.node import strict
from wattherd.meters import counters, ipmi, plugs, rapl


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[strict.Bench]:
    runner = strict.Runner()
    root = tmp_path / "root"
    root.mkdir()
    yield strict.Bench(strict.Machine(str(root), runner), runner)
    runner.verify()


# -- RAPL


def _zone(path: str, name: str, energy_uj: int | None, range_uj: int | None = 262143999938) -> rapl.Zone:
    return rapl.Zone(path, name, energy_uj, range_uj)


def test_rapl_wrap() -> None:
    text = power_cases.case("rapl-wrap").input
    range_uj, first, second, milliseconds = (int(one) for one in re.findall(r"\d+", text))
    before, after = (_zone("intel-rapl:0", "package-0", energy, range_uj) for energy in (first, second))
    assert rapl.joules(before, after, milliseconds / 1000) == pytest.approx(1.009938)
    for watts, minutes in ((100.0, 44), (250.0, 17)):
        longest_s = rapl.seconds_to_wrap_s(after, watts)
        assert longest_s is not None
        assert round(longest_s / 60) == minutes
        assert rapl.joules(before, after, longest_s, most_w=watts) is None, "it might have wrapped twice"


@pytest.mark.parametrize(
    ("first", "second", "range_uj", "seconds_s", "joules"),
    [
        (1_000_000, 3_000_000, 262143999938, 1.0, 2.0),
        (1_000_000, 1_000_000, 262143999938, 1.0, 0.0),
        (5_000_000, 4_000_000, None, 1.0, None),  # nobody says where it wraps: the sample is dropped
        (5_000_000, 6_000_000, None, 1.0, 1.0),
        (0, 60293987000000, 262143999938, 1.0, None),  # beyond its own range
        (60293987000000, 5_000_000, 262143999938, 1.0, None),
        (0, 200_000_000_000, 262143999938, 10.0, None),  # 20 kW
        (None, 1, 262143999938, 1.0, None),
        (1, None, 262143999938, 1.0, None),
        (1, 2, 262143999938, 0.0, None),
        (1, 2, 0, 1.0, 0.000001),
    ],
)
def test_a_difference_is_a_figure_only_where_it_can_be_one(
    first: int | None, second: int | None, range_uj: int | None, seconds_s: float, joules: float | None
) -> None:
    found = rapl.joules(
        _zone("intel-rapl:0", "package-0", first, range_uj), _zone("intel-rapl:0", "package-0", second, range_uj), seconds_s
    )
    assert found == (None if joules is None else pytest.approx(joules))


def _second() -> tuple[list[rapl.Zone], list[rapl.Zone]]:
    rows = re.findall(r"(intel-rapl:[\d:]+) (\S+) (\d+) J", power_cases.case("rapl-zones-no-double-count").input)
    assert len(rows) == 5
    return [_zone(path, name, 7) for path, name, _ in rows], [_zone(path, name, 7 + int(used) * 1_000_000) for path, name, used in rows]


def test_rapl_zones_no_double_count() -> None:
    before, after = _second()
    assert rapl.total_joules(before, after, 1.0, trust_psys=True) == 52
    assert rapl.total_joules(before, after, 1.0) == 35


def test_psys_that_cannot_be_read_is_not_trusted_and_a_missing_package_leaves_nothing() -> None:
    before, after = _second()
    blind = [rapl.Zone(zone.path, zone.name) if zone.name == "psys" else zone for zone in after]
    assert rapl.total_joules(before, blind, 1.0, trust_psys=True) == 35
    lost = [rapl.Zone(zone.path, zone.name) if zone.name == "package-0" else zone for zone in after]
    assert rapl.total_joules(before, lost, 1.0) is None
    assert rapl.total_joules([zone for zone in before if zone.name != "dram"], after, 1.0) is None
    assert rapl.total_joules([], [], 1.0) is None


def test_two_sockets_of_zen_have_no_memory_zone() -> None:
    zones = [_zone("intel-rapl:0", "package-0", 0), _zone("intel-rapl:1", "package-1", 0), _zone("intel-rapl:0:0", "core", 0)]
    assert [zone.name for zone in rapl.chosen(zones)] == ["package-0", "package-1"]


def test_zones_are_read_and_one_that_may_not_be_read_is_unknown(bench: strict.Bench) -> None:
    for path, name in (("intel-rapl:0", "package-0"), ("intel-rapl:0:2", "dram")):
        bench.put(f"{rapl.FOLDER}/{path}/name", f"{name}\n")
        bench.put(f"{rapl.FOLDER}/{path}/max_energy_range_uj", "262143999938\n")
    bench.put(f"{rapl.FOLDER}/intel-rapl:0/energy_uj", "12345\n")
    bench.folder(f"{rapl.FOLDER}/intel-rapl:0:2/energy_uj")  # reading it is an error
    bench.put(f"{rapl.FOLDER}/intel-rapl-mmio:0/name", "package-0\n")  # the same counter by its second way
    found = rapl.read(bench.machine)
    assert [(zone.path, zone.name, zone.energy_uj) for zone in found] == [
        ("intel-rapl:0", "package-0", 12345),
        ("intel-rapl:0:2", "dram", None),
    ]
    bench.runner.planned.clear()


def test_a_virtual_machine_has_no_zones(bench: strict.Bench) -> None:
    assert rapl.read(bench.machine) == ()


# -- a BMC

DCMI = "\n    Instantaneous power reading:                   215 Watts\n    Power reading state is:                   activated\n"
FREEIPMI = "Current Power        : 90 Watts\nMinimum Power over sampling duration : 4 watts\nPower Measurement    : Active\n"


def test_ipmi_dcmi_zero() -> None:
    found = ipmi.parse(power_cases.case("ipmi-dcmi-zero").input)
    assert found.watts is None
    assert "deactivated" in found.reason


@pytest.mark.parametrize(
    ("text", "watts"),
    [
        (DCMI, 215.0),
        (FREEIPMI, 90.0),
        (DCMI.replace("activated", "deactivated").replace("215", "360"), None),
        (DCMI.replace("215", "0"), None),
        (FREEIPMI.replace("Active", "Not Available"), None),
        ("System Level     | 189.000    | Watts      | ok    | na        | 917.000\n", 189.0),
        ("System Level     | na         | Watts      | na    | na        | na\n", None),
        ("ipmi_cmd_dcmi_get_power_reading: command invalid or unsupported\n", None),
        ("ipmi_cmd_dcmi_get_power_reading: bad completion code\n", None),
        ("", None),
    ],
)
def test_the_words_of_a_bmc_are_watts_or_a_reason(text: str, watts: float | None) -> None:
    found = ipmi.parse(text)
    assert found.watts == watts
    assert bool(found.reason) == (watts is None)


def test_freeipmi_is_asked_where_ipmitool_is_missing(bench: strict.Bench) -> None:
    bench.runner.plan(*ipmi.IPMITOOL, code=127)
    bench.runner.plan(*ipmi.FREEIPMI, out=FREEIPMI)
    assert ipmi.read(bench.machine).watts == 90.0


def test_a_bmc_that_does_not_answer_is_a_reason(bench: strict.Bench) -> None:
    bench.runner.plan(*ipmi.IPMITOOL, code=124)
    assert ipmi.read(bench.machine) == ipmi.Reading(reason="the BMC gave no answer within 20 s")


def test_no_tool_is_a_reason(bench: strict.Bench) -> None:
    bench.runner.plan(*ipmi.IPMITOOL, code=127)
    bench.runner.plan(*ipmi.FREEIPMI, code=127)
    assert ipmi.read(bench.machine).reason == "neither ipmitool nor FreeIPMI is installed"


# -- plugs


def test_shelly_gen1_vs_gen2() -> None:
    first, second = (json.loads(line.partition("-> ")[2]) for line in power_cases.case("shelly-gen1-vs-gen2").input.strip().splitlines())
    (one,) = plugs.shelly_gen1(first)
    assert one.watts == 455.85
    assert one.counter_wh == pytest.approx(2430.45)
    (two,) = plugs.shelly_gen2(second)
    assert (two.channel, two.watts, two.counter_wh) == ("switch:0", 28.2, 66102.508)
    assert plugs.shelly_gen1(second) == ()
    assert plugs.shelly_gen2(first) == ()


def test_a_plug_that_feeds_back_is_below_zero_and_one_without_a_meter_is_none() -> None:
    told = {"switch:0": {"apower": -412.5, "aenergy": {"total": 10.0}}, "switch:1": {"output": True}, "sys": {"uptime": 7}}
    assert plugs.shelly_gen2({"id": 1, "src": "x", "result": told}) == (plugs.Reading("switch:0", -412.5, 10.0),)


def test_other_shellys_that_measure() -> None:
    meter = {"em1:0": {"act_power": 700.4}, "em1data:0": {"total_act_energy": 3000.5}, "pm1:0": {"apower": 3.0, "aenergy": {"total": 9.0}}}
    assert plugs.shelly_gen2(meter) == (plugs.Reading("em1:0", 700.4, 3000.5), plugs.Reading("pm1:0", 3.0, 9.0))
    three = {"emeters": [{"power": 100.0, "total": 5000.0, "is_valid": True}, {"power": 0.0, "total": 0.0, "is_valid": False}]}
    assert plugs.shelly_gen1(three) == (plugs.Reading("emeter 0", 100.0, 5000.0),)


def test_tasmota_power_array() -> None:
    document = json.loads(power_cases.case("tasmota-power-array").input)
    (found,) = plugs.tasmota(document)
    assert found.watts == 1.0
    bare = {"ENERGY": {"Power": 42, "ApparentPower": 50, "Total": 12.345}}
    assert plugs.tasmota(bare) == (plugs.Reading("ENERGY", 42.0, 12345.0),)
    assert plugs.tasmota({"StatusSNS": {"ENERGY": {"Power": [1, None], "Total": [1.5, 0.5]}}}) == (plugs.Reading("ENERGY", None, 2000.0),)


@pytest.mark.parametrize("document", [None, [], "x", {}, {"ENERGY": 3}, {"StatusSNS": {}}, {"meters": "x"}, {"switch:0": {"apower": "28"}}])
def test_what_is_no_answer_of_a_plug_gives_nothing(document: object) -> None:
    assert plugs.tasmota(document) == plugs.shelly_gen1(document) == plugs.shelly_gen2(document) == ()


def test_numbers_that_are_none_are_none() -> None:
    assert plugs.shelly_gen1({"meters": [{"power": float("nan"), "total": True}]}) == ()


# -- counters of cards


def test_energy_counter_not_supported() -> None:
    rows = re.findall(r"(\d\d):(\d\d):(\d\d) ([\d.]+) W", power_cases.case("energy-counter-not-supported").input)
    samples = [counters.Sample(int(h) * 3600 + int(m) * 60 + int(s), None, float(watts)) for h, m, s, watts in rows]
    found = counters.used(samples)
    assert found is not None
    assert found.joules / 3600 == 50.0
    assert (found.seconds_s, found.method) == (3600, "integrated power (no counter on this GPU)")
    told: set[str] = set()
    assert "no energy counter" in counters.warning(told, "Tesla P40", found)
    assert counters.warning(told, "Tesla P40", found) == "", "it is so every time: said once"


def test_uneven_readings_are_weighed_by_their_time() -> None:
    samples = [counters.Sample(0, None, 100.0), counters.Sample(1, None, 300.0), counters.Sample(11, None, 300.0)]
    found = counters.used(samples)
    assert found is not None
    assert found.joules == 200 + 3000


def test_a_counter_counts_and_one_that_fell_has_begun_anew() -> None:
    steady = counters.used([counters.Sample(0, 1000, 50.0), counters.Sample(10, 6000, 50.0)])
    assert steady == counters.Used(5.0, 10, counters.COUNTER)
    anew = counters.used([counters.Sample(0, 10_000), counters.Sample(10, 12_000), counters.Sample(20, 3000)])
    assert anew == counters.Used(5.0, 20, counters.COUNTER, is_least=True)
    assert counters.warning(set(), "x", anew) == ""


@pytest.mark.parametrize(
    "samples",
    [
        [],
        [counters.Sample(0, 1000)],
        [counters.Sample(0), counters.Sample(10)],
        [counters.Sample(0, None, 50.0), counters.Sample(10)],
        [counters.Sample(0, None, 50.0), counters.Sample(5000, None, 50.0)],
    ],
)
def test_what_nobody_saw_is_none_and_not_zero(samples: list[counters.Sample]) -> None:
    assert counters.used(samples) is None


def test_a_gap_is_told_and_not_filled() -> None:
    samples = [counters.Sample(0, None, 50.0), counters.Sample(100, None, 50.0), counters.Sample(9000, None, 50.0)]
    assert counters.used(samples) == counters.Used(5000.0, 9000, counters.INTEGRATED, gap_s=8900)


def test_energy_mig_same_counter() -> None:
    found = counters.dcgm(power_cases.case("energy-mig-same-counter").input)
    assert list(found) == ["GPU-2"]
    assert found["GPU-2"] / 1e9 == pytest.approx(126.272, abs=0.001)


def test_a_page_of_dcgm_with_other_rows_and_damaged_ones() -> None:
    page = (
        "# HELP DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION Total energy\n"
        'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-1"} 1.5e+06\n'
        'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="1",UUID="GPU-2"} -\n'
        'DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-3"} 55.0\n'
        'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="3"} 12\n'
    )
    assert counters.dcgm(page) == {"GPU-1": 1_500_000}
