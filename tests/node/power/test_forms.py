"""nvidia-smi's three forms, of every generation of drivers: field cases and whole answers of real cards."""

from __future__ import annotations

import pathlib
import textwrap

import pytest

from tests import power_cases
from wattherd.power import cell, described, query, reading, report, throttle

SAMPLES = pathlib.Path(__file__).parent / "samples"


def of_text(text: str) -> reading.Card:
    _, found = report.from_text(text if text.startswith(("GPU 0", "\n=")) else f"GPU 00000000:01:00.0\n{textwrap.indent(text, '    ')}")
    (cells,) = found
    return described.card(cells)


def of_xml(text: str) -> reading.Card:
    _, found = report.from_xml(f'<?xml version="1.0" ?>\n<nvidia_smi_log><gpu id="00000000:01:00.0">{text}</gpu></nvidia_smi_log>')
    (cells,) = found
    return described.card(cells)


def of_csv(text: str) -> list[reading.Card]:
    return [described.card(query.cells(row)) for row in query.parse(text)]


# -- the field's cases


def test_smi_q_power_590_three_sections() -> None:
    card = of_text(power_cases.case("smi-q-power-590-three-sections").input)
    assert card.draw == reading.Draw(77.67, "average", "nvidia-smi", 1.0)
    assert card.draw_instant_w == 77.88
    assert card.limits == reading.Limits(200, 700, 700, 700, 700), "the module's N/A took nothing away"
    assert card.bus == "0000:1b:00.0"


def test_smi_enforced_below_requested() -> None:
    card = of_text(power_cases.case("smi-enforced-below-requested").input)
    assert (card.limits.enforced_w, card.limits.requested_w) == (500, 700)
    assert card.draw == reading.Draw(78.83, "average", "nvidia-smi", 1.0)


def test_smi_xml_gpu_power_readings() -> None:
    card = of_xml(power_cases.case("smi-xml-gpu-power-readings").input)
    assert card.draw == reading.Draw(2.42, "instant", "nvidia-smi", 0.0)
    assert card.limits == reading.Limits(100, 280, 250, 250, 250)


def test_smi_csv_deprecated_cells_and_idle_capflag() -> None:
    (card,) = of_csv(power_cases.case("smi-csv-deprecated-cells-and-idle-capflag").input)
    assert card.draw == reading.Draw(39.32, "instant", "nvidia-smi", 0.0)
    assert (card.pstate, card.limits.enforced_w, card.persistence) == (8, 250, False)
    assert card.throttle == ("sw_power_cap",)
    assert throttle.binding(card) == (), "idle at 16 % of its limit: the flag alone is no proof"


def test_smi_csv_header_alias() -> None:
    text = "\n".join(power_cases.case("smi-csv-header-alias").input.splitlines()[1:])
    (row,) = query.parse(text)
    asked = ("clocks_throttle_reasons.hw_thermal_slowdown", "clocks_throttle_reasons.hw_power_brake_slowdown")
    assert [row[query.canonical(name)] for name in asked] == ["Not Active", "Not Active"]
    assert described.active(query.cells(row)) == ()
    (hot,) = query.parse(text.replace("Not Active, Not", "Active, Not"))
    assert described.active(query.cells(hot)) == ("hw_thermal_slowdown",)


def test_smi_csv_unknown_error_default() -> None:
    (card,) = of_csv(power_cases.case("smi-csv-unknown-error-default").input)
    assert card.draw == reading.Draw(228.82, "total", "nvidia-smi"), "nothing says whether this column averages"
    assert (card.limits.requested_w, card.limits.default_w) == (210, None)
    assert card.unknown["limits.default_w"] == "Unknown Error"
    assert card.fault == "", "one column is no lost card"
    assert (card.clocks.memory_mhz, card.utilization_percent, card.fan_percent) == (6800, 100, 56)


def test_smi_gb10_memory_na_no_limit() -> None:
    cells = power_cases.case("smi-gb10-memory-na-no-limit").input.splitlines()
    header = cells[2].partition("--query-gpu=")[2].partition(" ")[0].replace(",", ", ")
    (card,) = of_csv(f"{header}\n{cells[3]}\n")
    assert (card.memory_used_mib, card.memory_total_mib) == (None, None)
    assert card.unknown["memory"] == "N/A"
    assert card.limits == reading.Limits()


# -- whole answers of real cards


