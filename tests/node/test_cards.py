"""Cards as facts: what the driver's files and a name tell, what nvidia-smi is asked once, and what stays unknown."""

from __future__ import annotations

import pytest

from tests.node import strict
from wattherd.node import cards
from wattherd.wire import facts

BOOT = "/proc/sys/kernel/random/boot_id"
QUERY = ("nvidia-smi", "--query-gpu=pci.bus_id,compute_cap,memory.total", "--format=csv,noheader,nounits")


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
    bench.runner.plan(*QUERY, out="00000000:01:00.0, 8.6, 24576\n00000000:02:00.0, 12.2, 65536\n")
    first = found(bench, monkeypatch)
    assert [(card.compute_capability, card.memory_mib, card.uuid) for card in first] == [("8.6", 24576, "GPU-1"), ("12.2", 65536, "GPU-2")]
    assert found(bench, monkeypatch) == first
    assert len(bench.runner.ran) == 1
    arrange(bench, "NVIDIA GeForce RTX 3090", "NVIDIA Something New", version="590.44.01")
    bench.runner.plan(*QUERY, out="00000000:01:00.0, 8.6, 24576\n")
    assert found(bench, monkeypatch)[1].compute_capability == "", "another driver is asked anew"
    assert len(bench.runner.ran) == 2


def test_a_driver_that_does_not_know_the_question_is_asked_for_the_rest(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    arrange(bench, "GeForce GTX 1080 Ti", version="470.256.02")
    bench.runner.plan(*QUERY, code=6, out='Field "compute_cap" is not a valid field to query.\n')
    bench.runner.plan("nvidia-smi", "--query-gpu=pci.bus_id,memory.total", strict.REST, out="00000000:01:00.0, 11178\n")
    assert found(bench, monkeypatch) == (facts.Gpu("0000:01:00.0", "nvidia", "GeForce GTX 1080 Ti", "GPU-1", "6.1", 11178),)


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
    assert cards.parse(f"0000000F:01:00.0, {cell}, {cell}\n") == {"000f:01:00.0": cards.Said()}


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
