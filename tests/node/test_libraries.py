"""Shared libraries of a release, with real ones: made by this machine's compiler, read by our own reader, judged by the real ldd."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from wattherd import errors
from wattherd import machine as machines
from wattherd.node import elf, libraries


@pytest.fixture
def machine(tmp_path: Path) -> machines.Machine:
    return machines.Machine(str(tmp_path / "root"))


def library(folder: Path, name: str, soname: str, *links: Path) -> Path:
    """A real library with a SONAME; `links` are what it needs, beside it at run time."""
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / name
    argv = ["gcc", "-shared", "-x", "c", "-", "-o", str(place), f"-Wl,-soname,{soname}", "-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed"]
    source = f"int {name.partition('.')[0].replace('-', '_')}(void) {{ return 0; }}\n"
    subprocess.run([*argv, "-x", "none", *map(str, links)], input=source.encode(), check=True, timeout=60)
    return place


@pytest.fixture
def toolkit(machine: machines.Machine) -> Path:
    """A toolkit as NVIDIA installs it: real files with long names, and links with shorter ones."""
    lib = Path(machine.path("/usr/local/cuda-12.6/lib64"))
    small = library(lib, "libcublasLt.so.12.6.4.1", "libcublasLt.so.12")
    (lib / "libcublasLt.so.12").symlink_to(small.name)
    big = library(lib, "libcublas.so.12.6.4.1", "libcublas.so.12", small)
    (lib / "libcublas.so.12").symlink_to(big.name)
    library(lib, "libcudart.so.12.6.77", "libcudart.so.12")
    return lib


@pytest.fixture
def plugin(machine: machines.Machine, toolkit: Path) -> Path:
    needs = (toolkit / "libcublas.so.12.6.4.1", toolkit / "libcudart.so.12.6.77")
    return library(Path(machine.path("/release/bin")), "libggml-cuda.so", "libggml-cuda.so", *needs)


def test_reader_agrees_with_what_was_linked(plugin: Path) -> None:
    found = elf.read(str(plugin))
    assert found is not None
    assert found.soname == "libggml-cuda.so"
    assert {"libcublas.so.12", "libcudart.so.12"} <= set(found.needed)


def test_libraries_are_shipped_under_their_soname_whatever_the_file_is_called(machine: machines.Machine, plugin: Path) -> None:
    shipped = libraries.ship(machine, "/release/bin", "/usr/local/cuda-12.6", ("libcudart.so.", "libcublas.so.", "libcublasLt.so."))
    assert shipped == ["libcublas.so.12", "libcublasLt.so.12", "libcudart.so.12"]
    libraries.check(machine, "/release/bin")
    assert plugin.parent.joinpath("libcudart.so.12").is_file()


def test_a_file_of_the_right_name_for_people_and_not_for_the_loader_is_missing(
    machine: machines.Machine, toolkit: Path, plugin: Path
) -> None:
    (toolkit / "libcudart.so.12.6.77").rename(plugin.parent / "libcudart.so.12.0")
    with pytest.raises(errors.Problem) as caught:
        libraries.check(machine, "/release/bin")
    assert caught.value.code == "release-does-not-run"
    assert "libggml-cuda.so needs libc" in caught.value.message
    with pytest.raises(errors.Problem, match=r"needs libcudart\.so\.12, which is not in the toolkit"):
        libraries.ship(machine, "/release/bin", "/usr/local/cuda-12.6", ("libcudart.so.",))


def test_the_drivers_own_library_is_not_asked_of_a_builder(machine: machines.Machine, tmp_path: Path) -> None:
    cuda = library(tmp_path / "stubs", "libcuda.so", "libcuda.so.1")
    library(Path(machine.path("/release/bin")), "libggml-cuda.so", "libggml-cuda.so", cuda)
    libraries.check(machine, "/release/bin")
    assert libraries.ship(machine, "/release/bin", "/usr/local/cuda-12.6", ("libcudart.so.",)) == []


def test_what_cublas_opens_later_goes_along(machine: machines.Machine, toolkit: Path, plugin: Path) -> None:
    library(toolkit, "libnvrtc.so.12.6.77", "libnvrtc.so.12")
    library(toolkit, "libnvrtc.so.11.8.89", "libnvrtc.so.11.2")
    shipped = libraries.ship(machine, "/release/bin", "/usr/local/cuda-12.6", ("libcublas.so.", "libcublasLt.so.", "libnvrtc.so."))
    assert "libnvrtc.so.12" in shipped
    assert "libnvrtc.so.11.2" not in shipped
    assert plugin.is_file()


def test_highest_version_of_every_file_counts(machine: machines.Machine) -> None:
    """As objdump reads them: this machine's own libstdc++ beside its ls."""
    folder = Path(machine.path("/release/bin"))
    folder.mkdir(parents=True)
    real = next(Path(f"/usr/lib/{name}").resolve() for name in ("x86_64-linux-gnu/libstdc++.so.6", "aarch64-linux-gnu/libstdc++.so.6"))
    for place in (real, Path("/bin/ls")):
        folder.joinpath(place.name).write_bytes(place.read_bytes())
    said = subprocess.run(["objdump", "-p", str(real), "/bin/ls"], capture_output=True, text=True, check=True).stdout
    expected = max(tuple(map(int, word[6:].split("."))) for word in said.split() if word.startswith("GLIBC_2"))
    assert libraries.versions(machine, "/release/bin")[0] == "GLIBC_" + ".".join(map(str, expected))


@pytest.mark.parametrize("body", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + b"\0" * 60, b"\x7fELF\x02\x01" + b"\xff" * 58])
def test_what_is_no_such_object_is_none(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "x").write_bytes(body)
    assert elf.read(str(tmp_path / "x")) is None


def test_a_library_cut_anywhere_is_no_object_and_no_crash(plugin: Path, tmp_path: Path) -> None:
    body = plugin.read_bytes()
    for size in range(64, len(body), 997):
        (tmp_path / "cut").write_bytes(body[:size])
        found = elf.read(str(tmp_path / "cut"))
        assert found is None or found.soname in ("", "libggml-cuda.so")