def test_a_p40_of_driver_535() -> None:
    text = (SAMPLES / "tesla-p40__535.129.03__nvidia-smi-q.txt").read_text()
    driver, (cells,) = report.from_text(text)
    card = described.card(cells)
    assert driver == "535.129.03"
    assert card.draw == reading.Draw(52.5, "instant", "nvidia-smi", 0.0), "Pascal does not average"
    assert card.limits == reading.Limits(125, 250, 250, 250, 250)
    assert card.clocks == reading.Clocks(544, 3615, 1531, 3615)
    assert (card.name, card.bus, card.pstate, card.temperature_c) == ("Tesla P40", "0000:83:00.0", 0, 69)
    assert (card.memory_used_mib, card.memory_total_mib, card.utilization_percent) == (54, 24576, 1)
    assert (card.persistence, card.mig, card.fan_percent) == (False, None, None)
    assert card.throttle == ("sw_power_cap",)
    assert throttle.binding(card) == (), "52 W of 250 W"


def test_a_5090_of_driver_570() -> None:
    card = of_text((SAMPLES / "geforce-rtx-5090__570.124.06__nvidia-smi-q.txt").read_text())
    assert card.draw == reading.Draw(24.05, "average", "nvidia-smi", 1.0)
    assert (card.draw_instant_w, card.limits) == (23.78, reading.Limits(400, 575, 575, 575, 575))
    assert card.clocks == reading.Clocks(22, 405, 3090, 14001), "not those of applications, which are N/A"
    assert card.persistence is True


def test_five_cards_idle_and_loaded() -> None:
    cards = of_csv((SAMPLES / "five-cards__idle-and-load__query-gpu.csv").read_text())
    assert len(cards) == 10
    turing, ada, h200 = cards[1], cards[3], cards[9]
    assert turing.draw == reading.Draw(111.5, "instant", "nvidia-smi", 0.0)
    assert ada.draw == reading.Draw(84.24, "average", "nvidia-smi", 1.0)
    assert ada.draw_instant_w == 86.41
    assert (h200.draw and h200.draw.watts, h200.clocks.sm_mhz, h200.memory_used_mib, h200.mig) == (627.4, 1980, 32362, False)
    assert all(card.unknown.get("energy_mj") for card in cards), "nvidia-smi has no energy"
    assert cards[4].fan_percent is None
    assert cards[4].unknown["fan_percent"] == "N/A"


# -- generations that differ


OLD = """\
    Product Architecture                  : Ampere
    Clocks Throttle Reasons
        Idle                              : Not Active
        SW Power Cap                      : Not Active
        HW Slowdown                       : Active
            HW Thermal Slowdown           : Not Active
            HW Power Brake Slowdown       : Active
    Power Readings
        Power Management                  : Supported
        Power Draw                        : 301.20 W
        Power Limit                       : 300.00 W
        Default Power Limit               : 350.00 W
        Enforced Power Limit              : 280.00 W
        Min Power Limit                   : 100.00 W
        Max Power Limit                   : 366.00 W
"""
NEW = """\
    Clocks Event Reasons Counters
        SW Power Capping                               : 7000 us
        SW Thermal Slowdown                            : 0 us
        HW Power Braking                               : 12 us
    GPU Power Readings
        Average Power Draw                             : 83.10 W
        Instantaneous Power Draw                       : 83.55 W
        GPU Ceiling Power Limit
            Current Power Limit                        : 500.00 W
            Requested Power Limit                      : 600.00 W
            Default Power Limit                        : 700.00 W
        GPU Base Power
            Current Base Power                         : N/A
            Requested Base Power                       : N/A
            Default Base Power                         : N/A
        Min Power Limit                                : 200.00 W
        Max Power Limit                                : 700.00 W
    GPU Memory Power Readings
        Average Power Draw                             : 46.56 W
    Module Power Readings
        Average Power Draw                             : 900.00 W
        Module Ceiling Power Limit
            Current Power Limit                        : 1000.00 W
"""


def test_up_to_530_the_limit_is_what_was_asked_for() -> None:
    card = of_text(f"GPU 00000000:01:00.0\n{OLD}")
    assert card.limits == reading.Limits(100, 366, 350, 300, 280)
    assert card.draw == reading.Draw(301.2, "total", "nvidia-smi"), "an Ampere card may be a GA100, which does not average"
    assert card.throttle == ("hw_slowdown", "hw_power_brake_slowdown")
    assert throttle.binding(card) == ("hw_slowdown", "hw_power_brake_slowdown")


