"""A Jetson's settings as resources: skipped with the reason where they cannot be had, waiting where they take a boot, taken back later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.node import strict
from tests.node.power import jetson_fake
from wattherd import errors, resources
from wattherd import machine as machines
from wattherd.node import converge, generations
from wattherd.power.jetson import fan, nvpmodel
from wattherd.resources import base
from wattherd.resources.jetson import Jetson
from wattherd.wire import manifest

REBOOT = "reboot required: "


def _manifest(*wanted: base.Resource) -> manifest.Manifest:
    return manifest.Manifest("orin", tuple(resources.encode(one, role="power") for one in wanted))


def _run(bench: strict.Bench, *wanted: base.Resource, check: bool = False, last: bool = False) -> list[Mapping[str, Any]]:
    bench.folder("/var/lib/wattherd/generations")
    told: list[Mapping[str, Any]] = []
    made = _manifest(*wanted)
    converge.Run(bench.machine, converge.Job(made, manifest.encode(made), check=check, last=last), told.append).converge()
    return told


def _of(told: list[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    return [message for message in told if message["event"] == kind]


def test_all_three_are_set_and_a_second_run_changes_nothing(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench)
    wanted = (Jetson("mode", "25W"), Jetson("pinned", "yes"), Jetson("fan", "cool"))
    first = _run(bench, *wanted)
    assert [message["id"] for message in _of(first, "changed")] == ["jetson:mode", "jetson:pinned", "jetson:fan"]
    assert (fake.mode, fake.is_pinned, fake.fan) == ("25W", True, "cool")
    fake.asked.clear()
    assert len(_of(_run(bench, *wanted), "ok")) == 3
    assert fake.asked == []


def test_a_mode_that_needs_a_reboot_is_skipped_and_asked_for_only_once(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench, live=("25W",))
    for _ in range(2):
        skipped = _of(_run(bench, Jetson("mode", "10W"), Jetson("fan", "cool")), "skipped")
        assert [message["id"] for message in skipped] == ["jetson:mode"]
        assert skipped[0]["reason"].startswith(f"{REBOOT}10W can be set only while the board boots")
        assert "power-apply --reboot" in skipped[0]["reason"]
    assert fake.asked.count("10W") == 1, "nothing prompts a board twice for what it refused"
    assert fake.fan == "cool", "what comes after it is done all the same"


def test_a_check_says_it_too_and_asks_nobody(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench, masks={"40W": 240, "10W": 252}, live=())
    told = _run(bench, Jetson("mode", "10W"), check=True)
    assert [message["id"] for message in _of(told, "would_change")] == ["jetson:mode"]
    assert _of(told, "note")[0]["words"] == "10W gates the GPU otherwise than 40W: the board may ask for a reboot first"
    assert fake.asked == []
    _run(bench, Jetson("mode", "10W"))
    told = _run(bench, Jetson("mode", "10W"), check=True)
    assert _of(told, "skipped")[0]["reason"].startswith(REBOOT)


def test_after_the_boot_it_is_tried_again(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench, live=())
    _run(bench, Jetson("mode", "10W"))
    bench.put("/proc/sys/kernel/random/boot_id", "boot-2\n")
    fake.mode = "10W"
    assert len(_of(_run(bench, Jetson("mode", "10W")), "ok")) == 1


def test_a_busy_gpu_is_a_failure_with_the_way_out(bench: strict.Bench) -> None:
    jetson_fake.Board(bench, answer=machines.Result(255, jetson_fake.BUSY.encode(), b""))
    problem = _of(_run(bench, Jetson("mode", "10W")), "failed")[0]["problem"]
    assert problem["code"] == "mode-failed"
    assert "tpc_pg_mask: 16" in problem["message"]
    assert "power-apply --reboot" in problem["hint"]
    assert _of(_run(bench, Jetson("mode", "10W")), "skipped")[0]["reason"].startswith(REBOOT), "a second run does not fail on it again"


def test_a_mode_that_the_board_does_not_have_fails_before_anything_is_touched(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench)
    failed = _of(_run(bench, Jetson("fan", "cool"), Jetson("mode", "30W")), "failed")
    assert failed[0]["problem"]["code"] == "mode-unknown"
    assert "MAXN_SUPER, 10W, 15W, 25W, 40W" in failed[0]["problem"]["hint"]
    assert (fake.fan, fake.asked) == ("quiet", [])


def test_fastest_is_the_mode_without_caps(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench)
    wanted = Jetson("mode", "fastest")
    _run(bench, wanted)
    assert fake.mode == "MAXN_SUPER"
    assert len(_of(_run(bench, wanted), "ok")) == 1


@pytest.mark.parametrize("setting", ["mode", "pinned", "fan"])
def test_what_is_no_jetson_has_none_of_it(bench: strict.Bench, setting: str) -> None:
    bench.folder("/etc")
    skipped = _of(_run(bench, Jetson(setting, "yes")), "skipped")
    assert skipped[0]["reason"] == "this is no Jetson: it has no power modes"


def test_missing_tools_are_reasons(bench: strict.Bench) -> None:
    bench.put("/etc/nv_tegra_release", jetson_fake.RELEASE)
    skipped = _of(_run(bench, Jetson("mode", "25W"), Jetson("pinned", "yes"), Jetson("fan", "cool")), "skipped")
    reasons = {message["id"]: message["reason"] for message in skipped}
    assert reasons["jetson:mode"].startswith("nvpmodel is not installed")
    assert reasons["jetson:pinned"].startswith("jetson_clocks is not installed")
    assert reasons["jetson:fan"] == fan.NONE


def test_what_a_container_refuses_is_remembered_for_this_release(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench, answer=machines.Result(0, b"Running in chroot, ignoring request.\n", b""))
    for _ in range(2):
        assert "from inside a container" in _of(_run(bench, Jetson("mode", "25W")), "skipped")[0]["reason"]
    assert fake.asked == ["25W"]
    bench.put("/etc/nv_tegra_release", "# R39 (release), REVISION: 2.0\n")
    fake.answer = None
    assert len(_of(_run(bench, Jetson("mode", "25W")), "changed")) == 1


def test_a_removal_returns_to_what_was_before_the_first_change(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench)
    wanted = (Jetson("mode", "25W"), Jetson("pinned", "yes"), Jetson("fan", "cool"))
    _run(bench, *wanted)
    _run(bench, Jetson("mode", "15W"), *wanted[1:])
    told = _run(bench)
    assert sorted(message["id"] for message in _of(told, "changed")) == ["jetson:fan", "jetson:mode", "jetson:pinned"]
    assert (fake.mode, fake.is_pinned, fake.fan) == ("40W", False, "quiet")
    assert generations.Owned.load(bench.machine).rows == {}


def test_what_was_never_changed_is_not_taken_back(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench, mode="25W")
    _run(bench, Jetson("mode", "25W"))
    told = _run(bench)
    assert "it was there before Wattherd" in _of(told, "skipped")[0]["reason"]
    assert fake.mode == "25W"


def test_a_removal_that_takes_a_boot_leaves_the_mode_to_the_next_one(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench)
    _run(bench, Jetson("mode", "10W"))
    fake.live = ()
    (skipped,) = _of(_run(bench), "skipped")
    assert skipped["reason"] == f"no longer wanted, but left as it is: {REBOOT}40W comes back with the next boot of this board"
    assert nvpmodel.status(bench.machine) == 4
    assert generations.Owned.load(bench.machine).rows == {}, "said once, and done with"


def test_a_removal_that_cannot_be_is_said(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench)
    _run(bench, Jetson("pinned", "yes"))
    bench.put("/proc/sys/kernel/random/boot_id", "boot-2\n")
    told = _run(bench)
    assert _of(told, "skipped")[0]["reason"].startswith(f"no longer wanted, but left as it is: {REBOOT}")
    assert fake.is_pinned


@pytest.mark.parametrize(("setting", "value"), [("volume", "11"), ("pinned", "maybe"), ("mode", "")])
def test_nonsense_is_no_resource(setting: str, value: str) -> None:
    with pytest.raises(errors.Problem) as caught:
        Jetson(setting, value)
    assert caught.value.code == "manifest-invalid"
