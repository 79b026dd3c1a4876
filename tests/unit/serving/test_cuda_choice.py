"""Which toolkit is chosen for a host, and why one is refused: each pair of things that may not go together, by its words."""

from __future__ import annotations

import pytest

from wattherd import errors, records
from wattherd.inventory import settings
from wattherd.serving import cuda, toolkits
from wattherd.sources import toolkit
from wattherd.wire import facts

OFFERS = toolkit.offers()
CUDA_12_6 = facts.Cuda("/usr/local/cuda-12.6", "12.6", stub=True)
CUDA_13_0 = facts.Cuda("/usr/local/cuda-13.0", "13.0", stub=True)


def host(
    *caps: str,
    driver: str = "580.95.05",
    there: tuple[facts.Cuda, ...] = (),
    system: tuple[str, str, str] = ("debian", "12", "2.36"),
    compilers: dict[str, int] | None = None,
    cmake: str = "3.25",
    components: tuple[str, ...] = ("main",),
    soc: str = "",
    jetson: str = "",
    architecture: str = "x86_64",
) -> facts.Facts:
    return facts.Facts(
        system=facts.System("rig", system[0], system[1], libc=system[2], components=components),
        cpu=facts.Cpu(architecture, level="x86-64-v3"),
        python=facts.Python("/usr/bin/python3", "3.11.2"),
        gpus=tuple(facts.Gpu(f"0000:0{at}:00.0", "nvidia", f"Card {cap}", compute_capability=cap) for at, cap in enumerate(caps)),
        driver=driver if caps else "",
        cuda=there,
        tools=facts.Tools(compilers if compilers is not None else {"g++": 12}, cmake),
        soc=soc,
        jetson=jetson,
    )


def chosen(told: facts.Facts, builder: str = "", **setting: object) -> cuda.Choice:
    return cuda.choose("rig", settings.Cuda.model_validate(setting), told, OFFERS, builder=builder)


def refused(told: facts.Facts, setting: dict[str, object] | None = None, builder: str = "") -> errors.Problem:
    with pytest.raises(errors.Problem) as caught:
        cuda.choose("rig", settings.Cuda.model_validate(setting or {}), told, OFFERS, builder=builder)
    assert caught.value.code == "cuda-unfit"
    assert caught.value.message.startswith("rig ")
    assert caught.value.hint
    return caught.value


# -- what is taken


def test_installed_comes_before_wheels() -> None:
    found = chosen(host("8.6", there=(CUDA_12_6,)))
    assert (found.origin, found.path, found.major, found.stub) == ("installed", "/usr/local/cuda-12.6", 12, True)


def test_distribution_comes_before_wheels_and_brings_its_compiler() -> None:
    found = chosen(host("8.6", components=("main", "non-free")))
    assert (found.origin, found.version, found.compiler, found.packages) == (
        "distribution",
        "11.8",
        "g++-11",
        ("nvidia-cuda-toolkit", "g++-11"),
    )


def test_a_package_that_apt_has_no_lists_of_is_not_counted_on() -> None:
    assert chosen(host("8.6", components=("main",))).origin == "wheels"


def test_wheels_are_for_the_hosts_own_architecture() -> None:
    found = chosen(host("12.1", architecture="aarch64"))
    assert found.wheels is not None
    assert found.wheels.architecture == "aarch64"
    assert found.path == found.wheels.place


def test_all_cards_are_in_the_build_and_each_once() -> None:
    assert chosen(host("8.9", "8.6", "8.6")).architectures == ("86", "89")


def test_a_toolkit_that_does_not_serve_is_passed_over() -> None:
    assert chosen(host("6.1", there=(CUDA_13_0, CUDA_12_6))).version == "12.6"


def test_version_and_path_of_the_inventory_decide() -> None:
    told = host("8.6", there=(CUDA_13_0, CUDA_12_6))
    assert chosen(told, version="12.6").path == "/usr/local/cuda-12.6"
    assert chosen(told, path="/usr/local/cuda").path == "/usr/local/cuda-13.0"
    assert chosen(told, toolkit="wheels", version="13.0").origin == "wheels"
    assert chosen(told, path="/srv/cuda", version="12.4").path == "/srv/cuda"


def test_architectures_of_the_inventory_override_the_cards() -> None:
    assert chosen(host(driver=""), architectures=["86", "120a"]).architectures == ("86", "120a")


def test_thor_is_110_to_cuda_13_and_101_before() -> None:
    thor = host(soc="tegra264", jetson="# R38 (release), REVISION: 2.0", architecture="aarch64", system=("ubuntu", "24.04", "2.39"))
    assert chosen(thor).architectures == ("110",)
    assert chosen(records.replace(thor, cuda=(facts.Cuda("/usr/local/cuda-12.8", "12.8"),))).architectures == ("101",)


def test_a_jetsons_driver_comes_with_its_release_and_is_not_counted() -> None:
    orin = host(soc="tegra234", jetson="# R36 (release), REVISION: 4.3", there=(CUDA_12_6,), architecture="aarch64")
    assert chosen(orin).driver == 0


def test_an_older_compiler_that_is_there_is_used() -> None:
    found = chosen(host("8.6", there=(CUDA_12_6,), compilers={"g++": 14, "g++-14": 14, "g++-12": 12, "g++-13": 13}))
    assert found.compiler == "g++-13"


def test_an_old_cmake_is_replaced_by_one_from_a_wheel() -> None:
    found = chosen(host("8.6", system=("ubuntu", "20.04", "2.31"), cmake="3.16"))
    assert found.cmake is not None
    assert (found.cmake.name, found.cmake.architecture) == ("cmake", "x86_64")
    assert chosen(host("8.6", system=("ubuntu", "20.04", "2.31"), cmake="")).cmake is not None, "20.04 would install 3.16"
    assert chosen(host("8.6")).cmake is None
    assert chosen(host("12.0"), architectures=["120f"]).cmake is not None, "an f means nothing to CMake 3.25"


