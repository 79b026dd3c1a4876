"""Rails from sysfs: iio of JetPack 4, hwmon of 5 and later, a Thor's INA238; and the draw that a board's reading makes of them."""

from __future__ import annotations

import re

import pytest

from tests import power_cases
from tests.node import strict
from tests.node.power import jetson_boards, jetson_fake
from wattherd.power.jetson import board, rails


def test_ina_hwmon_jp5(bench: strict.Bench) -> None:
    """The case's own lines, made into files: in7 is no rail, NC gives an error and is no fault, the product is the power."""
    text = power_cases.case("ina-hwmon-jp5").input.replace("...", "/sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon3")
    for line in text.splitlines():
        place = re.match(r"(\S+)/(in\d)_label +(.*?) {2,}(.*)", line) or re.match(r"(\S+)/(in\d)_label +(\S+) +(.*)", line)
        assert place is not None
        folder, channel, label, rest = place.groups()
        bench.put(f"{folder}/{channel}_label", label)
        for name, value in re.findall(r"(\w+_input):? +(\d+|read error)", rest):
            if value.isdigit():
                bench.put(f"{folder}/{name}", value)
            else:
                jetson_boards.broken(bench, f"{folder}/{name}")
    found = board.draw(bench.machine)
    assert found.draw is not None
    assert found.draw.watts == pytest.approx(30.3468)
    assert (found.draw.source, found.draw.sensor, found.draw.basis) == ("ina3221", "instant", "module, not board input")
    assert sorted(found.rails_w) == ["VDD_CPU_GPU_CV", "VDD_IN", "VDD_SOC"]


def test_jetpack_4_has_milliwatts_or_a_product(bench: strict.Bench) -> None:
    jetson_boards.iio(bench, 0, {"POM_5V_IN": (5000, 278), "POM_5V_GPU": (5000, 24), "POM_5V_CPU": (5000, 33)})
    jetson_boards.iio(bench, 1, {"VDD_SYS_DDR": (4000, 500)}, at="6-0041", power=False)
    found = rails.read(bench.machine)
    assert found.watts == {"POM_5V_IN": 1.39, "POM_5V_GPU": 0.12, "POM_5V_CPU": 0.165, "VDD_SYS_DDR": 2.0}
    drawn = board.draw(bench.machine).draw
    assert drawn is not None
    assert drawn.watts == 1.39


def test_two_chips_make_the_sum_of_six(bench: strict.Bench) -> None:
    jetson_boards.iio(bench, 0, {"GPU": (19000, 24), "CPU": (19000, 32), "SOC": (19000, 154)}, at="1-0040")
    jetson_boards.iio(bench, 1, {"CV": (19000, 0), "VDDRQ": (19000, 16), "SYS5V": (5000, 661)}, at="1-0041")
    drawn = board.draw(bench.machine).draw
    assert drawn is not None
    assert drawn.watts == pytest.approx(0.456 + 0.608 + 2.926 + 0.304 + 3.305)
    assert drawn.sensor == "total"


def test_a_thor_tells_its_board_input_in_microwatts(bench: strict.Bench) -> None:
    folder = jetson_boards.hwmon(bench, 4, {"VDD_GPU": (12000, -33), "VDD_CPU_SOC_MSS": (12000, 700), "VIN_SYS_5V0": (5000, 1500)})
    for channel in (4, 5, 6):
        bench.put(f"{folder}/in{channel}_label", f"shunt {channel}")
        bench.put(f"{folder}/in{channel}_input", "400")
    bench.put("/sys/class/hwmon/hwmon4/name", "ina3221\n")  # the same chip by its second way
    bench.put("/sys/class/hwmon/hwmon7/name", "ina238\n")
    bench.put("/sys/class/hwmon/hwmon7/power1_input", "26686000\n")
    bench.put("/sys/class/hwmon/hwmon9/name", "ucsi_source_psy_USBC000:001\n")
    bench.put("/sys/class/hwmon/hwmon9/curr1_input", "3000\n")
    found = board.draw(bench.machine)
    assert found.draw is not None
    assert (found.draw.watts, found.draw.source, found.draw.basis) == (26.686, "ina238", "board input")
    assert found.rails_w["VDD_GPU"] == pytest.approx(-0.396)
    assert sorted(found.rails_w) == ["VDD_CPU_SOC_MSS", "VDD_GPU", "VIN", "VIN_SYS_5V0"]


