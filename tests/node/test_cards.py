"""Cards as facts: what the driver's files and a name tell, what nvidia-smi is asked once, and what stays unknown."""

from __future__ import annotations

import pytest

from tests import power_cases
from tests.node import strict
from wattherd.node import cards
from wattherd.wire import facts

BOOT = "/proc/sys/kernel/random/boot_id"
ASKED = "memory.total,power.min_limit,power.max_limit,power.default_limit"
QUERY = ("nvidia-smi", f"--query-gpu=pci.bus_id,compute_cap,{ASKED}", "--format=csv")
HEADER = "pci.bus_id, compute_cap, memory.total [MiB], power.min_limit [W], power.max_limit [W], power.default_limit [W]\n"


def arrange(bench: strict.Bench, *models: str, version: str = "580.95.05") -> None:
    bench.put("/proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Tue Sep 23 10:11:41 UTC 2025\n")
    bench.put(BOOT, "first\n")
    bench.folder("/var/cache/wattherd")
    for at, model in enumerate(models, 1):
        text = f"Model: \t\t {model}\nIRQ:   \t\t 44\nGPU UUID: \t GPU-{at}\nBus Location: \t 0000:0{at}:00.0\n"
        bench.put(f"/proc/driver/nvidia/gpus/0000:0{at}:00.0/information", text)