def test_a_host_that_receives_from_a_named_builder_needs_no_toolkit() -> None:
    told = host("8.6", driver="560.35.05")
    assert "580" in refused(told).message
    found = chosen(told, builder="big", version="12.6")
    assert (found.major, found.architectures) == (12, ("86",))
    assert "570 or newer" in refused(told, {"version": "12.8"}, "big").message, "its driver counts all the same"


# -- what is refused


@pytest.mark.parametrize(
    ("told", "setting", "reason", "fix"),
    [
        pytest.param(host("6.1"), {}, "sm_61 is older than it knows (from sm_75)", "CUDA 12.9", id="card-older-than-toolkit"),
        pytest.param(
            host("12.0", there=(CUDA_12_6,), driver="570.172.08"),
            {"toolkit": "installed"},
            "too old to know sm_120",
            "CUDA 12.8 or newer",
            id="toolkit-older-than-card",
        ),
        pytest.param(
            host("8.0", driver="560.35.05"), {}, "needs driver 580 or newer, and 560.35.05", "upgrade the driver to 580", id="driver-13"
        ),
        pytest.param(
            host("8.0", driver="535.247.01", there=(facts.Cuda("/usr/local/cuda-12.4", "12.4"),)),
            {"version": "12.4"},
            "needs driver 550 or newer",
            "older toolkit",
            id="driver-12.4",
        ),
        pytest.param(
            host("8.6", there=(CUDA_12_6,), compilers={"g++": 14}),
            {"version": "12.6"},
            "takes g++ up to 13, and the host's is 14",
            "host_compiler: g++-13",
            id="compiler-newer-than-nvcc",
        ),
        pytest.param(
            host("8.6", there=(CUDA_12_6,)),
            {"version": "12.6", "host_compiler": "g++-14"},
            "the inventory names g++-14",
            "host_compiler: g++-13",
            id="named-compiler-newer-than-nvcc",
        ),
        pytest.param(
            host("8.6", there=(CUDA_13_0,), system=("debian", "13", "2.41"), compilers={"g++": 14}),
            {"version": "13.0"},
            "contradict glibc 2.41, whatever the compiler",
            "CUDA 13.2 or newer",
            id="a07-c-library-newer-than-headers",
        ),
        pytest.param(
            host("8.6", there=(facts.Cuda("/usr/local/cuda-13.0", "13.0", lacks="cuBLAS"),)),
            {"toolkit": "installed"},
            "lacks cuBLAS",
            "toolkit: wheels",
            id="toolkit-without-cublas",
        ),
        pytest.param(
            host("8.6", there=(facts.Cuda("/usr/local/cuda-10.2", "10.2"),)),
            {"toolkit": "installed"},
            "needs CUDA 11.1",
            "newer toolkit",
            id="toolkit-older-than-the-source-wants",
        ),
        pytest.param(host("8.6"), {"toolkit": "installed"}, "no CUDA toolkit is installed there", "/usr/local/cuda-N", id="none-installed"),
        pytest.param(host("8.6"), {"path": "/srv/cuda"}, "no CUDA toolkit is in /srv/cuda", "version: …", id="none-at-its-path"),
        pytest.param(host("8.6"), {"version": "12.6"}, "no CUDA 12.6 is to be had", "toolkit: auto", id="no-such-version"),
        pytest.param(host(""), {}, "whose compute capability is not known", "architectures: ['86']", id="unknown-card"),
        pytest.param(host(), {}, "no NVIDIA GPU that its facts show", "driver loaded", id="no-card"),
        pytest.param(
            host(soc="tegra999", jetson="# R40 (release), REVISION: 1.0"),
            {},
            "whose GPU is not known here (tegra999)",
            "architectures",
            id="unknown-jetson",
        ),
        pytest.param(
            host(soc="tegra234", jetson="# R36 (release), REVISION: 4.3", architecture="aarch64"),
            {},
            "for JetPack 7 and newer",
            "backend: cpu",
            id="jetson-without-toolkit",
        ),
    ],
)
def test_each_misfit_has_its_reason_and_its_fix(told: facts.Facts, setting: dict[str, object], reason: str, fix: str) -> None:
    problem = refused(told, setting)
    assert reason in problem.message
    assert fix in problem.hint


def test_a_card_without_a_driver_is_not_a_machine_without_a_card() -> None:
    told = records.replace(host("8.6"), driver="")
    assert "no NVIDIA driver is loaded there" in refused(told).message


def test_a_mixed_machine_names_the_card_that_does_not_fit() -> None:
    problem = refused(host("6.1", "12.0", there=(CUDA_12_6,), driver="580.95.05"))
    assert "Card 6.1 (sm_61) and Card 12.0 (sm_120)" in problem.message


@pytest.mark.parametrize(
    ("version", "oldest", "newest", "gcc"),
    [
        ((11, 4), 35, 87, 11),
        ((11, 8), 35, 90, 11),
        ((12, 0), 50, 90, 12),
        ((12, 3), 50, 90, 12),
        ((12, 4), 50, 90, 13),
        ((12, 6), 50, 90, 13),
        ((12, 8), 50, 120, 14),
        ((12, 9), 50, 121, 14),
        ((13, 0), 75, 121, 15),
    ],
)
def test_table_of_toolkits(version: tuple[int, int], oldest: int, newest: int, gcc: int) -> None:
    row = toolkits.knows(version)
    assert row is not None
    assert (min(row.architectures), max(row.architectures), row.gcc) == (oldest, newest, gcc)


def test_before_the_table_nothing_is_known() -> None:
    assert toolkits.knows((10, 2)) is None
