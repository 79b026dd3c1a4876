"""Many hosts: order, isolation, counting, exit codes."""

from __future__ import annotations

import pathlib
import re
import threading

import pytest

from wattherd import errors, fleet


def test_one_broken_host_never_stops_the_others() -> None:
    def work(name: str) -> str:
        if name == "b":
            raise errors.Problem("unreachable", "no route")
        if name == "c":
            raise ZeroDivisionError
        return name.upper()

    done = fleet.each(["a", "b", "c", "d"], work, forks=2)
    assert list(done) == ["a", "b", "c", "d"]
    assert (done["a"].value, done["d"].value) == ("A", "D")
    assert done["b"].problem is not None
    assert done["b"].problem.code == "unreachable"
    assert done["c"].problem is not None
    assert done["c"].problem.code == "internal"
    assert "ZeroDivisionError" in done["c"].problem.message


def test_a_slow_host_does_not_hide_the_others() -> None:
    fast_is_through = threading.Event()

    def work(name: str) -> str:
        if name == "slow":
            assert fast_is_through.wait(10), "the slow one waits for the fast one: with one fork this would hang"
        return name

    seen: list[str] = []

    def on_done(name: str, _: fleet.Done[str]) -> None:
        seen.append(name)
        fast_is_through.set()

    fleet.each(["slow", "fast"], work, forks=2, on_done=on_done)
    assert seen == ["fast", "slow"]


def test_whoever_is_interrupted_does_not_wait_for_the_slow() -> None:
    let_go = threading.Event()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fleet.each(["slow", "fast"], lambda name: name == "fast" or let_go.wait(60), forks=2, on_done=interrupt)
    let_go.set()


@pytest.mark.parametrize(
    ("serial", "sizes"),
    [("100%", [10]), ("1,25%,100%", [1, 2, 7]), ("3", [3, 3, 3, 1]), ("1", [1] * 10), ("4,1", [4, 1, 1, 1, 1, 1, 1]), ("5%", [1] * 10)],
)
def test_batches(serial: str, sizes: list[int]) -> None:
    names = [f"n{index}" for index in range(10)]
    cut = fleet.batches(names, serial)
    assert [len(batch) for batch in cut] == sizes
    assert [name for batch in cut for name in batch] == names


@pytest.mark.parametrize("serial", ["", "x", "0", "-1", "150%", "1;2"])
def test_a_wrong_serial_is_refused(serial: str) -> None:
    with pytest.raises(errors.Problem) as caught:
        fleet.batches(["a"], serial)
    assert caught.value.code == "bad-flag"


@pytest.mark.parametrize(
    ("statuses", "code"),
    [(["ok"], 0), (["ok", "changed"], 0), (["failed", "ok"], 2), (["unreachable", "ok"], 4), (["failed", "unreachable"], 6), ([], 0)],
)
def test_exit_codes_are_ansibles(statuses: list[str], code: int) -> None:
    assert fleet.exit_code(statuses) == code


def test_a_resource_met_twice_counts_once_with_its_stronger_word() -> None:
    count = fleet.Count()
    for message in (
        {"event": "changed", "id": "build:x"},
        {"event": "ok", "id": "build:x"},
        {"event": "ok", "id": "file:/a"},
        {"event": "would_change", "id": "file:/b"},
        {"event": "note", "words": "found a broken run"},
    ):
        count.see(message)
    outcome = count.outcome()
    assert (outcome.status, outcome.ok, outcome.changed, outcome.changes) == ("changed", 1, 2, ("build:x", "file:/b"))
    assert outcome.notes == ("found a broken run",)


def test_a_failed_resource_is_the_hosts_problem_and_a_lost_link_is_unreachable() -> None:
    count = fleet.Count()
    count.see({"event": "failed", "id": "unit:x", "problem": {"code": "unit-failed", "message": "it died"}})
    outcome = count.outcome()
    assert (outcome.status, outcome.failed) == ("failed", 1)
    assert outcome.problem is not None
    assert outcome.problem.context["resource"] == "unit:x"
    lost = fleet.Count().outcome(errors.Problem("stream-cut", "gone"))
    assert (lost.status, lost.failed) == ("unreachable", 0)


def test_the_page_and_the_exit_code_agree_on_what_is_the_way_to_a_host() -> None:
    """Whatever is wrong on the way ends with 4, so that a script can try those hosts again."""
    page = (pathlib.Path(__file__).parents[2] / "docs" / "problems.md").read_text()
    part = page.partition("## The way to a host (exit code 4)")[2].partition("\n## ")[0]
    listed = {code for row in re.findall(r"^\| (`[^|]*) \|", part, re.MULTILINE) for code in re.findall(r"`([a-z-]+)`", row)}
    assert listed == fleet.UNREACHABLE