def found(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> tuple[facts.Gpu, ...]:
    monkeypatch.setattr(bench.machine, "which", lambda _name: "/usr/bin/nvidia-smi")
    return cards.found(bench.machine)


def test_nvidia_smi_is_asked_once_for_a_driver_and_its_cards(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    arrange(bench, "NVIDIA GeForce RTX 3090", "NVIDIA Something New")
    rows = "00000000:01:00.0, 8.6, 24576 MiB, 100.00 W, 350.00 W, 350.00 W\n00000000:02:00.0, 12.2, 65536 MiB, [N/A], [N/A], [N/A]\n"
    bench.runner.plan(*QUERY, out=HEADER + rows)
    first = found(bench, monkeypatch)
    assert [(card.power_min_w, card.power_max_w, card.power_default_w) for card in first] == [(100, 350, 350), (None, None, None)]
    assert [(card.compute_capability, card.memory_mib, card.uuid) for card in first] == [("8.6", 24576, "GPU-1"), ("12.2", 65536, "GPU-2")]
    assert found(bench, monkeypatch) == first
    assert len(bench.runner.ran) == 1
    arrange(bench, "NVIDIA GeForce RTX 3090", "NVIDIA Something New", version="590.44.01")
    bench.runner.plan(*QUERY, out=f"{HEADER}00000000:01:00.0, 8.6, 24576 MiB, 100.00 W, 350.00 W, 350.00 W\n")
    assert found(bench, monkeypatch)[1].compute_capability == "", "another driver is asked anew"
    assert len(bench.runner.ran) == 2


def test_a_driver_that_does_not_know_the_question_is_asked_for_the_rest(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    arrange(bench, "GeForce GTX 1080 Ti", version="470.256.02")
    bench.runner.plan(*QUERY, code=2, out='Field "compute_cap" is not a valid field to query.\n')
    told = HEADER.replace(" compute_cap,", "") + "00000000:01:00.0, 11178 MiB, 125.00 W, 300.00 W, [Unknown Error]\n"
    bench.runner.plan("nvidia-smi", f"--query-gpu=pci.bus_id,{ASKED}", strict.REST, out=told, times=2)
    card = facts.Gpu("0000:01:00.0", "nvidia", "GeForce GTX 1080 Ti", "GPU-1", "6.1", 11178, 125, 300)
    assert found(bench, monkeypatch) == (card,)
    bench.machine.unlink(cards.MEMORY)
    assert found(bench, monkeypatch) == (card,)
    assert len(bench.runner.ran) == 3, "the column that this driver does not know is remembered"


def test_what_an_older_program_remembered_is_asked_for_once_more(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    arrange(bench, "NVIDIA GeForce RTX 3090")
    bench.put(cards.MEMORY, '{"key": "580.95.05 0000:01:00.0=GPU-1", "boot": "first", "cards": {"0000:01:00.0": {"memory_mib": 24576}}}')
    bench.runner.plan(*QUERY, out=f"{HEADER}00000000:01:00.0, 8.6, 24576 MiB, 100.00 W, 366.00 W, 350.00 W\n")
    assert found(bench, monkeypatch)[0].power_default_w == 350
    assert found(bench, monkeypatch)[0].power_min_w == 100
    assert len(bench.runner.ran) == 1


def test_a_lost_card_costs_its_neighbours_nothing(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    arrange(bench, "NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090")
    bench.runner.plan(*QUERY, code=15, out=power_cases.case("smi-gpu-lost").input)
    row = f"{HEADER}00000000:01:00.0, 8.6, 24576 MiB, 100.00 W, 366.00 W, 350.00 W\n"
    bench.runner.plan(QUERY[0], "-i", "GPU-1", *QUERY[1:], out=row)
    well, lost = found(bench, monkeypatch)
    assert (well.memory_mib, well.power_default_w) == (24576, 350)
    assert (lost.memory_mib, lost.power_default_w) == (0, None)
    assert found(bench, monkeypatch) == (well, lost)
    bench.put(BOOT, "second\n")
    bench.runner.plan(*QUERY, out=f"{row}00000000:02:00.0, 8.6, 24576 MiB, 100.00 W, 366.00 W, 350.00 W\n")
    assert [card.power_default_w for card in found(bench, monkeypatch)] == [350, 350], "after a reboot it may be there again"


def test_a_sick_driver_costs_its_seconds_once_a_boot(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    arrange(bench, "NVIDIA GeForce RTX 4090")
    bench.runner.plan(*QUERY, code=124, times=2)
    assert found(bench, monkeypatch)[0] == facts.Gpu("0000:01:00.0", "nvidia", "NVIDIA GeForce RTX 4090", "GPU-1", "8.9", 0)
    found(bench, monkeypatch)
    assert len(bench.runner.ran) == 1
    bench.put(BOOT, "second\n")
    found(bench, monkeypatch)
    assert len(bench.runner.ran) == 2


@pytest.mark.parametrize("cell", ["[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", ""])
def test_not_available_is_unknown(cell: str) -> None:
    row = dict.fromkeys(("compute_cap", "memory.total", "power.min_limit", "power.max_limit", "power.default_limit"), cell)
    assert cards.parse([{"pci.bus_id": "0000000F:01:00.0", **row}]) == {"000f:01:00.0": cards.Said()}


def test_a_card_without_a_driver_is_a_card(bench: strict.Bench) -> None:
    bench.put("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")
    bench.put("/sys/bus/pci/devices/0000:01:00.0/class", "0x030000\n")
    bench.put("/sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de\n")
    bench.put("/sys/bus/pci/devices/0000:01:00.1/class", "0x040300\n")
    bench.put("/sys/bus/pci/devices/0000:02:00.0/vendor", "0x8086\n")
    bench.put("/sys/bus/pci/devices/0000:02:00.0/class", "0x030000\n")
    assert cards.found(bench.machine) == (facts.Gpu("0000:01:00.0", "nvidia"),)


@pytest.mark.parametrize(
    ("compatible", "soc"),
    [
        ("nvidia,p3450-0000\0nvidia,tegra210\0", "tegra210"),
        ("nvidia,quill\0nvidia,tegra186\0", "tegra186"),
        ("nvidia,p3668-0000\0nvidia,tegra194\0", "tegra194"),
        ("nvidia,p3768-0000+p3767-0005-super\0nvidia,p3767-0005\0nvidia,tegra234\0nvidia,tegra23x\0", "tegra234"),
        ("nvidia,p3971-0080+p3834-0008\0nvidia,tegra264\0", "tegra264"),
        ("raspberrypi,5-model-b\0brcm,bcm2712\0", ""),
        ("", ""),
    ],
)
def test_a_jetson_is_known_by_its_chip(bench: strict.Bench, compatible: str, soc: str) -> None:
    bench.put("/proc/device-tree/compatible", compatible)
    assert cards.soc(bench.machine) == soc


def test_a_tegra_before_jetpack_7_is_not_asked(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    arrange(bench, "Orin (nvgpu)")
    bench.put("/proc/device-tree/compatible", "nvidia,tegra234\0")
    assert found(bench, monkeypatch)[0].name == "Orin (nvgpu)"
    assert bench.runner.ran == []


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("Tesla P40", "6.1"),
        ("Tesla P100-PCIE-16GB", "6.0"),
        ("GeForce GTX 1080 Ti", "6.1"),
        ("Tesla V100-SXM2-16GB", "7.0"),
        ("Tesla T4", "7.5"),
        ("Quadro RTX 4000", "7.5"),
        ("NVIDIA GeForce RTX 2080 SUPER", "7.5"),
        ("NVIDIA A100-SXM4-80GB", "8.0"),
        ("NVIDIA RTX A6000", "8.6"),
        ("NVIDIA GeForce RTX 3060 Laptop GPU", "8.6"),
        ("NVIDIA L40S", "8.9"),
        ("NVIDIA RTX 4000 SFF Ada Generation", "8.9"),
        ("NVIDIA H200", "9.0"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("NVIDIA B200", "10.0"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "12.0"),
        ("NVIDIA GeForce RTX 5090", "12.0"),
        ("NVIDIA GB10", "12.1"),
        ("NVIDIA GeForce RTX 2050", ""),
        ("NVIDIA RTX 4000", ""),
        ("NVIDIA Something New", ""),
        ("", ""),
    ],
)
def test_only_a_name_without_doubt_tells_a_capability(name: str, capability: str) -> None:
    assert cards.capability(name) == capability
