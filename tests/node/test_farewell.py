"""What `remove` takes besides what the manifest made: releases, toolkits and blobs of ours, whole or half made; and what it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.node import strict, tiny
from wattherd import resources, store
from wattherd.node import converge, farewell
from wattherd.resources import artifact, directory, toolkit, tree
from wattherd.wire import manifest

KIT = f"{toolkit.HOME}/cuda-13.5-0123abcd"


def leave(bench: strict.Bench, *, check: bool = False) -> list[Mapping[str, Any]]:
    said: list[Mapping[str, Any]] = []
    farewell.leave(bench.machine, "here", said.append, check=check)
    return said


def arrange(bench: strict.Bench) -> None:
    """A builder that the power left in the middle of unpacking its second toolkit and a release."""
    tiny.put(bench.machine, b"a blob")
    bench.put(f"{KIT}/bin/nvcc", "nvcc")
    bench.put(f"{KIT}/{tree.MARKER}", "{}")
    bench.put(f"{toolkit.HOME}/.cuda-13.0-4567.new/bin/nvcc", "half")
    bench.put(f"{farewell.RELEASES}/r-1/{tree.MARKER}", "{}")
    bench.put(f"{farewell.RELEASES}/.r-2.new/bin/llama-server", "half")
    bench.put(f"{farewell.RELEASES}/.r-1.old/bin/llama-server", "half")


def test_toolkits_and_releases_go_with_what_was_half_made_of_them(bench: strict.Bench) -> None:
    arrange(bench)
    said = leave(bench)
    assert not bench.machine.exists("/opt/wattherd")
    assert not bench.machine.exists(store.HOME)
    assert [one["event"] for one in said if one["event"] == "skipped"] == []


def test_records_that_were_cut_short_while_they_were_written_go_too(bench: strict.Bench) -> None:
    """kill -9 in the middle of machine.write: what it was writing lies beside the record."""
    arrange(bench)
    for name in (
        "owned.json",
        "journal.json",
        "unsettled",
        "generations/7.json",
        "builds/abc.json",
        "power/before.json",
        "power/jetson-clocks.store",
    ):
        bench.put(f"{store.HOME}/{name}.wattherd-4711", "{")
    bench.put(f"{store.HOME}/power/before.json.damaged", "{")
    leave(bench)
    assert not bench.machine.exists(store.HOME)


def test_a_check_says_the_same_and_takes_nothing(bench: strict.Bench) -> None:
    arrange(bench)
    before = bench.tree()
    said = leave(bench, check=True)
    assert bench.tree() == before
    assert [(one["event"], one.get("id")) for one in said] == [("would_change", f"directory:{store.HOME}")]


@pytest.mark.parametrize("folder", [toolkit.HOME, farewell.RELEASES])
def test_what_bears_no_mark_of_ours_stays_and_is_said(bench: strict.Bench, folder: str) -> None:
    arrange(bench)
    bench.put(f"{folder}/by-hand/bin/nvcc", "mine")
    said = leave(bench)
    assert bench.machine.names(folder) == ["by-hand"]
    assert [one["id"] for one in said if one["event"] == "skipped"] == [f"directory:{folder}", "directory:/opt/wattherd"]


@pytest.mark.parametrize("check", [True, False])
def test_nothing_is_said_to_stay_for_a_rollback_that_then_goes(bench: strict.Bench, *, check: bool) -> None:
    """A release in use, its build and its folder would stay in a deploy; when all goes, only what is foreign stays, and is said."""
    release = tiny.pack_tar({"bin/llama-server": b"x"})
    folders = [directory.Directory(path, owner=bench.me, group=bench.my_group) for path in ("/opt/wattherd", farewell.RELEASES, "/srv/app")]
    made = [*folders, artifact.Artifact(path=f"{farewell.RELEASES}/r-1", kind="tree", digest=tiny.put(bench.machine, release))]
    wanted = manifest.Manifest("here", tuple(resources.encode(one, role="t", tags=("t",)) for one in made))
    bench.folder("/srv")
    bench.folder("/opt")
    converge.Run(bench.machine, converge.Job(wanted, manifest.encode(wanted)), lambda _: None).converge()
    bench.put("/srv/app/by-hand", "mine")
    said = leave(bench, check=check)
    assert [one["id"] for one in said if one["event"] == "skipped"] == ["directory:/srv/app"]
    if not check:
        assert (bench.machine.exists("/opt/wattherd"), bench.machine.exists("/srv/app/by-hand")) == (False, True)
