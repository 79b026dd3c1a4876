"""The driver's own refusals, and that its holds are Wattherd's only where Wattherd set them."""

from __future__ import annotations

import pytest

from tests.node import strict
from tests.node.resources.cases import driver as cases
from tests.node.resources.cases.package import stanza
from wattherd import errors
from wattherd.resources import base, driver

WANTED = driver.Driver(least=580, needed_by="CUDA 13.5")


def refused(bench: strict.Bench) -> errors.Problem:
    state = WANTED.actual(bench.machine)
    assert base.delta(WANTED.wanted(), state), "a check has to see it too"
    with pytest.raises(errors.Problem) as caught:
        WANTED.preflight(bench.machine, state)
    assert caught.value.code == "cuda-unfit"
    return caught.value


@pytest.mark.parametrize(
    ("loaded", "version"),
    [
        (cases.LOADED, "580.95.05"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2 14:37:44 UTC 2024\nGCC version:  gcc 9\n", "470.256.02"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.00  Release Build  (bugfix_main)\n", "580.00"),
        ("nonsense", ""),
        ("", ""),
    ],
)
def test_version_of_the_loaded_module(bench: strict.Bench, loaded: str, version: str) -> None:
    bench.put("/proc/driver/nvidia/version", loaded)
    assert driver.version(bench.machine) == version


def test_an_older_driver_is_refused_with_both_figures(bench: strict.Bench) -> None:
    cases.put(bench, loaded=cases.LOADED.replace("580.95.05", "560.35.05"))
    problem = refused(bench)
    assert "CUDA 13.5 needs an NVIDIA driver of 580 or newer, and 560.35.05 is loaded" in problem.message
    assert "upgrade the driver to 580" in problem.hint


def test_no_driver_is_refused(bench: strict.Bench) -> None:
    problem = refused(bench)
    assert "none is loaded" in problem.message
    assert "dkms status" in problem.hint


def test_a_driver_of_two_pieces_wants_a_reboot(bench: strict.Bench) -> None:
    cases.put(bench)
    bench.put("/usr/lib/x86_64-linux-gnu/libcuda.so.590.44.01")
    problem = refused(bench)
    assert "580.95.05, and its libraries are 590.44.01" in problem.message
    assert "reboot" in problem.hint
    bench.put("/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05")
    assert not base.delta(WANTED.wanted(), WANTED.actual(bench.machine))


def test_removal_frees_what_was_held_here_and_nothing_else(bench: strict.Bench) -> None:
    one = cases.drifted(bench)
    one.fix(bench.machine, base.delta(one.wanted(), one.actual(bench.machine)), bench.tell)
    bench.runner.plan("apt-mark", "unhold", "libnvidia-compute-580", effect=cases.mark(bench, "hold", "install"))
    one.remove(bench.machine, bench.tell)
    assert one.gone(bench.machine)
    assert "Package: nvidia-driver-580\nStatus: hold ok installed" in bench.machine.text("/var/lib/dpkg/status")


def test_a_foreign_architecture_is_named_as_apt_mark_wants_it(bench: strict.Bench) -> None:
    rows = [
        stanza("dpkg"),
        stanza("libnvidia-compute-580"),
        stanza("libnvidia-compute-580", architecture="i386"),
        stanza("nvidia-l4t-core"),
    ]
    bench.put("/var/lib/dpkg/status", "\n".join(rows))
    bench.runner.plan("apt-mark", "hold", "libnvidia-compute-580", "libnvidia-compute-580:i386", "nvidia-l4t-core")
    one = driver.Driver(hold=True)
    assert one.actual(bench.machine) is None
    one.fix(bench.machine, base.delta(one.wanted(), None), bench.tell)


def test_without_a_driver_package_there_is_nothing_to_hold(bench: strict.Bench) -> None:
    bench.put("/var/lib/dpkg/status", stanza("dpkg"))
    one = driver.Driver(hold=True)
    assert not base.delta(one.wanted(), one.actual(bench.machine))


def test_without_the_wish_to_hold_what_was_held_here_is_free_again(bench: strict.Bench) -> None:
    """The driver is wanted still, so it is no removal: the same resource without `hold`."""
    one = cases.drifted(bench)
    one.fix(bench.machine, base.delta(one.wanted(), one.actual(bench.machine)), bench.tell)
    state = WANTED.actual(bench.machine)
    assert base.delta(WANTED.wanted(), state) == {"held": ("libnvidia-compute-580", "none")}
    bench.runner.plan("apt-mark", "unhold", "libnvidia-compute-580", effect=cases.mark(bench, "hold", "install"))
    WANTED.fix(bench.machine, base.delta(WANTED.wanted(), state), bench.tell)
    assert not base.delta(WANTED.wanted(), WANTED.actual(bench.machine))
    assert "Package: nvidia-driver-580\nStatus: hold ok installed" in bench.machine.text("/var/lib/dpkg/status"), "the administrator's own"
    assert bench.tell.words[-1] == "freeing 1 package of the driver"
