"""A Jetson read once: everything that it tells, and a reason for everything that it does not; nothing makes it raise."""

from __future__ import annotations

import pytest

from tests.node import strict
from tests.node.power import jetson_boards, jetson_fake
from wattherd.node import probe
from wattherd.power.jetson import board, change, clocks


def test_a_whole_board(bench: strict.Bench) -> None:
    jetson_fake.Board(bench, mode="25W")
    jetson_boards.hwmon(bench, 3, {"VDD_IN": (5016, 6050), "VDD_CPU_GPU_CV": (5016, 3900), "VDD_SOC": (5016, 1100)})
    bench.put(f"{jetson_fake.GPU}/cur_freq", "306000000\n")
    bench.put(f"{jetson_fake.GPU}/max_freq", "918000000\n")
    bench.put("/sys/devices/platform/17000000.gpu/load", "435\n")
    for zone, (kind, value) in enumerate((("cpu-thermal", 52500), ("cv0-thermal", -256000), ("tj-thermal", 55250), ("PMIC-Die", 100000))):
        bench.put(f"/sys/class/thermal/thermal_zone{zone}/type", f"{kind}\n")
        bench.put(f"/sys/class/thermal/thermal_zone{zone}/temp", f"{value}\n")
    found = board.read(bench.machine)
    assert found is not None
    assert found.name == "NVIDIA Jetson Orin NX Engineering Reference Developer Kit"
    assert (found.mode, found.mode_id, found.default_mode, found.pending_mode) == ("25W", 3, "40W", "")
    assert found.modes == {"MAXN_SUPER": 0, "10W": 1, "15W": 2, "25W": 3, "40W": 4}
    assert (found.pinned, found.fan) == (False, "quiet")
    assert found.draw is not None
    assert found.draw.watts == pytest.approx(30.3468)
    assert (found.gpu_load_percent, found.gpu_mhz, found.gpu_max_mhz) == (44, 306, 918)
    assert found.temperature_c == 55.25
    assert found.unknown == {}


def test_no_jetson_is_none(bench: strict.Bench) -> None:
    bench.folder("/proc")
    assert board.read(bench.machine) is None


def test_a_jetson_without_any_tool_has_reasons_and_does_not_raise(bench: strict.Bench) -> None:
    bench.put("/proc/device-tree/compatible", "nvidia,p3768-0000+p3767-0000\0nvidia,tegra234\0nvidia,tegra23x\0")
    found = board.read(bench.machine)
    assert found is not None
    assert (found.mode, found.mode_id, found.pinned, found.draw) == ("", None, None, None)
    assert found.unknown["mode"] == "nvpmodel is not installed"
    assert found.unknown["modes"].startswith("/etc/nvpmodel.conf is missing")
    assert "wall meter" in found.unknown["draw"]
    assert set(found.unknown) == {"mode", "modes", "pinned", "fan", "draw", "gpu_load_percent"}


def test_unreadable_files_are_unknown_and_no_crash(bench: strict.Bench) -> None:
    jetson_fake.Board(bench)
    folder = jetson_boards.hwmon(bench, 3, {"VDD_IN": (5000, 1000)})
    broken = (f"{folder}/in1_label", f"{jetson_fake.GPU}/max_freq", f"{jetson_fake.POLICY}/scaling_min_freq", "/etc/nvpmodel.conf")
    for path in (*broken, "/var/lib/nvpmodel/status", "/sys/class/thermal/thermal_zone0/temp", "/etc/nvfancontrol.conf"):
        jetson_boards.broken(bench, path)
    bench.runner.planned.clear()
    bench.runner.plan("nvpmodel", "-q", code=1, err="Segmentation fault\n")
    bench.runner.plan("jetson_clocks", "--show", code=1)
    bench.runner.plan("nvfancontrol", "-q", code=1)
    found = board.read(bench.machine)
    assert found is not None
    assert (found.mode_id, found.draw, found.pinned, found.fan) == (None, None, None, "")


def test_what_waits_for_a_boot_is_shown(bench: strict.Bench) -> None:
    jetson_fake.Board(bench, live=())
    change.mode(bench.machine, "10W")
    found = board.read(bench.machine)
    assert found is not None
    assert (found.mode, found.pending_mode) == ("40W", "10W")


def test_a_thor_has_clocks_but_no_load(bench: strict.Bench) -> None:
    jetson_fake.Board(bench)
    bench.put("/sys/class/devfreq/gpu-gpc-0/cur_freq", "1575000000\n")
    assert clocks.gpu(bench.machine) == "/sys/class/devfreq/17000000.ga10b"
    found = board.read(bench.machine)
    assert found is not None
    assert found.gpu_load_percent is None
    assert found.unknown["gpu_load_percent"] == "this board does not tell the GPU's load"


def test_a_node_tells_its_modes_in_its_hello(bench: strict.Bench) -> None:
    jetson_fake.Board(bench)
    told = probe.facts_of(bench.machine)
    assert told.power_modes == ("MAXN_SUPER", "10W", "15W", "25W", "40W")
    assert told.jetson.startswith("# R36")
    assert not bench.runner.ran, "a hello runs nothing of a Jetson's"
    bench.runner.planned.clear()


def test_a_node_that_is_no_jetson_tells_no_modes(bench: strict.Bench) -> None:
    bench.folder("/proc")
    assert probe.facts_of(bench.machine).power_modes == ()
