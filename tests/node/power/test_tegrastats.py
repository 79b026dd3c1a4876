"""tegrastats of every JetPack and board: what is the total, what is a rail, what is neither."""

from __future__ import annotations

import pytest

from tests import power_cases
from tests.node import strict
from tests.node.power import jetson_boards
from wattherd.power.jetson import tegrastats, totals

MODULE, BOARD = "module, not board input", "board input"

#: The samples of the field notes: line, total in watts (None: the board does not tell), what it covers, load, clock.
SAMPLES = {
    "1 nano jp4": (
        (
            "RAM 2015/3964MB (lfb 98x4MB) GR3D_FREQ 0% PLL@28C CPU@31.5C PMIC@100C GPU@30.5C AO@36C thermal@31.25C "
            "POM_5V_IN 1388/1388 POM_5V_GPU 122/122 POM_5V_CPU 163/163"
        ),
        1.388,
        MODULE,
        0,
        None,
    ),
    "2 nano jp4.6": (
        "RAM 331/3964MB (lfb 758x4MB) IRAM 0/252kB(lfb 252kB) EMC_FREQ 0%@1600 GR3D_FREQ 7%@76 POM_5V_IN 1750/1628 POM_5V_GPU 0/20",
        1.75,
        MODULE,
        7,
        76,
    ),
    "3 tx2 jp4": (
        (
            "RAM 1/2MB GR3D_FREQ 0%@114 Tdiode@39.25C VDD_SYS_GPU 182/182 VDD_SYS_SOC 730/730 VDD_4V0_WIFI 0/0 VDD_IN 5297/5297 "
            "VDD_SYS_CPU 1917/1917 VDD_SYS_DDR 1241/1241"
        ),
        5.297,
        MODULE,
        0,
        114,
    ),
    "4 agx xavier jp4": (
        (
            "RAM 1/2MB CPU [2%@1190,off] GR3D_FREQ 0%@318 APE 150 GPU@37.5C CPU@37.5C "
            "GPU 0/0 CPU 311/311 SOC 932/932 CV 0/0 VDDRQ 621/621 SYS5V 1482/1482"
        ),
        3.346,
        MODULE,
        0,
        318,
    ),
    "5 xavier nx": ("RAM 1/2MB GR3D_FREQ 1%@114 VDD_IN 4067/4067 VDD_CPU_GPU_CV 738/738 VDD_SOC 1353/1353", 4.067, MODULE, 1, 114),
    "6 tx2 nx jp4.6": ("RAM 1/2MB GR3D_FREQ 0% BCPU@50.5C thermal@50.3C", None, "", 0, None),
    "7 orin nano jp6": (
        (
            "05-15-2025 18:30:28 RAM 6982/7620MB (lfb 5x1MB) GR3D_FREQ 84%@[713] NVENC 1%@115 "
            "VDD_IN 17946mW/15710mW VDD_CPU_GPU_CV 8896mW/7585mW VDD_SOC 3923mW/3515mW"
        ),
        17.946,
        MODULE,
        84,
        713,
    ),
    "8 agx orin jp5": (
        (
            "RAM 1/2MB GR3D_FREQ 14%@[407,407] VIC_FREQ 115 VDD_GPU_SOC 3150mW/2971mW VDD_CPU_CV 14312mW/12415mW "
            "VIN_SYS_5V0 4968mW/5048mW VDDQ_VDD2_1V8AO 1091mW/1091mW"
        ),
        22.43,
        MODULE,
        14,
        407,
    ),
    "9 agx orin jp7.2": (
        (
            "RAM 1/2MB GR3D_FREQ 12%@[1300,1300] VDD_GPU_SOC 5139mW/5139mW/5139mW VDD_CPU_CV 3268mW/3268mW/3268mW "
            "VIN_SYS_5V0 5500mW/5500mW/5500mW"
        ),
        13.907,
        MODULE,
        12,
        1300,
    ),
    "10 thor jp7 load": (
        (
            "RAM 1/2MB EMC_FREQ 34%@4266 GR3D_FREQ 87%@[1574,1574,1574] VDD_GPU 37939mW/8660mW/37939mW "
            "VDD_CPU_SOC_MSS 30059mW/12281mW/30059mW VIN_SYS_5V0 15486mW/7424mW/15486mW VIN 124486mW/36487mW/124486mW"
        ),
        124.486,
        BOARD,
        87,
        1574,
    ),
    "11 thor idle": (
        "RAM 1/2MB CPU [0%,5%]@2601 EMC_FREQ @4266 GR3D_FREQ @[1574,1574,1574] VDD_GPU 6330mW/6330mW/6330mW VIN 28906mW/14453mW/28906mW",
        28.906,
        BOARD,
        None,
        1574,
    ),
    "12 orin jp5 older": ("RAM 1/2MB GR3D_FREQ 3%@114 GR3D2_FREQ 0%@114 VDD_IN 4000mW/4000mW", 4.0, MODULE, 3, 114),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_of_the_field_gives_its_total_load_and_clock(name: str) -> None:
    line, watts, basis, load, mhz = SAMPLES[name]
    sample = tegrastats.parse(line)
    total = totals.total(sample.rails_w)
    assert (total.watts if total else None) == watts
    assert (total.basis if total else "") == basis
    assert (sample.gpu_load_percent, sample.gpu_mhz) == (load, mhz)


#: The lines of the boards, in their order, and what each board draws.
BOARD_WATTS = {
    "nano_4gb": (0.933,),
    "tx2_8gb": (5.297,),
    "xavier_nx": (),
    "agx_xavier": (7.632,),
    "orin_nano_super_8gb": (12.479, 4.824),
    "orin_nx_16gb": (),
    "agx_orin_64gb": (13.907,),
    "agx_thor": (26.686,),
}


@pytest.mark.parametrize("kind", jetson_boards.kinds(), ids=lambda kind: str(kind.id))
def test_every_board_gives_its_total(kind: jetson_boards.Kind) -> None:
    assert len(kind.samples) == len(BOARD_WATTS[kind.id])
    for line, watts in zip(kind.samples, BOARD_WATTS[kind.id], strict=True):
        sample = tegrastats.parse(line)
        total = totals.total(sample.rails_w)
        assert total is not None
        assert total.watts == watts
        assert set(sample.rails_w) <= set(kind.rails)
        assert "PMIC" not in sample.temperatures_c


@pytest.mark.parametrize("kind", jetson_boards.kinds(), ids=lambda kind: str(kind.id))
def test_a_rule_fits_the_rails_of_every_board_and_counts_none_twice(kind: jetson_boards.Kind) -> None:
    total = totals.total(dict.fromkeys(kind.rails, 1.0))
    assert total is not None
    whole = {"agx_xavier": 6, "agx_orin_64gb": 3}
    assert (total.watts, len(total.rails)) == (whole.get(kind.id, 1), whole.get(kind.id, 1))


def _total_w(case: str) -> tuple[tegrastats.Sample, totals.Total]:
    sample = tegrastats.parse(power_cases.case(case).input)
    total = totals.total(sample.rails_w)
    assert total is not None
    return sample, total


def test_tegra_nano_jp4() -> None:
    sample, total = _total_w("tegra-nano-jp4")
    assert total.watts == 1.388
    assert sample.rails_w["POM_5V_GPU"] == 0.122
    assert sample.gpu_load_percent == 0


def test_tegra_agx_xavier_sum() -> None:
    sample, total = _total_w("tegra-agx-xavier-sum")
    assert total.watts == 3.346
    assert sorted(sample.rails_w) == ["CPU", "CV", "GPU", "SOC", "SYS5V", "VDDRQ"]
    assert sample.temperatures_c["GPU"] == 37.5


def test_tegra_orin_nano_jp6() -> None:
    sample, total = _total_w("tegra-orin-nano-jp6")
    assert total.watts == 17.946
    assert (sample.gpu_load_percent, sample.gpu_mhz) == (84, 713)


def test_tegra_agx_orin_four_rails() -> None:
    sample, total = _total_w("tegra-agx-orin-four-rails")
    assert total.watts == 22.43
    assert total.basis == MODULE
    assert "VDDQ_VDD2_1V8AO" not in total.rails
    assert sample.gpu_load_percent == 14


def test_tegra_thor_loaded_vin() -> None:
    sample, total = _total_w("tegra-thor-loaded-vin")
    assert (total.watts, total.rails, total.basis) == (124.486, ("VIN",), BOARD)
    assert sample.gpu_load_percent == 87
    assert "FUTURE_TOKEN" not in sample.rails_w


def test_tegra_no_rails() -> None:
    sample = tegrastats.parse(power_cases.case("tegra-no-rails").input)
    assert sample.rails_w == {}
    assert totals.total(sample.rails_w) is None


def test_unused_sensors_and_placeholders_are_no_temperatures() -> None:
    sample = tegrastats.parse("RAM 1/2MB cv0@-256C PMIC@100C tj@66.625C/70C CPU@31.5C")
    assert sample.temperatures_c == {"tj": 66.625, "CPU": 31.5}


def test_a_gated_rail_reads_below_zero_and_counts_as_nothing() -> None:
    sample = tegrastats.parse("RAM 1/2MB VDD_GPU -392mW/0mW/0mW VDD_CPU_SOC_MSS 8000mW/1mW/1mW VIN_SYS_5V0 7000mW/1mW/1mW")
    total = totals.total(sample.rails_w)
    assert sample.rails_w["VDD_GPU"] == -0.392
    assert total is not None
    assert total.watts == 15.0


def test_a_part_of_the_rails_is_never_the_total() -> None:
    assert totals.total({"VDD_GPU_SOC": 3.1, "VIN_SYS_5V0": 4.9}) is None
    assert totals.total({"VDD_SOMETHING_NEW": 3.1}) is None
    assert totals.total({"VIN": -1.0}) is None
    assert totals.total({"VDD_IN": 0.0, "VDD_SOC": 0.0}) is None


def test_one_line_is_taken_and_the_program_is_ended(bench: strict.Bench) -> None:
    bench.put("/usr/bin/tegrastats", mode=0o755)
    line = jetson_boards.kind("agx_thor").samples[0]
    bench.runner.plan("timeout", "-k", "1", "2", "tegrastats", strict.REST, code=124, out=f"banner\n{line}\n{line}\n")
    sample = tegrastats.sample(bench.machine)
    assert sample is not None
    assert sample.rails_w["VIN"] == 26.686
    assert bench.runner.ran[0].timeout_s is not None


def test_a_board_without_the_tool_or_with_a_silent_one_gives_nothing(bench: strict.Bench) -> None:
    assert tegrastats.sample(bench.machine) is None
    bench.put("/usr/bin/tegrastats", mode=0o755)
    bench.runner.plan("timeout", strict.REST, code=124)
    assert tegrastats.sample(bench.machine) is None
