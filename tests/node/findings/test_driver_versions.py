"""Driver versions, nvidia-smi's ends and missing cards, in the forms that drivers of several years print."""

from __future__ import annotations

import pytest

from wattherd.node.findings import driver
from wattherd.resources import driver as modules
from wattherd.wire import finding

CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  520.56.06  Thu Oct  6 21:38:55 UTC 2022\nGCC version:  gcc version 12.2.0"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.211.01  Release Build  (builder@host)  Wed Feb  5\n"
ARM = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.65.06  Release Build\n"
A, B = "GPU-11111111-2222-3333-4444-555555555555", "GPU-66666666-7777-8888-9999-000000000000"


@pytest.mark.parametrize(
    ("text", "version"), [(CLOSED, "520.56.06"), (OPEN, "570.211.01"), (ARM, "580.65.06"), ("", ""), ("NVRM version:", "")]
)
def test_the_loaded_version(text: str, version: str) -> None:
    assert modules.loaded(text) == version


def test_the_installed_version_comes_from_the_file_and_else_from_nvidia_smi() -> None:
    assert driver.installed(["libnvidia-ml.so.1", "libnvidia-ml.so.550.144.03", "libnvidia-ml.so.550.9"], "") == "550.144.03"
    assert driver.installed(["libnvidia-ml.so.1"], "NVML library version: 550.144") == "550.144"
    assert driver.installed([], "nothing of the kind") == ""


def test_a_mismatch_is_told_by_status_by_words_or_by_the_files_alone() -> None:
    for code, words in ((18, ""), (1, "Failed to initialize NVML: Driver/library version mismatch"), (127, "")):
        (found,) = driver.judge(code, words, "520.56.06", "525.85.12", "")
        assert found.code == "driver-mismatch"
        assert "520.56.06" in found.words
        assert "525.85.12" in found.words


@pytest.mark.parametrize(
    ("code", "words", "running", "library"),
    [
        (0, "GPU 0: x", "550.144.03", "550.144.03"),
        (127, "", "550.144.03", "550.144"),
        (127, "", "550.144.03", ""),
        (127, "", "", "550.144"),
        (127, "", "", ""),
        (0, "", "550.144.03", "525.1"),
    ],
)
def test_versions_that_agree_or_are_unknown_give_nothing(code: int, words: str, running: str, library: str) -> None:
    assert driver.judge(code, words, running, library, "") == []


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (6, "no-cards"),
        (9, "driver-not-loaded"),
        (12, "driver-half-installed"),
        (15, "card-lost"),
        (16, "card-reset-needed"),
        (124, "driver-hangs"),
    ],
)
def test_other_ends_of_nvidia_smi_have_a_reason_and_a_way_out(code: int, name: str) -> None:
    (found,) = driver.judge(code, "some words\nmore", "550.1", "550.1", "")
    assert (found.code, found.severity) == (name, finding.ERROR)
    assert found.do


def test_an_unknown_end_is_quoted() -> None:
    (found,) = driver.judge(77, "\nodd words\n", "", "", "")
    assert (found.code, found.severity, "77: odd words" in found.words) == ("driver-error", finding.WARNING, True)


def test_the_newest_driver_entry_of_apt_is_named_and_other_packages_are_not() -> None:
    block = "Start-Date: 2026-11-{day}  06:12:34\nCommandline: /usr/bin/unattended-upgrade\nUpgrade: {what}\nEnd-Date: x\n"
    history = "\n".join(
        [
            block.format(day=1, what="nvidia-utils-550:amd64 (550.90, 550.100)"),
            block.format(day=2, what="bash:amd64 (5.1, 5.2), libnvidia-compute-550:amd64 (550.100, 550.144)"),
            block.format(day=3, what="vim:amd64 (8, 9)"),
        ]
    )
    assert driver.upgrade(history) == "2026-11-2 06:12:34 /usr/bin/unattended-upgrade libnvidia-compute-550 (550.100 -> 550.144)"
    assert driver.upgrade("") == ""
    assert driver.upgrade("Start-Date: x") == ""


@pytest.mark.parametrize(
    ("running", "major", "old"),
    [
        ("560.35.03", 13, True),
        ("580.65.06", 13, False),
        ("520.56", 12, True),
        ("525.60", 12, False),
        ("450.1", 11, False),
        ("440.1", 11, True),
    ],
)
def test_the_oldest_driver_of_each_cuda_major(running: str, major: int, old: bool) -> None:
    found = driver.too_old(running, major)
    assert (found is not None) == old
    if found is not None:
        assert running in found.words
        assert "oldest driver of the group" in found.do


def test_what_is_not_known_is_not_called_old() -> None:
    assert driver.too_old("", 13) is None
    assert driver.too_old("520.1", 0) is None
    assert driver.too_old("520.1", 99) is None


def test_cards() -> None:
    listed = (
        f"GPU 0: NVIDIA GeForce RTX 3090 (UUID: {A})\nGPU 1: NVIDIA A100 (UUID: {B})\n  MIG 1g.5gb     Device  0: (UUID: MIG-{B[4:]})\n"
    )
    assert driver.uuids(listed) == [A, B]
    assert driver.cards(["a", "b"], ["a", "b"], [A, B], [A]) == []
    assert driver.cards([], [], None, [A]) == [], "no driver, nothing known: that is another finding"
    assert driver.cards(["a"], [], None, []) == [], "a card without NVIDIA's driver at all is no lost card"
    (undriven,) = driver.cards(["0000:01:00", "0000:02:00"], ["0000:01:00"], None, [])
    assert undriven.where == "card 0000:02:00"
    (silent,) = driver.cards(["a", "b"], ["a", "b"], [A], [])
    assert "only 1 answer" in silent.words
    (wanted,) = driver.cards(["a"], ["a"], [A], [B])
    assert wanted.where == B
