"""A limited run that brings the part of one role whole: what that role no longer wants goes, and nothing else is touched."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from tests.node import strict
from wattherd import resources
from wattherd.node import session
from wattherd.resources import directory, file
from wattherd.wire import manifest


def run(bench: strict.Bench, verb: str, rows: dict[str, str], **order: object) -> list[dict[str, Any]]:
    """One verb with a manifest of /srv and one file for each row: path -> role."""
    entries = [resources.encode(directory.Directory(path="/srv"), role="base")]
    entries += [resources.encode(file.File(path=path, text=path), role=role) for path, role in rows.items()]
    body = manifest.encode(manifest.Manifest("here", tuple(entries)))
    sink = io.BytesIO()
    one = session.Session(bench.machine, io.BytesIO(json.dumps({"verb": verb, "bytes": len(body), **order}).encode() + b"\n" + body), sink)
    one.emit(one.answer(one.source.readline()))
    return [json.loads(line) for line in sink.getvalue().splitlines()]


@pytest.fixture
def settled(bench: strict.Bench) -> strict.Bench:
    bench.folder("/run")
    said = run(bench, "apply", {"/srv/a": "base", "/srv/b": "power", "/srv/c": "power"})
    assert "problem" not in said[-1], said[-1]
    assert (said[-1]["changed"], said[-1]["generation"]["number"]) == (4, 1)
    return bench


def test_what_the_role_no_longer_wants_goes_and_another_roles_stays(settled: strict.Bench) -> None:
    check = run(settled, "check", {"/srv/c": "power"}, only=["file:/srv/c"], roles=["power"])
    said = run(settled, "apply", {"/srv/c": "power"}, only=["file:/srv/c"], roles=["power"])
    for words, kind in ((check, "would_change"), (said, "changed")):
        assert [(one["id"], one["action"]) for one in words if one["event"] == kind] == [("file:/srv/b", "remove")]
    assert [settled.machine.exists(path) for path in ("/srv/a", "/srv/b", "/srv/c")] == [True, False, True]
    assert "generation" not in said[-1]


def test_without_a_role_a_limited_run_removes_nothing(settled: strict.Bench) -> None:
    said = run(settled, "apply", {"/srv/c": "power"}, only=["file:/srv/c"])
    assert said[-1]["changed"] == 0
    assert settled.machine.exists("/srv/b")