def test_610_puts_the_limits_one_level_deeper() -> None:
    card = of_text(f"GPU 00000000:01:00.0\n{NEW}")
    assert card.limits == reading.Limits(200, 700, 700, 600, 500)
    assert card.draw == reading.Draw(83.1, "average", "nvidia-smi", 1.0)
    assert card.violations_ns == {"sw_power_cap": 7_000_000, "sw_thermal_slowdown": 0, "hw_power_brake_slowdown": 12_000}
    xml = (
        "<gpu_power_readings><average_power_draw>83.10 W</average_power_draw><gpu_ceiling_power_limit>"
        "<current_power_limit>500.00 W</current_power_limit><requested_power_limit>600.00 W</requested_power_limit>"
        "<default_power_limit>700.00 W</default_power_limit></gpu_ceiling_power_limit><min_power_limit>200.00 W</min_power_limit>"
        "<max_power_limit>700.00 W</max_power_limit></gpu_power_readings><gpu_memory_power_readings><average_power_draw>46.56 W"
        "</average_power_draw></gpu_memory_power_readings><clocks_event_reasons><clocks_event_reason_sw_thermal_slowdown>Active"
        "</clocks_event_reason_sw_thermal_slowdown><clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>"
        "</clocks_event_reasons><clocks_event_reasons_counters><clocks_event_reasons_counters_hw_power_brake>5 us"
        "</clocks_event_reasons_counters_hw_power_brake></clocks_event_reasons_counters>"
    )
    twin = of_xml(xml)
    assert twin.limits == card.limits
    assert twin.draw == card.draw
    assert twin.throttle == ("sw_thermal_slowdown",)
    assert twin.violations_ns == {"hw_power_brake_slowdown": 5000}


def test_the_driver_of_610_is_followed_by_a_sentence() -> None:
    head = "Driver Version : 610.43.02 [Deprecated; use KMD Version instead]\nKMD Version : 610.43.02\n"
    text = f"{head}\nGPU 00000000:01:00.0\n    Product Name : NVIDIA H200\n"
    assert report.from_text(text)[0] == "610.43.02"
    assert report.from_text(text.replace("KMD Version :", "Other :"))[0] == "610.43.02"


@pytest.mark.parametrize("text", ["", "no xml", "<nvidia_smi_log>", "<a><gpu/>", "\x00\x01"])
def test_what_is_no_report_gives_no_card(text: str) -> None:
    assert report.from_xml(text) == ("", [])
    assert report.from_text(text)[1] == []
    assert query.parse(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "[N/A]",
        "N/A",
        "[Not Supported]",
        "Not Supported",
        "[Unknown Error]",
        "Unknown Error",
        "[Insufficient Permissions]",
        "[GPU requires reset]",
        "[Requested functionality has been deprecated]",
        "Not Found",
        "ERR!",
        "",
        "  ",
        "12 W of 30",
        "1,5 W",
        "0x1f",
    ],
)
def test_a_cell_that_is_no_number_is_unknown_and_never_0(text: str) -> None:
    assert cell.number(text) is None
    assert cell.whole(text) is None
    card = described.card({described.PLAIN: text, "limits.default_w": text, "pstate": text})
    assert (card.draw, card.limits.default_w, card.pstate) == (None, None, None)
    assert card.unknown["draw"] == (cell.words(text) or "not told by this driver")


@pytest.mark.parametrize(("text", "value"), [("0.00 W", 0.0), ("-0.39 W", -0.39), ("3", 3.0), ("[12 %]", 12.0), ("1980 MHz", 1980.0)])
def test_a_cell_that_is_a_number(text: str, value: float) -> None:
    assert cell.number(text) == value


def test_a_card_that_needs_a_reset_says_so_in_its_cells() -> None:
    header = "uuid, pci.bus_id, pstate, power.draw [W], power.limit [W]"
    (card,) = of_csv(f"{header}\nGPU-1, 00000000:02:00.0, [GPU requires reset], [GPU requires reset], 1 W\n")
    assert (card.fault, card.uuid, card.draw) == ("GPU requires reset", "GPU-1", None)


@pytest.mark.parametrize(
    ("words", "bus", "fault"),
    [
        (power_cases.case("smi-gpu-lost").input, "0000:02:00.0", "GPU is lost"),
        ("Unable to determine the device handle for GPU 0000:02:00.0: Unknown Error", "0000:02:00.0", "Unknown Error"),
        (
            "Unable to determine the device handle for GPU0: 00000000:C1:00.0: GPU is lost.  Reboot the system",
            "0000:c1:00.0",
            "GPU is lost",
        ),
    ],
)
def test_smi_gpu_lost_is_that_card(words: str, bus: str, fault: str) -> None:
    assert described.lost(words) == [reading.Card("", bus, fault=fault)]
