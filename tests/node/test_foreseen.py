"""What a check says beforehand: releases that are shipped first, room for what comes, and restarts that follow from what is put anew."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.node import strict, tiny
from tests.node.resources import systemd_fake
from tests.node.resources.cases import unit as cases
from wattherd import resources, store
from wattherd.node import converge, session
from wattherd.resources import artifact, base
from wattherd.wire import manifest

MODEL = "/srv/m.gguf"


def manifest_of(*made: base.Resource) -> manifest.Manifest:
    return manifest.Manifest("here", tuple(resources.encode(one, role="test", tags=("test",)) for one in made))


def checked(bench: strict.Bench, wanted: manifest.Manifest, **order: object) -> list[dict[str, Any]]:
    """The `check` verb, as a controller gives it."""
    body = manifest.encode(wanted)
    source = json.dumps({"verb": "check", "bytes": len(body), **order}).encode() + b"\n" + body
    sink = io.BytesIO()
    one = session.Session(bench.machine, io.BytesIO(source), sink)
    line = one.source.readline()
    one.emit(one.answer(line))
    return [json.loads(each) for each in sink.getvalue().splitlines()]


def ids(said: list[dict[str, Any]], word: str) -> list[str]:
    return [one["id"] for one in said if one["event"] == word]


def test_a_release_that_is_shipped_first_is_no_build_here(bench: strict.Bench) -> None:
    """Nor is anything asked for that compiling would want: no program is planned here, so a look at one would end the test."""
    build = tiny.wanted(bench.machine)
    wanted = manifest_of(build, artifact.Artifact(path="/opt/r", kind="tree", build=tiny.FINGERPRINT))
    bench.machine.unlink(store.blob(build.source))
    for digest in ("", "ab" * 32):
        said = checked(bench, wanted, coming=[{"fingerprint": tiny.FINGERPRINT, "digest": digest, "size_bytes": 5}])
        assert (ids(said, "ok"), ids(said, "would_change")) == ([build.id], ["artifact:/opt/r"])


@pytest.mark.parametrize(("size_bytes", "code"), [(1000, ""), (10**15, "disk-full")])
def test_room_for_what_comes_is_looked_for(bench: strict.Bench, size_bytes: int, code: str) -> None:
    model = manifest_of(artifact.Artifact(path=MODEL, digest="ab" * 32, size_bytes=size_bytes))
    release = manifest_of(tiny.wanted(bench.machine))
    coming = [{"fingerprint": tiny.FINGERPRINT, "digest": "cd" * 32, "size_bytes": size_bytes}]
    for said in (checked(bench, model), checked(bench, release, coming=coming)):
        assert said[-1].get("problem", {}).get("code", "") == code


def maps(bench: strict.Bench, pid: int, path: str) -> None:
    bench.put(f"/proc/{pid}/maps", f"7f0000000000-7f0000001000 r--s 00000000 fe:00 17 {path}\n")


@pytest.fixture
def served(bench: strict.Bench) -> tuple[str, int, manifest.Manifest]:
    """A model in the store, and a server that was started from it; the digest, the server's process id, and what is wanted."""
    digest = tiny.put(bench.machine, b"GGUF, whole")
    model = artifact.Artifact(path=MODEL, digest=digest, size_bytes=11)
    bench.folder("/srv")
    bench.link(MODEL, store.blob(digest))
    running = systemd_fake.Systemd(bench).running(cases.NAME, cases.body(cases.wanted()))
    maps(bench, running.pid, store.blob(digest))
    return digest, running.pid, manifest_of(model, cases.wanted())


def test_a_server_of_a_damaged_model_is_restarted_and_a_check_says_so(
    bench: strict.Bench, served: tuple[str, int, manifest.Manifest]
) -> None:
    digest, _, wanted = served
    assert ids(checked(bench, wanted), "would_change") == []
    Path(bench.machine.path(store.blob(digest))).write_bytes(b"GGUF, wh_le")
    assert ids(checked(bench, wanted), "would_change") == [f"artifact:{MODEL}", f"unit:{cases.NAME}"]


def test_a_server_of_another_file_is_not(bench: strict.Bench, served: tuple[str, int, manifest.Manifest]) -> None:
    digest, pid, wanted = served
    maps(bench, pid, store.blob("ef" * 32))
    Path(bench.machine.path(store.blob(digest))).write_bytes(b"GGUF, wh_le")
    assert ids(checked(bench, wanted), "would_change") == [f"artifact:{MODEL}"]


def test_a_link_that_is_put_back_restarts_nobody(bench: strict.Bench, served: tuple[str, int, manifest.Manifest]) -> None:
    _, _, wanted = served
    bench.machine.unlink(MODEL)
    assert ids(checked(bench, wanted), "would_change") == [f"artifact:{MODEL}"]


def test_an_apply_foresees_nothing(bench: strict.Bench, served: tuple[str, int, manifest.Manifest]) -> None:
    """It looks again after each step instead."""
    digest, _, wanted = served
    Path(bench.machine.path(store.blob(digest))).write_bytes(b"GGUF, wh_le")
    said: list[Mapping[str, Any]] = []
    converge.Run(bench.machine, converge.Job(wanted, manifest.encode(wanted)), said.append).converge()
    assert [one["problem"]["code"] for one in said if one["event"] == "failed"] == ["artifact-corrupt"]
