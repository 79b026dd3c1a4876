"""Every field case of tests/cases/cuda.yaml, one test each, named after the case; what was reported is what the programs say here."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests import goldens
from tests.node import strict
from wattherd import errors, plan, records, resources
from wattherd.node import builder, complaint, libraries
from wattherd.resources import build, means, symlink
from wattherd.serving import toolkits
from wattherd.verbs import releases
from wattherd.wire import facts, manifest

_CASES = Path(__file__).parents[1] / "cases" / "cuda.yaml"
VERSION = "version: 0.6.0-dev (build 11434, commit b0a2feb64)\nbuilt with GNU 12.2.0 for Linux x86_64\n"
CARD = "Available devices:\n  CUDA0: NVIDIA GeForce RTX 3090 (24124 MiB, 23871 MiB free)\n"
COMPILER_ID = """-- The CUDA compiler identification is unknown
CMake Error at /usr/share/cmake-3.25/Modules/CMakeDetermineCompilerId.cmake:739 (message):
  Compiling the CUDA compiler identification source file
  "CMakeCUDACompilerId.cu" failed.

  The output was:

  2

  /usr/include/bits/mathcalls.h(206): error: exception specification is incompatible with that of previous function "rsqrtf"

"""
LDD = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibcudart.so.13 => /opt/wattherd/releases/x/bin/libcudart.so.13 (0x00007f)\n"


def test_every_case_has_its_test() -> None:
    cases = [case["id"] for case in yaml.safe_load(_CASES.read_text("utf-8"))["cases"]]
    tests = [name for name in globals() if name.startswith("test_a0")]
    assert len(cases) == 7
    assert {case.partition("-")[0] for case in cases} == {name.split("_")[1] for name in tests}


def recorded(case: str) -> facts.Facts:
    return facts.decode(json.loads((goldens.FOLDER / case / "facts.json").read_text()))


def entries(case: str) -> tuple[manifest.Entry, ...]:
    return plan.manifest_for(goldens.host_of(goldens.FOLDER / case), recorded(case), plan.load_roles(goldens.ROOT / "roles")).resources


def options(case: str) -> Mapping[str, str]:
    return next(one.options for one in map(resources.decode, entries(case)) if isinstance(one, build.Build))


def current(case: str) -> symlink.Symlink:
    """The link of a recorded host, with the probes that its role gives it."""
    return next(one for one in map(resources.decode, entries(case)) if isinstance(one, symlink.Symlink))


def turned(bench: strict.Bench, good: str = "", **said: tuple[int, str]) -> str:
    """Turn `current` of the two 3090s: with what its probes say otherwise it must refuse, and its words are given."""
    one = current("cuda-2x3090")
    answers: Mapping[str, tuple[int, str]] = {"version": (0, VERSION), "devices": (0, good or CARD), "ldd": (0, LDD), **said}
    server = f"{one.target}/bin/llama-server"
    bench.folder("/opt/wattherd")
    for argv, key in (((server, "--version"), "version"), ((server, "--list-devices"), "devices"), (("ldd", strict.REST), "ldd")):
        bench.runner.plan(*argv, code=answers[key][0], out=answers[key][1], times=None)
    if not said:
        one.fix(bench.machine, {"target": (None, one.target)}, bench.tell)
        assert bench.machine.readlink(one.path) == one.target
        return ""
    with pytest.raises(errors.Problem) as caught:
        one.fix(bench.machine, {"target": (None, one.target)}, bench.tell)
    assert caught.value.code == "release-does-not-run"
    assert "nothing was switched" in caught.value.hint
    assert bench.machine.readlink(one.path) is None
    return caught.value.message


def test_what_a_good_release_says_turns_the_link(bench: strict.Bench) -> None:
    assert turned(bench) == ""


def test_a01_no_cuda_line_is_a_failure_and_nvcc_is_found_off_the_path(bench: strict.Bench) -> None:
    assert "shows no CUDA device with memory, so it would run on the CPU" in turned(bench, devices=(0, "Available devices:\n"))
    bench.put("/usr/local/cuda/bin/nvcc", "", 0o755)
    assert means.search_path(bench.machine, {}).endswith(":/usr/local/cuda/bin")
    assert options("jetson-orin-jp6")["CMAKE_CUDA_ARCHITECTURES"] == "87-real"


@pytest.mark.parametrize(
    "said",
    [
        "warning: no usable GPU found, --gpu-layers option will be ignored\nAvailable devices:\n",
        "I device_info:\nI   - BLAS    : OpenBLAS (0 MiB, 0 MiB free)\nI   - CPU     : AMD EPYC (32048 MiB, 32048 MiB free)\n",
        "Available devices:\n  CUDA0: NVIDIA GeForce RTX 3090 (0 MiB, 0 MiB free)\n",
        "Available devices:\n  RPC0: 10.0.0.1:50052 (24124 MiB, 24124 MiB free)\n",
        "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected\nAvailable devices:\n",
    ],
)
def test_a02_only_a_cuda_device_with_memory_is_a_gpu(bench: strict.Bench, said: str) -> None:
    assert "would run on the CPU" in turned(bench, devices=(0, said))


def test_a02_an_older_binary_is_not_what_was_built(bench: strict.Bench) -> None:
    assert "it is not build 11434" in turned(bench, version=(0, "version: 8982 (0d9f9a8)\n"))


@pytest.mark.parametrize(
    "said", ["I   - CUDA0   : NVIDIA A100 (81920 MiB, 81000 MiB free)\n", "  CUDA1: NVIDIA GeForce RTX 3090 (24124 MiB, 10 MiB free)\n"]
)
def test_a02_both_forms_of_a_cuda_line_are_known(bench: strict.Bench, said: str) -> None:
    assert turned(bench, good=said) == ""


def test_a04_a_driver_older_than_the_toolkit_is_refused_before_a_host_is_touched(bench: strict.Bench) -> None:
    host, told = goldens.host_of(goldens.FOLDER / "cuda-2x3090"), recorded("cuda-2x3090")
    with pytest.raises(errors.Problem) as caught:
        plan.manifest_for(host, records.replace(told, driver="560.35.05"), plan.load_roles(goldens.ROOT / "roles"))
    assert caught.value.code == "cuda-unfit"
    assert "needs driver 580 or newer, and 560.35.05 is loaded" in caught.value.message
    assert [row.driver for row in (toolkits.knows((13, 1)), toolkits.knows((12, 4))) if row] == [580, 550]
    said = "ggml_cuda_init: failed to initialize CUDA: CUDA driver version is insufficient for CUDA runtime version\nAvailable devices:\n"
    assert "the NVIDIA driver of this node is older than the CUDA it was built with" in turned(bench, devices=(0, said))


def test_a05_any_file_of_a_release_may_need_a_newer_c_library(machine: strict.Machine) -> None:
    folder = Path(machine.path("/release/bin"))
    folder.mkdir(parents=True)
    for name in ("llama-server", "libggml-cuda.so"):
        subprocess.run(["gcc", "-x", "c", "-", "-o", folder / name], input=b"int main(void) { return 0; }", check=True, timeout=60)
    needed = libraries.versions(machine, "/release/bin")
    assert [word for word in needed if word.startswith("GLIBC_")]
    built = facts.Built("0123456789abcdef", "0" * 64, 1, versions=("GLIBC_2.38", "GLIBCXX_3.4.32"))
    with pytest.raises(errors.Problem, match=r"needs glibc 2\.38, and old has 2\.35: nothing was copied"):
        releases.check_receiver(built, facts.System("old", libc="2.35", libstdcxx="3.4.30"))
    assert releases.lacking(built, facts.System("new", libc="2.39", libstdcxx="3.4.33")) == ""


def test_a06_the_plugin_is_asked_too_and_every_missing_library_counts(bench: strict.Bench) -> None:
    words = turned(bench, ldd=(0, LDD + "\tlibcublas.so.13 => not found\n"))
    assert "the CUDA plugin lacks a library on this node" in words
    assert "libcublas.so.13 => not found" in words


def test_a07_first_compiler_error_is_told_with_its_cause() -> None:
    error = complaint.first_error(COMPILER_ID)
    assert error.startswith("/usr/include/bits/mathcalls.h(206): error: exception specification")
    assert "the C library is newer than this CUDA toolkit's headers" in complaint.hint(error)
    assert "gcc" not in complaint.hint(error), "another compiler does not help"


@pytest.mark.parametrize("code", [-4, 132])
def test_a08_an_illegal_instruction_was_built_for_another_cpu(bench: strict.Bench, code: int) -> None:
    assert "built for another CPU (illegal instruction)" in turned(bench, version=(code, ""))
    assert builder.ending(code) == "was ended by SIGILL"
    assert options("cuda-2x3090")["GGML_NATIVE"] == "OFF"
