"""What a node says is shown and steers no terminal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from wattherd.console import screen

_STEERS = "a\x1b]0;title\x07b\x1b[2J\rc"


@pytest.mark.parametrize(
    "show",
    [
        lambda out: out.table(("path", "size"), [(_STEERS, "1")]),
        lambda out: out.event("titan", {"event": "note", "words": _STEERS}),
        lambda out: out.event("titan", {"event": "progress", "id": "file:/x", "words": _STEERS}),
        lambda out: out.event(
            "titan", {"event": "changed", "id": "x", "action": "fix", "delta": {"k": ["", _STEERS]}, "diff": f"+{_STEERS}"}
        ),
        lambda out: out.event("titan", {"event": "skipped", "id": _STEERS, "reason": "r"}),
    ],
)
def test_words_of_a_node_do_not_steer_a_terminal(capsys: pytest.CaptureFixture[str], show: Callable[[screen.Screen], None]) -> None:
    show(screen.Screen())
    shown = capsys.readouterr().out
    assert "title" in shown
    assert not {"\x1b", "\x07", "\r"} & set(shown)


def test_a_diff_keeps_its_indents(capsys: pytest.CaptureFixture[str]) -> None:
    screen.Screen().event("titan", {"event": "changed", "id": "x", "action": "fix", "diff": "+\tkey = value\n"})
    assert "+   key = value" in capsys.readouterr().out


def test_a_first_clock_range_is_shown_with_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody can judge a check that says `create` of a lock; of a file the digest would say nothing."""
    out = screen.Screen()
    first = {"action": "create", "delta": {"clocks_mhz": [None, "0 to 1400 MHz"]}}
    out.event("titan", {"event": "would_change", "id": "power:GPU-1/clocks_mhz", **first})
    out.event(
        "titan", {"event": "changed", "id": "file:/etc/x", "action": "create", "delta": {"sha256": [None, "00"], "mode": [None, "0644"]}}
    )
    out.event("titan", {"event": "changed", "id": "power:GPU-1/limit_w", "action": "fix", "delta": {"limit_w": ["350 W", "280 W"]}})
    shown = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1)[1].removeprefix("would change").removeprefix("changed").strip() for line in shown] == [
        "power:GPU-1/clocks_mhz  clocks_mhz: 0 to 1400 MHz",
        "file:/etc/x  create",
        "power:GPU-1/limit_w  limit_w: 350 W -> 280 W",
    ]


def test_one_reason_for_many_failures_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A driver that hangs fails eight cards with three settings each: one block of words, and a line for each of the others."""
    out = screen.Screen()
    hung = {"code": "driver-silent", "message": "the driver gives no answer", "hint": "reboot"}
    for host, name, problem in (
        ("titan", "power:a/limit_w", hung),
        ("atlas", "power:b/limit_w", hung),
        ("titan", "power:a/clocks_mhz", hung),
        ("titan", "file:/x", {"code": "disk-full", "message": "no room"}),
    ):
        out.event(host, {"event": "failed", "id": name, "problem": problem})
    shown = capsys.readouterr().out
    assert shown.count("the driver gives no answer") == 2, "once for each host"
    assert "power:a/clocks_mhz  driver-silent, for the same reason" in shown
    assert "no room" in shown
