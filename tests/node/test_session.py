"""The node's side of a session, under a root of its own: verbs, events, generations, removal, interrupted runs."""

from __future__ import annotations

import grp
import io
import json
import os
import pathlib
import pwd
from collections.abc import Mapping
from typing import Any

import pytest

from wattherd import machine as machines
from wattherd import resources, store
from wattherd.node import generations, session
from wattherd.resources import artifact, directory, file, symlink
from wattherd.resources.base import Resource
from wattherd.wire import event, manifest


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    for folder in ("run", "etc", "var/lib", "var/cache/wattherd", "srv"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


#: Tests may run as any user: what they make is theirs.
OWNER = pwd.getpwuid(os.geteuid()).pw_name
GROUP = grp.getgrgid(os.getegid()).gr_name


def text(path: str, words: str, *, sensitive: bool = False) -> file.File:
    return file.File(path=path, text=words, owner=OWNER, group=GROUP, sensitive=sensitive)


def folder(path: str) -> directory.Directory:
    return directory.Directory(path=path, owner=OWNER, group=GROUP)


def wanted(*made: Resource) -> manifest.Manifest:
    return manifest.Manifest("here", tuple(resources.encode(one, role="test", tags=("test",)) for one in made))


def say(root: pathlib.Path, *orders: Mapping[str, Any] | tuple[Mapping[str, Any], manifest.Manifest]) -> list[dict[str, Any]]:
    """Feed orders to a session and return what it said, without hello."""
    source = b""
    for order in orders:
        head, body = (order[0], manifest.encode(order[1])) if isinstance(order, tuple) else (order, b"")
        source += json.dumps({**head, **({"bytes": len(body)} if body else {})}).encode() + b"\n" + body
    sink = io.BytesIO()
    assert session.Session(machines.Machine(str(root)), io.BytesIO(source), sink).serve() == 0
    lines = [json.loads(line) for line in sink.getvalue().splitlines()]
    assert lines[0]["event"] == "hello"
    return lines[1:]


def run(root: pathlib.Path, verb: str, made: manifest.Manifest, **more: object) -> list[dict[str, Any]]:
    return say(root, ({"verb": verb, **more}, made))


def snapshot(root: pathlib.Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in root.rglob("*") if "var/cache/wattherd" not in str(path)
    }


def three() -> manifest.Manifest:
    return wanted(
        folder("/srv/app"),
        text("/srv/app/conf", "one\n"),
        symlink.Symlink(path="/srv/now", target="/srv/app"),
    )


def test_check_says_what_apply_then_does_and_writes_nothing(root: pathlib.Path) -> None:
    before = snapshot(root)
    check = run(root, "check", three())
    assert snapshot(root) == before
    apply = run(root, "apply", three())
    assert [one["id"] for one in check if one["event"] == "would_change"] == [one["id"] for one in apply if one["event"] == "changed"]
    assert apply[-1]["changed"] == 3
    assert (root / "srv/app/conf").read_text() == "one\n"


def test_the_second_apply_changes_nothing_and_makes_no_generation(root: pathlib.Path) -> None:
    first = run(root, "apply", three())[-1]
    before = snapshot(root)
    again = run(root, "apply", three())[-1]
    assert (again["ok"], again["changed"], again["failed"]) == (3, 0, 0)
    assert again["generation"] == first["generation"]
    changed = {path for path, state in snapshot(root).items() if before.get(path) != state}
    assert {path for path in changed if not path.endswith(("/run", "wattherd.lock"))} == set()


def test_every_verb_ends_with_end_whatever_comes(root: pathlib.Path) -> None:
    said = say(root, {"verb": "no-such"}, {"no": "verb"}, {"verb": "apply"}, {"verb": "rollback"}, {"verb": "history"})
    assert [one["event"] for one in said] == ["end"] * 5
    assert said[0]["problem"]["code"] == "protocol-mismatch"
    assert said[3]["problem"]["code"] == "generation-missing"
    assert "problem" not in said[4]


@pytest.mark.parametrize(
    ("uid", "told"), [(1, "this takes root, and the session there runs as"), (0, "/run/wattherd.lock: Permission denied")]
)
def test_what_takes_root_is_said_and_is_no_defect(root: pathlib.Path, monkeypatch: pytest.MonkeyPatch, uid: int, told: str) -> None:
    """`ansible_become: false`, or a container whose root may not everything."""

    def locked(*_words: object) -> None:
        raise PermissionError(13, "Permission denied", "/run/wattherd.lock")

    monkeypatch.setattr(store, "locked", locked)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    for verb in ("power-confirm", "power-restore", "reboot"):
        problem = say(root, {"verb": verb})[-1]["problem"]
        assert problem["code"] == "permission"
        assert told in problem["message"]
        assert ("ansible_become" in problem["hint"]) == bool(uid)


def test_a_manifest_that_names_an_unknown_type_touches_nothing(root: pathlib.Path) -> None:
    strange = manifest.Manifest("here", (manifest.Entry("cron:x", "cron", "test", {}), *three().resources))
    before = snapshot(root)
    said = run(root, "apply", strange)
    assert said[-1]["problem"]["code"] == "manifest-invalid"
    assert {path for path in snapshot(root) if path not in before} <= {str(root / "run/wattherd.lock"), *_homes(root)}


def _homes(root: pathlib.Path) -> set[str]:
    return {str(root / "var/lib" / name) for name in ("wattherd", "wattherd/store", "wattherd/builds")}


def test_removal_takes_only_what_wattherd_created(root: pathlib.Path) -> None:
    (root / "srv/app").mkdir()
    run(root, "apply", three())
    check = run(root, "check", wanted())
    said = run(root, "apply", wanted())
    assert [one["id"] for one in said if one["event"] == "changed"] == ["symlink:/srv/now", "file:/srv/app/conf"]
    assert [one["id"] for one in check if one["event"] == "would_change"] == ["symlink:/srv/now", "file:/srv/app/conf"]
    assert [one["id"] for one in said if one["event"] == "skipped"] == ["directory:/srv/app"]
    assert (root / "srv/app").is_dir(), "it was there before Wattherd"
    assert not (root / "srv/now").is_symlink()


def test_a_failure_stops_there_and_is_that_resources_own(root: pathlib.Path) -> None:
    (root / "srv/app").write_text("a file where a folder should be")
    said = run(root, "apply", three())
    failed = [one for one in said if one["event"] == "failed"]
    assert [one["id"] for one in failed] == ["directory:/srv/app"] or failed[0]["problem"]["code"] == "file-conflict"
    assert said[-1]["changed"] == 0, "found before anything was touched"
    assert "generation" not in said[-1]
    assert said[-1]["skipped"] == 3 - len(failed) > 0
    assert any(one["event"] == "note" and "not looked at" in one["words"] for one in said)


def test_records_that_were_lost_are_made_anew_and_nothing_foreign_is_taken(root: pathlib.Path) -> None:
    run(root, "apply", three())
    for damage in ("", "{"):
        (root / "var/lib/wattherd/owned.json").write_text(damage)
        assert run(root, "check", three())[-1]["ok"] == 3
    said = run(root, "apply", wanted())
    assert said[-1]["changed"] == 0
    assert (root / "srv/app/conf").exists(), "who made it is not known any more, so it stays"


def test_a_run_that_never_ended_is_told_and_converges(root: pathlib.Path) -> None:
    machine = machines.Machine(str(root))
    machine.make_dirs("/var/lib/wattherd")
    generations.begin(machine, "apply", "file:/srv/app/conf")
    said = run(root, "apply", three())
    assert said[0]["event"] == "note"
    assert "file:/srv/app/conf" in said[0]["words"]
    assert said[-1]["changed"] == 3
    assert generations.interrupted(machine) is None


def test_only_limits_a_run_which_then_removes_nothing_and_makes_no_generation(root: pathlib.Path) -> None:
    run(root, "apply", three())
    less = wanted(folder("/srv/other"))
    said = run(root, "apply", less, only=["directory:/srv/other"])
    assert said[-1]["changed"] == 1
    assert "generation" not in said[-1]
    assert (root / "srv/app/conf").exists()


def test_rollback_applies_what_the_node_kept(root: pathlib.Path) -> None:
    for words in ("one", "two"):
        run(root, "apply", wanted(text("/srv/word", words)))
    said = say(root, {"verb": "rollback"})
    assert said[-1]["from_generation"] == 1
    assert (root / "srv/word").read_text() == "one"
    assert [row["number"] for row in say(root, {"verb": "history"})[-1]["generations"]] == [1, 2, 3]


def test_a_rollback_after_a_run_that_failed_leads_to_what_was_last_whole(root: pathlib.Path) -> None:
    for words in ("one", "two"):
        run(root, "apply", wanted(text("/srv/word", words)))
    never = artifact.Artifact(path="/srv/model", digest="ab" * 32)
    assert run(root, "apply", wanted(text("/srv/word", "three"), never))[-1]["failed"] == 1
    assert (root / "srv/word").read_text() == "three"
    for order in ({"verb": "rollback", "check": True}, {"verb": "rollback"}):
        said = say(root, order)
        assert said[-1]["from_generation"] == 2
        assert "did not go through whole" in said[0]["words"]
    assert (root / "srv/word").read_text() == "two"
    run(root, "apply", wanted(text("/srv/word", "three")))
    assert say(root, {"verb": "rollback"})[-1]["from_generation"] == 2, "whole again: the one before it"


def test_a_rollback_undoes_what_was_applied_in_part(root: pathlib.Path) -> None:
    for words in ("one", "two"):
        run(root, "apply", wanted(text("/srv/word", words)))
    run(root, "apply", wanted(text("/srv/word", "three")), only=["file:/srv/word"])
    assert say(root, {"verb": "rollback"})[-1]["from_generation"] == 2
    assert (root / "srv/word").read_text() == "two"


def test_a_run_that_failed_before_it_touched_anything_leaves_the_current_generation(root: pathlib.Path) -> None:
    for words in ("one", "two"):
        run(root, "apply", wanted(text("/srv/word", words)))
    (root / "srv/app").write_text("a file where a folder should be")
    assert (run(root, "apply", three())[-1]["changed"], (root / "srv/now").exists()) == (0, False)
    assert say(root, {"verb": "rollback"})[-1]["from_generation"] == 1


def test_a_rollback_with_nothing_before_it_says_what_there_is(root: pathlib.Path) -> None:
    assert "it has: none" in say(root, {"verb": "rollback"})[-1]["problem"]["message"]
    run(root, "apply", three())
    assert "only 1, the current one" in say(root, {"verb": "rollback"})[-1]["problem"]["message"]
    assert "it has: 1" in say(root, {"verb": "rollback", "to": 9})[-1]["problem"]["message"]


def test_generations_are_kept_to_a_number(root: pathlib.Path) -> None:
    machine = machines.Machine(str(root))
    machine.make_dirs("/var/lib/wattherd")
    for number in range(generations.KEEP + 4):
        generations.keep(machine, manifest.encode(wanted(file.File(path="/srv/word", text=str(number)))))
    assert generations.numbers(machine) == list(range(5, generations.KEEP + 5))


def test_a_diff_is_shown_and_a_secret_is_not(root: pathlib.Path) -> None:
    (root / "srv/word").write_text("old\n")
    (root / "srv/key").write_text("old-secret\n")
    made = wanted(text("/srv/word", "new\n"), text("/srv/key", "new-secret\n", sensitive=True))
    said = run(root, "check", made, diff=True)
    assert "-old\n+new\n" in said[0]["diff"]
    assert "secret" not in json.dumps(said[1])


def test_the_heartbeat_is_a_line_of_its_own() -> None:
    assert json.loads(json.dumps(event.alive())) == {"event": "alive"}
