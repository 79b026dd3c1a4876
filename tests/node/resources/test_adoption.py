"""A model that lies on the node already: found by content, used in place, and left alone."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.node import strict, tiny
from wattherd import store
from wattherd.resources import adoption, artifact, base

MODEL = b"GGUF" + bytes(range(256)) * 8
DIGEST = hashlib.sha256(MODEL).hexdigest()
PATH = "/var/lib/wattherd/models/tiny.gguf"
PLACE = "/srv/models/hub/models--org--tiny/blobs/abc"


def wanted() -> artifact.Artifact:
    return artifact.Artifact(PATH, digest=DIGEST, size_bytes=len(MODEL), adopt=("/srv/models",))


def test_it_is_used_where_it_lies_and_nothing_is_sent(bench: strict.Bench) -> None:
    bench.put(PLACE, MODEL, 0o444)
    bench.put("/srv/models/other.gguf", MODEL[:-1] + b"!")
    one = wanted()
    assert one.needs(bench.machine) == {}
    one.fix(bench.machine, base.delta(one.wanted(), None), bench.tell)
    assert bench.machine.readlink(PATH) == PLACE
    assert PLACE in bench.tell.words[-1]
    assert not base.delta(one.wanted(), one.actual(bench.machine))
    assert Path(bench.machine.path(PLACE)).stat().st_mode & 0o777 == 0o444
    assert not bench.machine.names(store.BLOBS)


def test_removal_takes_the_link_alone(bench: strict.Bench) -> None:
    bench.put(PLACE, MODEL)
    one = wanted()
    one.fix(bench.machine, base.delta(one.wanted(), None), bench.tell)
    assert one.kept(bench.machine) == ""
    assert one.ours(bench.machine)
    one.remove(bench.machine, bench.tell)
    assert one.gone(bench.machine)
    assert bench.machine.read(PLACE) == MODEL


@pytest.mark.parametrize("loss", ["gone", "changed"])
def test_what_its_owner_takes_away_is_sent_next_time(bench: strict.Bench, loss: str) -> None:
    bench.put(PLACE, MODEL)
    one = wanted()
    one.fix(bench.machine, base.delta(one.wanted(), None), bench.tell)
    if loss == "gone":
        bench.machine.unlink(PLACE)
    else:
        bench.put(PLACE, MODEL[:-1] + b"!")
    difference = base.delta(one.wanted(), one.actual(bench.machine))
    assert difference
    assert one.needs(bench.machine) == {DIGEST: len(MODEL)}
    tiny.put(bench.machine, MODEL)
    one.fix(bench.machine, difference, bench.tell)
    assert bench.machine.readlink(PATH) == store.blob(DIGEST)


def test_the_store_s_own_copy_comes_first(bench: strict.Bench) -> None:
    bench.put(PLACE, MODEL)
    tiny.put(bench.machine, MODEL)
    one = wanted()
    one.fix(bench.machine, base.delta(one.wanted(), None), bench.tell)
    assert bench.machine.readlink(PATH) == store.blob(DIGEST)


def test_what_a_server_cannot_read_is_not_adopted(bench: strict.Bench) -> None:
    bench.put(PLACE, MODEL, 0o600)
    assert wanted().needs(bench.machine) == {DIGEST: len(MODEL)}
    bench.put("/home/ops/m.gguf", MODEL)
    assert adoption.find(bench.machine, ("/home/ops",), DIGEST, len(MODEL)) == ""


def test_only_files_of_the_right_size_are_read(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    digest = bench.machine.digest

    def noted(path: str) -> str:
        read.append(path)
        return digest(path)

    monkeypatch.setattr(bench.machine, "digest", noted)
    for number in range(20):
        bench.put(f"/srv/models/{number}.gguf", MODEL + bytes(number + 1))
    bench.put("/srv/models/deep/er/tiny.gguf", MODEL)
    assert adoption.find(bench.machine, ("/nowhere", "/srv/models"), DIGEST, len(MODEL)) == "/srv/models/deep/er/tiny.gguf"
    assert read == ["/srv/models/deep/er/tiny.gguf"]


def test_links_in_a_circle_end(bench: strict.Bench) -> None:
    bench.folder("/srv/models/a")
    bench.link("/srv/models/a/again", "..")
    bench.link("/srv/models/dangling", "nowhere")
    assert adoption.find(bench.machine, ("/srv/models",), DIGEST, len(MODEL)) == ""
