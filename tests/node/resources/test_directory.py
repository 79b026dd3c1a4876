"""A directory: conflicts, rights while it is made, and a removal that never takes what others put in."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.node import strict
from tests.node.resources.cases import directory as cases
from wattherd import errors
from wattherd.resources import base, directory


def test_a_trailing_slash_is_the_same_directory() -> None:
    assert directory.Directory("/srv/x/") == directory.Directory("/srv/x")
    assert directory.Directory("/srv/x/").id == "directory:/srv/x"


def test_a_link_to_a_directory_is_a_conflict(bench: strict.Bench) -> None:
    bench.folder("/etc/real")
    bench.link(cases.PATH, "real")
    one = cases.wanted(bench)
    state = one.actual(bench.machine)
    assert state == {"kind": "a symbolic link"}
    with pytest.raises(errors.Problem, match="is a symbolic link, not a directory") as caught:
        one.preflight(bench.machine, state)
    assert caught.value.code == "file-conflict"
    with pytest.raises(errors.Problem):
        one.fix(bench.machine, base.delta(one.wanted(), state), bench.tell)


def test_it_is_closed_until_its_owner_is_right(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.folder("/etc")
    one, modes = cases.wanted(bench), []
    chown = bench.machine.chown

    def watch(path: str, owner: tuple[int, int]) -> None:
        modes.append(stat.S_IMODE(Path(bench.machine.path(path)).stat().st_mode))
        chown(path, owner)

    monkeypatch.setattr(bench.machine, "chown", watch)
    one.fix(bench.machine, base.delta(one.wanted(), None), bench.tell)
    assert modes == [0o700]
    assert one.actual(bench.machine) == one.wanted()


def test_a_missing_parent_is_named(bench: strict.Bench) -> None:
    with pytest.raises(errors.Problem) as caught:
        cases.wanted(bench).fix(bench.machine, {}, bench.tell)
    assert caught.value.code == "folder-missing"


def test_special_bits_are_part_of_the_mode(bench: strict.Bench) -> None:
    bench.folder("/srv")
    one = directory.Directory("/srv/shared", mode="2775", owner=bench.me, group=bench.my_group)
    one.fix(bench.machine, base.delta(one.wanted(), None), bench.tell)
    assert one.actual(bench.machine) == {"mode": "2775", "owner": bench.me, "group": bench.my_group}


def test_remove_takes_an_empty_one(bench: strict.Bench) -> None:
    one = cases.settled(bench)
    one.remove(bench.machine, bench.tell)
    one.remove(bench.machine, bench.tell)
    assert one.actual(bench.machine) is None
    assert bench.tell.words == []


def test_remove_leaves_what_is_not_empty_and_says_so(bench: strict.Bench) -> None:
    one = cases.settled(bench)
    bench.put(f"{cases.PATH}/theirs", "data")
    one.remove(bench.machine, bench.tell)
    assert bench.machine.read(f"{cases.PATH}/theirs") == b"data"
    assert bench.tell.words == [f"{cases.PATH} is not empty (1 thing in it): left as it is"]


def test_remove_leaves_what_is_no_directory_any_more(bench: strict.Bench) -> None:
    bench.put(cases.PATH, "a file")
    cases.wanted(bench).remove(bench.machine, bench.tell)
    assert Path(bench.machine.path(cases.PATH)).is_file()
    assert bench.tell.words == [f"{cases.PATH} is a file by now: left as it is"]
