"""Xid lines of every form, their table, and cards that fall off the bus: the kind, with other buses, noise and orders."""

from __future__ import annotations

import pytest

from wattherd.node.findings import xid
from wattherd.wire import finding

FORMS = [
    ("NVRM: Xid (PCI:0000:06:00): {}, GPU has trouble.", "0000:06:00"),
    ("NVRM: Xid (PCI:0000:07:00): {}, pid='<unknown>', name=<unknown>, Ch 00000008", "0000:07:00"),
    ("NVRM: Xid (PCI:0000:10:1c): {}, pid=1896, Row Remapper: New row marked", "0000:10:1c"),
    ("NVRM: Xid (0000:01:00): {}, Ch 0000000b, engmask 00000120", "0000:01:00"),
    ("NVRM: Xid (PCI:0008:A1:00.0): {}", "0008:a1:00"),
    ("NVRM: Xid (PCI:00000000:C1:00): {}, name=llama-server, x", "0000:c1:00"),
]
PREFIXES = ["", "[ 1234.567890] ", "Dec 01 04:00:00 node-1 kernel: ", "<3>[12.3] "]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(("form", "bus"), FORMS)
@pytest.mark.parametrize("number", [13, 79, 145, 9999])
def test_every_form_and_number(form: str, bus: str, number: int, prefix: str) -> None:
    (event,) = xid.read([prefix + form.format(number)])
    assert (event.bus, event.number) == (bus, number)
    (found,) = xid.judge([event])
    assert found.where == f"card {bus}"
    assert str(number) in found.words
    assert found.do


@pytest.mark.parametrize(
    ("number", "severity", "words"),
    [
        (13, finding.WARNING, "restart the server"),
        (31, finding.WARNING, "restart the server"),
        (43, finding.NOTE, "nothing"),
        (45, finding.NOTE, "other Xid"),
        (48, finding.ERROR, "63, 64, 94 and 95"),
        (61, finding.WARNING, "maker"),
        (62, finding.ERROR, "--gpu-reset -i 0000:06:00"),
        (63, finding.NOTE, "next reset"),
        (64, finding.ERROR, "maker"),
        (74, finding.ERROR, "nvlink"),
        (79, finding.ERROR, "restart"),
        (94, finding.WARNING, "restart the server"),
        (95, finding.ERROR, "--gpu-reset"),
        (109, finding.ERROR, "driver's version"),
        (119, finding.ERROR, "driver's version"),
        (120, finding.ERROR, "driver's version"),
        (137, finding.WARNING, "catalogue"),
    ],
)
def test_the_table(number: int, severity: str, words: str) -> None:
    (found,) = xid.judge(xid.read([f"NVRM: Xid (PCI:0000:06:00): {number}, something"]))
    assert found.severity == severity
    assert words in found.do


def test_a_contained_double_bit_error_on_the_same_card_is_no_stop() -> None:
    both = xid.judge(xid.read(["NVRM: Xid (PCI:0000:06:00): 48, DBE", "NVRM: Xid (PCI:0000:06:00): 94, Contained"]))
    assert {one.severity for one in both} == {finding.WARNING}
    apart = xid.judge(xid.read(["NVRM: Xid (PCI:0000:06:00): 48, DBE", "NVRM: Xid (PCI:0000:07:00): 94, Contained"]))
    assert [one.severity for one in apart] == [finding.ERROR, finding.WARNING], "the other card's containment helps this one nothing"


def test_the_recovery_action_is_read_from_the_text() -> None:
    (reboot,) = xid.judge(
        xid.read(["NVRM: Xid (PCI:0000:06:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"])
    )
    assert (reboot.severity, "Node Reboot Required" in reboot.do) == (finding.WARNING, True)
    (none,) = xid.judge(
        xid.read(["NVRM: Xid (PCI:0000:06:00): 154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)"])
    )
    assert none.severity == finding.NOTE


def test_repeats_are_counted_and_the_newest_line_shown() -> None:
    lines = [f"[{second}.0] NVRM: Xid (PCI:0000:06:00): 31, pid=1, name=a, Ch {second}" for second in range(5)]
    (found,) = xid.judge(xid.read(lines))
    assert "5 times" in found.words
    assert found.evidence.startswith("[4.0]")


OFF = [
    "[10.0] NVRM: The NVIDIA GPU {bus}",
    "               NVRM: (PCI ID: 10de:26b5) installed in this system has",
    "               NVRM: fallen off the bus and is not responding to commands.",
]


@pytest.mark.parametrize("bus", ["0000:b3:00.0", "0000:01:00.0", "0001:c1:00.0"])
def test_off_the_bus_over_three_lines_with_noise_between(bus: str) -> None:
    lines = [line.format(bus=bus) for line in OFF]
    noisy = [
        "usb 1-1: new device",
        lines[0],
        "audit: x",
        lines[1],
        "eth0: link up",
        lines[2],
        "NVRM: The NVIDIA probe routine failed for 1 device(s).",
    ]
    for text in (lines, noisy, ["NVRM: loading NVIDIA UNIX x86_64 Kernel Module", *lines]):
        (found,) = xid.judge(xid.read(text))
        assert (found.code, found.severity) == ("card-lost", finding.ERROR)
        assert found.where == f"card {bus.partition('.')[0]}"
        assert "without an Xid" in found.words


def test_two_cards_lost_are_two_findings_and_one_line_is_enough() -> None:
    lines = [line.format(bus=bus) for bus in ("0000:b3:00.0", "0000:c1:00.0") for line in OFF]
    assert [one.where for one in xid.judge(xid.read(lines))] == ["card 0000:b3:00", "card 0000:c1:00"]
    (one,) = xid.judge(xid.read(["NVRM: GPU 0000:06:00.0: GPU has fallen off the bus."]))
    assert one.where == "card 0000:06:00"


def test_the_number_and_the_words_for_one_card_are_one_finding() -> None:
    lines = ["NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.", "NVRM: GPU 0000:06:00.0: GPU has fallen off the bus."]
    (found,) = xid.judge(xid.read(lines))
    assert "Xid 79, 2 times" in found.words


@pytest.mark.parametrize(
    "line",
    [
        "kernel: NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.144",
        "llama-server: the user asked about Xid 79",
        "NVRM: Xid (PCI:0000:06:00): , cut",
        "NVRM: Xid (PCI:0000",
        "fallen off the bus",
        "usb 1-1: device has fallen off the bus",
        "",
    ],
)
def test_near_misses_give_nothing(line: str) -> None:
    assert xid.read([line]) == []
