"""Toolkits as wheels: what is pinned, and that nothing else than the pinned bytes can come in under its name."""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.sources import index_server
from wattherd import errors, material
from wattherd.sources import toolkit


def test_every_toolkit_is_whole_and_for_both_kinds_of_cpu() -> None:
    kinds = collections.Counter((one.name, one.version) for one in toolkit.offers())
    assert set(kinds.values()) == {2}
    for one in toolkit.offers():
        parts = {file.file_name.partition("-")[0] for file in one.wheels}
        if one.name == "cuda":
            assert {
                "nvidia_cuda_nvcc",
                "nvidia_cuda_crt",
                "nvidia_nvvm",
                "nvidia_cuda_runtime",
                "nvidia_cuda_cccl",
                "nvidia_cublas",
            } <= parts
        assert all(one.architecture in file.file_name for file in one.wheels)
        assert all(file.size_bytes > 0 and len(file.sha256) == 64 for file in one.wheels)


def test_other_wheels_make_another_folder() -> None:
    places = [one.place for one in toolkit.offers()]
    assert len(set(places)) == len(places)
    assert all(place.startswith("/opt/wattherd/cuda/") for place in places)


def test_newest_comes_first() -> None:
    versions = [one.version for one in toolkit.offers() if one.name == "cuda" and one.architecture == "x86_64"]
    assert versions == sorted(versions, key=lambda text: [int(part) for part in text.split(".")], reverse=True)


RIGHT, OTHER = b"PK\x03\x04 the right one", b"PK\x03\x04 another"
NAME = "nvidia_cuda_nvcc-13.5.37-py3-none-manylinux_2_17_{}.whl"


@pytest.fixture
def pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[material.File]:
    """One pinned wheel, as the test's own index has it too."""
    digest = hashlib.sha256(RIGHT).hexdigest()
    place = tmp_path / "toolkits.pins"
    place.write_text(f"[cuda 13.5 x86_64 nvidia/cu13]\n{digest} {len(RIGHT)} nvidia-cuda-nvcc==13.5.37 {NAME.format('x86_64')}\n")
    monkeypatch.setattr(toolkit, "_PINS", place)
    _forget()
    yield toolkit.offers()[0].wheels[0]
    _forget()


def _forget() -> None:
    toolkit.offers.cache_clear()
    toolkit._releases.cache_clear()


def unheard(_done: int, _total: int) -> None:
    pass


def test_the_wheel_for_this_cpu_is_taken_and_then_kept(index: index_server.PackageIndex, cache: Path, pinned: material.File) -> None:
    index.add("nvidia-cuda-nvcc", NAME.format("x86_64"), RIGHT)
    index.add("nvidia-cuda-nvcc", NAME.format("aarch64"), OTHER)
    assert toolkit.wheel(pinned, cache, unheard).read_bytes() == RIGHT
    assert toolkit.wheel(pinned, cache, unheard).read_bytes() == RIGHT
    assert len(index.files_asked()) == 1


def test_other_bytes_under_the_pinned_name_are_refused_before_they_are_fetched(
    index: index_server.PackageIndex, cache: Path, pinned: material.File
) -> None:
    index.add("nvidia-cuda-nvcc", NAME.format("x86_64"), OTHER)
    with pytest.raises(errors.Problem) as caught:
        toolkit.wheel(pinned, cache, unheard)
    assert caught.value.code == "digest-mismatch"
    assert "not what Wattherd was tested with" in caught.value.hint
    assert index.files_asked() == []


def test_an_index_that_lacks_the_wheel_says_what_it_has(index: index_server.PackageIndex, cache: Path, pinned: material.File) -> None:
    index.add("nvidia-cuda-nvcc", NAME.format("aarch64"), OTHER)
    with pytest.raises(errors.Problem) as caught:
        toolkit.wheel(pinned, cache, unheard)
    assert caught.value.code == "source-missing"
    assert "aarch64" in caught.value.message


def test_a_line_that_is_no_pin_is_a_defect_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "toolkits.pins"
    place.write_text("[cuda 13.5 x86_64 nvidia/cu13]\nnvidia-cuda-nvcc==13.5.37\n")
    monkeypatch.setattr(toolkit, "_PINS", place)
    _forget()
    with pytest.raises(errors.Problem, match="no pin"):
        toolkit.offers()
    _forget()