def test_a_chip_that_only_hwmon_shows_is_found(bench: strict.Bench) -> None:
    bench.put("/sys/class/hwmon/hwmon2/name", "ina3221\n")
    for name, value in (("in1_label", "VDD_IN"), ("in1_input", "5000"), ("curr1_input", "1000")):
        bench.put(f"/sys/class/hwmon/hwmon2/{name}", value)
    drawn = board.draw(bench.machine).draw
    assert drawn is not None
    assert drawn.watts == 5.0


def test_a_total_rail_that_cannot_be_read_is_unknown_and_not_the_rest(bench: strict.Bench) -> None:
    folder = jetson_boards.hwmon(bench, 3, {"VDD_IN": (5016, 6050), "VDD_SOC": (5016, 1100)})
    jetson_boards.broken(bench, f"{folder}/curr1_input")
    found = board.draw(bench.machine)
    assert found.draw is None
    assert "VDD_IN gives an error" in found.why
    assert found.rails_w == {"VDD_SOC": pytest.approx(5.5176)}


@pytest.mark.parametrize("kind", jetson_boards.kinds(), ids=lambda kind: str(kind.id))
def test_every_board_makes_its_total_from_sysfs(bench: strict.Bench, kind: jetson_boards.Kind) -> None:
    """Its rails on as many chips as it takes, three on each, in the tree that its JetPack has; every one draws 1 W."""
    chips = [kind.rails[first : first + 3] for first in range(0, len(kind.rails), 3)]
    for number, rail_names in enumerate(chips):
        made = dict.fromkeys(rail_names, (5000, 200))
        if kind.id in {"nano_4gb", "tx2_8gb", "agx_xavier"}:
            jetson_boards.iio(bench, number, made, at=f"1-004{number}")
        elif "VIN" in made:
            bench.put("/sys/class/hwmon/hwmon9/name", "ina238\n")
            bench.put("/sys/class/hwmon/hwmon9/power1_input", "1000000\n")
        else:
            jetson_boards.hwmon(bench, 3 + number, made, at=f"1-004{number}")
    found = board.draw(bench.machine)
    assert found.draw is not None
    assert found.draw.watts == {"agx_xavier": 6.0, "agx_orin_64gb": 3.0}.get(kind.id, 1.0)
    assert found.draw.basis == ("board input" if kind.id == "agx_thor" else "module, not board input")
    assert sorted(found.rails_w) == sorted(kind.rails)


def test_tegrastats_is_asked_only_where_sysfs_makes_no_total(bench: strict.Bench) -> None:
    bench.put("/usr/bin/tegrastats", mode=0o755)
    bench.runner.plan("timeout", strict.REST, out=jetson_boards.kind("nano_4gb").samples[0] + "\n")
    first = board.draw(bench.machine)
    assert first.draw is not None
    assert (first.draw.watts, first.draw.source) == (0.933, "tegrastats")
    jetson_boards.hwmon(bench, 3, {"VDD_IN": (5000, 1000)})
    second = board.draw(bench.machine)
    assert second.draw is not None
    assert (second.draw.watts, second.draw.source) == (5.0, "ina3221")
    assert len(bench.runner.ran) == 1


def test_a_board_without_rails_is_not_measured(bench: strict.Bench) -> None:
    """tegra-no-rails, read as a board: no draw, the reason, and a wall meter named."""
    bench.put("/usr/bin/tegrastats", mode=0o755)
    bench.runner.plan("timeout", strict.REST, out=power_cases.case("tegra-no-rails").input + "\n", times=None)
    jetson_fake.Board(bench)
    read = board.read(bench.machine)
    assert read is not None
    assert read.draw is None
    assert "wall meter" in read.unknown["draw"]
    assert read.rails_w == {}


def test_a_board_that_reads_0_w_is_not_measured(bench: strict.Bench) -> None:
    jetson_boards.hwmon(bench, 3, {"VDD_IN": (5016, 0), "VDD_SOC": (5016, 0)})
    found = board.draw(bench.machine)
    assert found.draw is None
    assert "0 W, which no running board draws" in found.why


def test_rails_that_nobody_knows_yet_are_shown_and_not_summed(bench: strict.Bench) -> None:
    jetson_boards.hwmon(bench, 3, {"VDD_NEW": (5000, 1000), "VDD_OTHER": (5000, 1000)})
    found = board.draw(bench.machine)
    assert found.draw is None
    assert "VDD_NEW, VDD_OTHER" in found.why
    assert found.rails_w == {"VDD_NEW": 5.0, "VDD_OTHER": 5.0}
