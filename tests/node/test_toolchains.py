"""What a node can compile with, read from files alone: toolkits, compilers, CMake, and where packages come from."""

from __future__ import annotations

import pytest

from tests.node import strict
from wattherd.node import toolchains
from wattherd.wire import facts


def toolkit(bench: strict.Bench, name: str, *, stub: bool = False, cublas: bool = True) -> None:
    bench.put(f"/usr/local/{name}/bin/nvcc", "", 0o755)
    if stub:
        bench.put(f"/usr/local/{name}/targets/x86_64-linux/lib/stubs/libcuda.so")
    if cublas:
        bench.put(f"/usr/local/{name}/lib64/libcublas.so")


def test_nvcc_is_found_where_no_units_path_leads(bench: strict.Bench) -> None:
    """A build that is started by systemd has no /usr/local/cuda/bin on its PATH."""
    toolkit(bench, "cuda-12.6", stub=True)
    bench.put("/usr/local/cuda-12.6/version.json", '{"cuda": {"name": "CUDA SDK", "version": "12.6.68"}}')
    assert toolchains.cuda(bench.machine) == (facts.Cuda("/usr/local/cuda-12.6", "12.6", stub=True),)


def test_the_administrators_choice_is_first_and_each_is_named_once(bench: strict.Bench) -> None:
    for name in ("cuda-11.8", "cuda-12.6", "cuda-13.0"):
        toolkit(bench, name)
    bench.link("/usr/local/cuda-12", "/usr/local/cuda-12.6")
    bench.link("/etc/alternatives/cuda", "/usr/local/cuda-12.6")
    bench.link("/usr/local/cuda", "/etc/alternatives/cuda")
    assert [one.version for one in toolchains.cuda(bench.machine)] == ["12.6", "13.0", "11.8"]


@pytest.mark.parametrize(
    ("name", "file", "text", "version"),
    [
        ("cuda-10.2", "version.txt", "CUDA Version 10.2.300\n", "10.2"),
        ("cuda", "version.json", '{"cuda_nvcc": {"version": "13.0.48"}}', "13.0"),
        ("cuda-12.4", "version.json", "not json", "12.4"),
        ("cuda", "version.json", "[]", ""),
    ],
)
def test_version_of_a_toolkit(bench: strict.Bench, name: str, file: str, text: str, version: str) -> None:
    toolkit(bench, name)
    bench.put(f"/usr/local/{name}/{file}", text)
    assert [one.version for one in toolchains.cuda(bench.machine)] == [version]


def test_a_toolkit_without_cublas_says_so_and_one_without_nvcc_is_none(bench: strict.Bench) -> None:
    toolkit(bench, "cuda-13.0", cublas=False)
    bench.folder("/usr/local/cuda-12.6/lib64")
    assert toolchains.cuda(bench.machine) == (facts.Cuda("/usr/local/cuda-13.0", "13.0", lacks="cuBLAS"),)


def test_the_distributions_package_is_last(bench: strict.Bench) -> None:
    toolkit(bench, "cuda-12.6")
    bench.put("/usr/bin/nvcc", "", 0o755)
    bench.put("/usr/lib/nvidia-cuda-toolkit/bin/nvcc", "", 0o755)
    bench.put("/usr/lib/x86_64-linux-gnu/libcudart.so.11.8.89")
    bench.put("/usr/lib/x86_64-linux-gnu/stubs/libcuda.so")
    assert toolchains.cuda(bench.machine)[-1] == facts.Cuda("/usr", "11.8", stub=True, packaged=True)


def test_compilers_and_cmake(bench: strict.Bench) -> None:
    bench.put("/usr/bin/x86_64-linux-gnu-g++-12", "", 0o755)
    bench.link("/usr/bin/g++-12", "x86_64-linux-gnu-g++-12")
    bench.link("/etc/alternatives/g++", "/usr/bin/g++-12")
    bench.link("/usr/bin/g++", "/etc/alternatives/g++")
    bench.put("/usr/bin/g++-11", "", 0o755)
    bench.put("/usr/bin/c++filt", "", 0o755)
    bench.put("/usr/bin/cmake", "", 0o755)
    bench.folder("/usr/share/cmake-3.16")
    assert toolchains.tools(bench.machine) == facts.Tools({"g++": 12, "g++-11": 11, "g++-12": 12}, "3.16")
    bench.put("/usr/local/bin/cmake", "", 0o755)
    assert toolchains.tools(bench.machine).cmake == "", "the one that the build will find is of unknown version"


def test_libraries_and_parts_of_the_distribution(bench: strict.Bench) -> None:
    bench.put("/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30")
    bench.put("/var/lib/apt/lists/deb.debian.org_debian_dists_bookworm_main_binary-amd64_Packages")
    bench.put("/var/lib/apt/lists/deb.debian.org_debian_dists_bookworm_non-free-firmware_binary-amd64_Packages.lz4")
    assert toolchains.libstdcxx(bench.machine) == "3.4.30"
    assert toolchains.components(bench.machine) == ("main", "non-free-firmware")


def test_an_empty_machine_knows_nothing(bench: strict.Bench) -> None:
    assert toolchains.cuda(bench.machine) == ()
    assert toolchains.tools(bench.machine) == facts.Tools()
    assert (toolchains.libstdcxx(bench.machine), toolchains.components(bench.machine)) == ("", ())
