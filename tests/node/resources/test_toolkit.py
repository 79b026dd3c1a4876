"""A toolkit out of wheels: the folder as a compiler wants it, whole or not at all, and nothing from outside its own folder."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping

import pytest

from tests.node import strict, tiny
from wattherd import errors, store
from wattherd.resources import build, outcome, toolkit

PATH = "/opt/wattherd/cuda/cuda-13.5-0123abcd"
INSIDE = "nvidia/cu13"


def wheel(files: Mapping[str, bytes], *, runs: tuple[str, ...] = ()) -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o100755 if name in runs else 0o100644) << 16
            archive.writestr(entry, text)
    return body.getvalue()


NVCC = wheel(
    {f"{INSIDE}/bin/nvcc": b"#!/bin/sh\n", f"{INSIDE}/include/crt/x.h": b"x", "nvidia_cuda_nvcc-13.dist-info/RECORD": b""},
    runs=(f"{INSIDE}/bin/nvcc",),
)
CUBLAS = wheel({f"{INSIDE}/lib/libcublas.so.13": b"so", f"{INSIDE}/lib/libcudart_static.a": b"a"})


def put(bench: strict.Bench, *bodies: bytes) -> dict[str, int]:
    return {tiny.put(bench.machine, body): len(body) for body in bodies}


def test_wheels_become_one_folder_with_the_links_of_a_linker(bench: strict.Bench) -> None:
    wheels = put(bench, NVCC, CUBLAS)
    toolkit.assemble(bench.machine, PATH, wheels, INSIDE, bench.tell)
    assert bench.machine.names(PATH) == ["bin", "include", "lib", "lib64", "release.json"]
    assert bench.machine.read(f"{PATH}/lib64/libcublas.so") == b"so"
    assert bench.machine.readlink(f"{PATH}/lib64") == "lib"
    found = bench.machine.lstat(f"{PATH}/bin/nvcc")
    assert found is not None
    assert found.st_mode & 0o777 == 0o755
    assert toolkit.is_whole(bench.machine, PATH, wheels)
    assert toolkit.missing(bench.machine, PATH, wheels) == {}
    assert [name for name in bench.machine.names(store.BLOBS) if len(name) == 64] == [], "600 MB of wheels are not kept twice"


def test_a_second_time_nothing_is_done(bench: strict.Bench) -> None:
    wheels = put(bench, NVCC, CUBLAS)
    toolkit.assemble(bench.machine, PATH, wheels, INSIDE, bench.tell)
    before = strict.snapshot(bench.machine.path(PATH))
    toolkit.assemble(bench.machine, PATH, wheels, INSIDE, bench.tell)
    assert strict.snapshot(bench.machine.path(PATH)) == before


@pytest.mark.parametrize("damage", ["a file is gone", "a file is cut", "other wheels", "killed in the middle"])
def test_a_folder_that_is_not_whole_is_made_anew(bench: strict.Bench, damage: str) -> None:
    wheels = put(bench, NVCC, CUBLAS)
    if damage == "killed in the middle":
        bench.put(f"{PATH.rpartition('/')[0]}/.cuda-13.5-0123abcd.new/bin/nvcc", "half")
    else:
        toolkit.assemble(bench.machine, PATH, wheels, INSIDE, bench.tell)
        if damage == "a file is gone":
            bench.machine.unlink(f"{PATH}/bin/nvcc")
        elif damage == "a file is cut":
            bench.put(f"{PATH}/bin/nvcc", "")
        else:
            wheels = put(bench, NVCC, wheel({f"{INSIDE}/lib/libcublas.so.14": b"other"}))
    assert not toolkit.is_whole(bench.machine, PATH, wheels)
    put(bench, NVCC, CUBLAS)
    toolkit.assemble(bench.machine, PATH, wheels, INSIDE, bench.tell)
    assert toolkit.is_whole(bench.machine, PATH, wheels)
    assert bench.machine.names("/opt/wattherd/cuda") == ["cuda-13.5-0123abcd"]


@pytest.mark.parametrize(
    "body",
    [b"no zip at all", CUBLAS[: len(CUBLAS) // 2], wheel({f"{INSIDE}/../../etc/x": b"x"}), wheel({f"{INSIDE}//etc/x": b"x"})],
    ids=["no wheel", "cut", "climbs out", "absolute"],
)
def test_a_wheel_that_is_not_to_be_trusted_leaves_nothing(bench: strict.Bench, body: bytes) -> None:
    with pytest.raises(errors.Problem) as caught:
        toolkit.assemble(bench.machine, PATH, put(bench, NVCC, body), INSIDE, bench.tell)
    assert caught.value.code == "artifact-corrupt"
    assert bench.machine.names("/opt/wattherd/cuda") == []
    assert not bench.machine.exists("/etc/x")


def test_a_wheel_damaged_in_the_store_is_named_and_fetched_again(bench: strict.Bench) -> None:
    wheels = put(bench, NVCC)
    bench.put(store.blob(next(iter(wheels))), b"damaged")
    with pytest.raises(errors.Problem) as caught:
        toolkit.assemble(bench.machine, PATH, wheels, INSIDE, bench.tell)
    assert caught.value.code == "artifact-corrupt"
    assert toolkit.missing(bench.machine, PATH, wheels) == wheels


# -- as part of a build


def wanted(bench: strict.Bench, wheels: Mapping[str, int]) -> build.Build:
    return tiny.wanted(bench.machine, toolkit=PATH, wheels=wheels, inside=INSIDE)


def test_a_node_asks_for_wheels_only_when_it_is_to_build(bench: strict.Bench) -> None:
    wheels = {hashlib.sha256(body).hexdigest(): len(body) for body in (NVCC, CUBLAS)}
    one = wanted(bench, wheels)
    assert one.needs(bench.machine) == wheels
    put(bench, NVCC, CUBLAS)
    assert one.needs(bench.machine) == {}


def test_little_room_for_a_toolkit_is_said_before_anything_is_touched(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.runner.plan("systemctl", "show", strict.REST, out="ActiveState=inactive\n", times=None)
    one = wanted(bench, {"a" * 64: 600_000_000})
    monkeypatch.setattr(bench.machine, "free_bytes", lambda path: 1_000_000_000 if path == PATH else 10**12)
    with pytest.raises(errors.Problem) as caught:
        one.preflight(bench.machine, None)
    assert caught.value.code == "disk-full"
    assert PATH in caught.value.message


def test_a_toolkit_goes_with_the_last_build_that_used_it(bench: strict.Bench) -> None:
    bench.runner.plan("systemctl", "show", strict.REST, out="ActiveState=inactive\n", times=None)
    wheels = put(bench, NVCC, CUBLAS)
    toolkit.assemble(bench.machine, PATH, wheels, INSIDE, bench.tell)
    one, other = wanted(bench, wheels), tiny.wanted(bench.machine, fingerprint="f" * 32, toolkit=PATH, wheels=wheels)
    for each in (one, other):
        bench.put(outcome.spec_path(each.folder), f'{{"toolkit": "{PATH}"}}')
    one.remove(bench.machine, bench.tell)
    assert bench.machine.exists(PATH)
    other.remove(bench.machine, bench.tell)
    assert not bench.machine.exists(PATH)


def test_a_toolkit_that_was_there_before_is_never_removed(bench: strict.Bench) -> None:
    bench.runner.plan("systemctl", "show", strict.REST, out="ActiveState=inactive\n", times=None)
    bench.put("/usr/local/cuda-12.6/bin/nvcc", "", 0o755)
    tiny.wanted(bench.machine, toolkit="/usr/local/cuda-12.6").remove(bench.machine, bench.tell)
    assert bench.machine.exists("/usr/local/cuda-12.6/bin/nvcc")
