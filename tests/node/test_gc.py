"""What may go from a node and what may not: references, rollbacks, copies under way, and everything that is somebody else's."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
from pathlib import Path

import pytest

from tests.node import strict, tiny
from wattherd import errors, store
from wattherd.node import gc, generations, session
from wattherd.resources import artifact, tree
from wattherd.resources import toolkit as kits
from wattherd.wire import facts, manifest

MODELS = "/var/lib/wattherd/models"


def blob(bench: strict.Bench, body: bytes) -> str:
    """A blob that has been there for long."""
    digest = tiny.put(bench.machine, body)
    age(bench, store.blob(digest))
    return digest


def age(bench: strict.Bench, path: str, hours: float = 2) -> None:
    then_s = bench.machine.now_s() - hours * 3600
    os.utime(bench.machine.path(path), (then_s, then_s))


def generation(bench: strict.Bench, *entries: manifest.Entry) -> None:
    generations.keep(bench.machine, manifest.encode(manifest.Manifest(host="n", resources=entries)))


def entry(name: str, digest: str) -> manifest.Entry:
    path = f"{MODELS}/{name}.gguf"
    return manifest.Entry(id=f"artifact:{path}", type="artifact", role="models", spec={"path": path, "kind": "file", "digest": digest})


def left(bench: strict.Bench) -> dict[str, str]:
    """Path -> kind."""
    return {one.path: one.kind for one in gc.find(bench.machine)}


def test_the_current_and_the_previous_generation_keep_what_they_name(bench: strict.Bench) -> None:
    digests = [blob(bench, b"GGUF" + bytes([number])) for number in range(4)]
    for number, digest in enumerate(digests[:3]):
        generation(bench, entry(f"m{number}", digest))
    found = gc.find(bench.machine)
    assert {one.path for one in found} == {store.blob(digests[0]), store.blob(digests[3])}
    assert {one.path: one.name for one in found} == {store.blob(digests[0]): "m0.gguf", store.blob(digests[3]): ""}
    assert [one.kind for one in found if one.name == "m0.gguf"] == ["model"]
    assert all(one.size_bytes == 5 for one in found)


def test_what_the_node_manages_now_stays_though_no_generation_names_it(bench: strict.Bench) -> None:
    """A run that failed half-way made no generation, and its model is in its place."""
    digest = blob(bench, b"GGUF new")
    owned = generations.Owned.load(bench.machine)
    owned.manage(entry("new", digest), absent=True)
    owned.save()
    assert left(bench) == {}


def test_any_field_of_any_type_keeps_a_digest(bench: strict.Bench) -> None:
    source, wheel = blob(bench, b"source"), blob(bench, b"wheel")
    spec = {"name": "llama.cpp", "fingerprint": tiny.FINGERPRINT, "source": source, "wheels": {wheel: 5}}
    generation(bench, manifest.Entry(id="build:x", type="build", role="llama_cpp", spec=spec))
    release = blob(bench, b"release")
    store.record_build(bench.machine, facts.Built(tiny.FINGERPRINT, release, 7))
    assert left(bench) == {}


def test_a_blob_that_a_name_in_use_leads_to_stays(bench: strict.Bench) -> None:
    digest = blob(bench, b"GGUF old")
    generation(bench, entry("m", "1" * 64))
    bench.link(f"{MODELS}/m.gguf", store.blob(digest))
    assert left(bench) == {}


def test_names_that_nothing_wants_go_before_their_blobs(bench: strict.Bench) -> None:
    digest = blob(bench, b"GGUF old")
    generation(bench)
    bench.link(f"{MODELS}/old.gguf", store.blob(digest))
    bench.link(f"{MODELS}/split/split-00001-of-00002.gguf", store.blob(digest))
    found = gc.find(bench.machine)
    assert [one.path for one in found] == [
        f"{MODELS}/old.gguf",
        f"{MODELS}/split/split-00001-of-00002.gguf",
        store.blob(digest),
    ]
    assert all(gc.remove(bench.machine, one) for one in found)
    assert gc.find(bench.machine) == []
    assert not bench.machine.exists(store.blob(digest))


def test_what_is_somebody_else_s_is_not_even_listed(bench: strict.Bench) -> None:
    store.prepare(bench.machine)
    generation(bench)
    bench.put(f"{MODELS}/mine.gguf", b"GGUF mine")
    bench.link(f"{MODELS}/nas.gguf", "/mnt/nas/big.gguf")
    bench.put(f"{store.BLOBS}/notes.txt", b"mine")
    bench.folder("/opt/wattherd/releases/by-hand")
    bench.link(f"{MODELS}/elsewhere", "/mnt/nas")
    assert left(bench) == {}


def test_copies_under_way_and_what_has_just_arrived_stay(bench: strict.Bench) -> None:
    generation(bench)
    fresh = tiny.put(bench.machine, b"GGUF fresh")
    os.utime(bench.machine.path(store.blob(fresh)), (bench.machine.now_s() - 60,) * 2)
    begun = store.partial(hashlib.sha256(b"begun").hexdigest())
    bench.put(begun, b"be")
    age(bench, begun)
    assert left(bench) == {begun: "partial"}
    (one,) = gc.find(bench.machine)
    with open(bench.machine.path(begun), "rb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert not gc.remove(bench.machine, one)
        assert bench.machine.exists(begun)
    assert gc.remove(bench.machine, one)
    assert not bench.machine.exists(begun)


def release(bench: strict.Bench, name: str) -> str:
    body = tiny.pack_tar({"bin/llama-server": b"#!/bin/sh\n" + name.encode()})
    path = f"{store.RELEASES}/{name}"
    digest = tiny.put(bench.machine, body)
    artifact.Artifact(path, kind="tree", digest=digest, size_bytes=len(body)).fix(bench.machine, {}, bench.tell)
    bench.machine.unlink(store.blob(digest))
    return path


def test_releases_in_use_stay_and_others_go_whole(bench: strict.Bench) -> None:
    paths = {name: release(bench, name) for name in ("r-current", "r-previous", "r-named", "r-gone")}
    bench.link("/opt/wattherd/current", "releases/r-current")
    owned = generations.Owned.load(bench.machine)
    kept = manifest.Entry(id=f"artifact:{paths['r-previous']}", type="artifact", role="llama_cpp", spec={"path": paths["r-previous"]})
    owned.manage(kept, absent=True)
    owned.save()
    generation(bench, manifest.Entry(id="build:x", type="build", role="llama_cpp", spec={"fingerprint": "r-named"}))
    assert left(bench) == {paths["r-gone"]: "release"}
    (one,) = gc.find(bench.machine)
    assert one.size_bytes > 10
    assert gc.remove(bench.machine, one)
    assert list(bench.machine.names(store.RELEASES)) == ["r-current", "r-named", "r-previous"]


def owns(bench: strict.Bench, entry: manifest.Entry, *, kept: str = "") -> None:
    """The node manages it, or (`kept`) no longer wants it and has not let go of it."""
    owned = generations.Owned.load(bench.machine)
    owned.manage(entry, absent=True)
    if kept:
        owned.rows[entry.id]["kept"] = kept
    owned.save()


def built(bench: strict.Bench, fingerprint: str, toolkit: str) -> tuple[str, manifest.Entry]:
    """A finished build in the store, and the entry that asked for it."""
    digest = blob(bench, b"the release " + fingerprint.encode())
    store.record_build(bench.machine, facts.Built(fingerprint, digest, 7))
    spec = {"name": "llama.cpp", "fingerprint": fingerprint, "toolkit": toolkit}
    return digest, manifest.Entry(id=f"build:{fingerprint}", type="build", role="llama_cpp", spec=spec)


def unpacked(bench: strict.Bench, name: str) -> str:
    path = f"{kits.HOME}/{name}"
    bench.put(f"{path}/bin/nvcc", "nvcc")
    bench.put(f"{path}/{tree.MARKER}", "{}")
    return path


def test_a_finished_build_goes_when_neither_a_generation_nor_a_release_that_is_kept_needs_it(bench: strict.Bench) -> None:
    """The store has the release because the row is kept, and the row is kept because the store has it: that must hold neither."""
    older, entry = built(bench, "aaaa-older", "/x")
    owns(bench, entry, kept="the release stays in the store for a rollback")
    newer, entry = built(bench, "bbbb-newer", "/x")
    owns(bench, entry, kept="the release stays in the store for a rollback")
    path = release(bench, "bbbb-newer")
    kept = manifest.Entry(id=f"artifact:{path}", type="artifact", role="llama_cpp", spec={"path": path, "build": "bbbb-newer"})
    owns(bench, kept, kept="one of the newest 2 releases")
    current, entry = built(bench, "cccc-current", "/x")
    owns(bench, entry)
    generation(bench, entry)
    assert left(bench) == {store.blob(older): "file"}
    assert {newer, current} <= set(bench.machine.names(store.BLOBS))
    (one,) = gc.find(bench.machine)
    assert one.name == "release aaaa-older"
    assert gc.remove(bench.machine, one)
    assert store.recorded(bench.machine, "aaaa-older") is None


def test_toolkits_that_nothing_is_built_with_any_more_go_whole(bench: strict.Bench) -> None:
    paths = {name: unpacked(bench, name) for name in ("cuda-13.5-aaaa", "cuda-13.0-bbbb", "cuda-12.9-cccc", "cmake-3.31-dddd")}
    bench.folder(f"{kits.HOME}/by-hand")
    _, wanted = built(bench, "aaaa-current", paths["cuda-13.5-aaaa"])
    generation(bench, wanted)
    _, under_way = built(bench, "bbbb-building", paths["cuda-13.0-bbbb"])
    owns(bench, under_way)
    _, unwanted = built(bench, "cccc-unwanted", paths["cuda-12.9-cccc"])
    owns(bench, unwanted, kept="the release stays in the store for a rollback")
    found = [one for one in gc.find(bench.machine) if one.kind == "toolkit"]
    assert {one.path: one.size_bytes for one in found} == {paths["cuda-12.9-cccc"]: 6, paths["cmake-3.31-dddd"]: 6}
    assert all(gc.remove(bench.machine, one) for one in found)
    assert bench.machine.names(kits.HOME) == ["by-hand", "cuda-13.0-bbbb", "cuda-13.5-aaaa"]


@pytest.mark.parametrize("folder", [store.RELEASES, kits.HOME])
@pytest.mark.parametrize("name", [".x-1.new", ".x-1.old"])
def test_what_a_power_cut_left_half_made_goes_when_it_is_old(bench: strict.Bench, folder: str, name: str) -> None:
    generation(bench)
    bench.put(f"{folder}/{name}/bin/nvcc", "nv")
    assert left(bench) == {}, "somebody may be at it"
    age(bench, f"{folder}/{name}")
    assert left(bench) == {f"{folder}/{name}": "partial"}
    (one,) = gc.find(bench.machine)
    assert gc.remove(bench.machine, one)
    assert bench.machine.names(folder) == []


def test_a_build_whose_blob_went_is_no_longer_promised(bench: strict.Bench) -> None:
    digest = blob(bench, b"an old release")
    generation(bench)
    store.record_build(bench.machine, facts.Built(tiny.FINGERPRINT, digest, 14))
    (one,) = gc.find(bench.machine)
    assert one.name == f"release {tiny.FINGERPRINT}"
    assert gc.remove(bench.machine, one)
    assert store.recorded(bench.machine, tiny.FINGERPRINT) is None


def test_without_the_generation_s_record_nothing_is_looked_at(bench: strict.Bench) -> None:
    blob(bench, b"GGUF")
    generation(bench)
    bench.put(f"{generations.FOLDER}/1.json", b"{half")
    with pytest.raises(errors.Problem) as caught:
        gc.find(bench.machine)
    assert caught.value.code == "generation-missing"


def ask(bench: strict.Bench, **order: object) -> dict[str, object]:
    """The verb as the wire knows it: the `end` of one session."""
    sink = io.BytesIO()
    line = json.dumps({"verb": "models-gc", **order}).encode() + b"\n"
    assert session.Session(bench.machine, io.BytesIO(line), sink).serve() == 0
    end = json.loads(sink.getvalue().splitlines()[-1])
    assert end["event"] == "end"
    return dict(end)


def test_the_verb_lists_and_removes_only_when_told(bench: strict.Bench) -> None:
    digest = blob(bench, b"GGUF old")
    generation(bench)
    Path(bench.machine.path("/run")).mkdir()
    before = bench.tree()
    told = ask(bench)
    assert bench.tree() == before
    assert told["removed"] == []
    assert told["left"] == [{"kind": "file", "path": store.blob(digest), "size_bytes": 8}]
    assert ask(bench, delete=True)["removed"] == [store.blob(digest)]
    assert ask(bench)["left"] == []
