"""A Jetson's mode, clocks and fan changed and taken back, on a board whose tools answer as the field's do."""

from __future__ import annotations

import pytest

from tests.node import strict
from tests.node.power import jetson_fake
from wattherd import errors
from wattherd import machine as machines
from wattherd.power import memory
from wattherd.power.jetson import change, clocks, conf, fan, nvpmodel, pending


def _before(bench: strict.Bench) -> object:
    return memory.before(bench.machine).get(memory.BOARD)


# -- the mode


def test_a_mode_is_set_by_name_and_what_was_before_is_remembered_once(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench)
    assert change.mode(bench.machine, "25W").done
    assert change.mode(bench.machine, "15W").done
    assert (fake.mode, fake.asked) == ("15W", ["25W", "15W"])
    assert _before(bench) == {"mode": "40W"}


def test_nothing_is_run_for_the_mode_that_it_is_in(bench: strict.Bench) -> None:
    """The prompt may appear even for the mode that is active."""
    fake = jetson_fake.Board(bench, mode="25W")
    assert change.mode(bench.machine, "25W").done
    assert fake.asked == []
    assert _before(bench) is None


def test_a_mode_for_which_it_must_boot_waits_for_that_boot(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench, live=("25W",))
    done = change.mode(bench.machine, "10W")
    assert done.kind == "reboot"
    assert (fake.mode, pending.mode(bench.machine)) == ("40W", "10W")
    bench.put("/proc/sys/kernel/random/boot_id", "boot-2\n")
    assert pending.mode(bench.machine) == "", "one of an earlier boot waits no more"


def test_a_mode_that_took_ends_the_waiting(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench, live=("25W",))
    change.mode(bench.machine, "10W")
    fake.live = None
    assert change.mode(bench.machine, "10W").done
    assert pending.mode(bench.machine) == ""


def test_a_busy_gpu_waits_for_a_reboot_too(bench: strict.Bench) -> None:
    jetson_fake.Board(bench, answer=machines.Result(255, jetson_fake.BUSY.encode(), b""))
    assert change.mode(bench.machine, "10W").kind == "busy"
    assert pending.mode(bench.machine) == "10W"


def test_pinned_clocks_are_freed_before_a_change_of_mode_and_pinned_after(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench)
    assert change.pinned(bench.machine, True).done
    fake.asked.clear()
    assert change.mode(bench.machine, "25W").done
    store = clocks.STORE
    assert fake.asked == [f"jetson_clocks --restore {store}", "25W", f"jetson_clocks --store {store}", "jetson_clocks"]
    assert fake.is_pinned


def test_clocks_that_somebody_else_pinned_stay_pinned_through_a_change_of_mode(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench)
    fake.set_clocks(1984000, 1984000)
    assert change.mode(bench.machine, "25W").done
    assert fake.asked == ["25W", "jetson_clocks"]


def test_an_unknown_mode_touches_nothing(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench)
    with pytest.raises(errors.Problem, match="no power mode 'TURBO'"):
        change.mode(bench.machine, "TURBO")
    assert fake.asked == []
    bench.runner.planned.clear()


def test_a_mode_goes_back_to_what_was_before_the_first_change(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench)
    change.mode(bench.machine, "25W")
    change.mode(bench.machine, "15W")
    done = change.back(bench.machine, "mode")
    assert done is not None
    assert done.done
    assert fake.mode == "40W"
    assert _before(bench) is None
    assert change.back(bench.machine, "mode") is None


def test_a_way_back_that_takes_a_boot_is_left_to_the_next_one(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench)
    change.mode(bench.machine, "10W")
    fake.live = ()
    done = change.back(bench.machine, "mode")
    assert done is not None
    assert done.kind == "reboot"
    assert change.at_next_boot(bench.machine) == "40W"
    assert nvpmodel.status(bench.machine) == 4
    assert _before(bench) is None


def test_a_mode_that_the_board_has_no_more_is_left(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench)
    change.mode(bench.machine, "25W")
    fake.modes = {"MAXN_SUPER": 0, "25W": 3}
    bench.put("/etc/nvpmodel.conf", fake.conf())
    done = change.back(bench.machine, "mode")
    assert done is not None
    assert done.words == "its nvpmodel.conf has no mode 40W any more"
    assert fake.mode == "25W"


# -- the clocks


def test_clocks_are_stored_before_they_are_pinned_and_freed_from_that(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench)
    bench.put(clocks.STORE, "of an earlier boot\n")  # the tool would ask whether it may overwrite it
    assert change.pinned(bench.machine, True).done
    assert fake.asked == [f"jetson_clocks --store {clocks.STORE}", "jetson_clocks"]
    assert clocks.pinned(bench.machine) is True
    assert change.pinned(bench.machine, False).done
    assert clocks.pinned(bench.machine) is False
    assert not bench.machine.exists(clocks.STORE)
    assert _before(bench) == {"pinned": False}


def test_pinned_clocks_are_never_stored(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench)
    fake.set_clocks(1984000, 1984000)
    assert change.pinned(bench.machine, True).done
    assert fake.asked == []
    bench.runner.planned.clear()


@pytest.mark.parametrize("since", ["never stored", "another boot", "another mode"])
def test_clocks_that_nobody_stored_are_freed_by_a_reboot_only(bench: strict.Bench, since: str) -> None:
    fake = jetson_fake.Board(bench)
    if since != "never stored":
        change.pinned(bench.machine, True)
    fake.set_clocks(1984000, 1984000)
    if since == "another boot":
        bench.put("/proc/sys/kernel/random/boot_id", "boot-2\n")
    if since == "another mode":
        fake.mode = "15W"
    fake.asked.clear()
    done = change.pinned(bench.machine, False)
    assert (done.kind, fake.asked) == ("reboot", [])
    assert "a reboot frees them" in done.words
    bench.runner.planned.clear()


def test_a_refusal_says_why(bench: strict.Bench) -> None:
    jetson_fake.Board(bench)
    bench.runner.planned = [one for one in bench.runner.planned if one.argv[0] != "jetson_clocks"]
    bench.runner.plan("jetson_clocks", strict.REST, code=1, out="Error: Run this script(/usr/bin/jetson_clocks) as a root user\n")
    done = change.pinned(bench.machine, True)
    assert (done.kind, done.words) == ("no-permission", "the clocks were not stored, so they were not pinned: jetson_clocks needs root")


def test_what_jetson_clocks_shows_counts_where_sysfs_has_nothing(bench: strict.Bench) -> None:
    bench.put("/usr/bin/jetson_clocks", mode=0o755)
    shown = (
        "SOC family:tegra210  Machine:NVIDIA Jetson Nano Developer Kit\nOnline CPUs: 0-1\n"
        "cpu0: Online=1 Governor=schedutil MinFreq={least} MaxFreq=1428000 CurrentFreq=1428000 IdleStates: WFI=0 c7=0 \n"
        "cpu2: Online=0 Governor=schedutil MinFreq=102000 MaxFreq=1428000 CurrentFreq=921600 IdleStates: WFI=1 c7=1 \n"
        "GPU MinFreq={least}000 MaxFreq=1428000000 CurrentFreq=921600000\n"
        "EMC MinFreq=204000000 MaxFreq=1600000000 CurrentFreq=1600000000 FreqOverride=1\nNV Power Mode: MAXN\n"
    )
    bench.runner.plan("jetson_clocks", "--show", out=shown.format(least=1428000))
    bench.runner.plan("jetson_clocks", "--show", out=shown.format(least=102000))
    bench.runner.plan("jetson_clocks", "--show", code=1, out="Error: Run this script as a root user\n")
    assert [clocks.pinned(bench.machine) for _ in range(3)] == [True, False, None]


# -- the fan


def test_a_fan_profile_is_written_behind_the_link_and_read_back(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench)
    assert change.profile(bench.machine, "cool").done
    assert (fake.fan, fake.asked) == ("cool", ["systemctl stop", "systemctl start"])
    assert bench.machine.readlink("/etc/nvfancontrol.conf") == "nvpower/nvfancontrol/board.conf"
    text = bench.machine.text("/etc/nvpower/nvfancontrol/board.conf")
    assert text == jetson_fake.FAN_CONF.replace("FAN_DEFAULT_PROFILE quiet", "FAN_DEFAULT_PROFILE cool")
    assert _before(bench) == {"fan": "quiet"}
    fake.asked.clear()
    assert change.profile(bench.machine, "cool").done
    assert fake.asked == []


def test_a_profile_that_does_not_take_puts_the_file_back_and_the_fan_runs(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench, fan_stuck=True)
    done = change.profile(bench.machine, "cool")
    assert (done.kind, done.words) == ("failed", "the fan's profile is still quiet")
    assert bench.machine.text("/etc/nvpower/nvfancontrol/board.conf") == jetson_fake.FAN_CONF
    assert fake.asked[-1] == "systemctl restart"
    assert fake.fan_running


def test_the_fan_runs_again_although_the_file_could_not_be_written(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = jetson_fake.Board(bench)

    def refuse(*_given: object, **_named: object) -> None:
        raise errors.Problem("disk-full", "no space left")

    monkeypatch.setattr(bench.machine, "write", refuse)
    with pytest.raises(errors.Problem, match="no space left"):
        fan.put(bench.machine, "cool")
    assert fake.fan_running
    assert fake.asked == ["systemctl stop", "systemctl start"]


def test_an_unknown_profile_names_those_that_there_are(bench: strict.Bench) -> None:
    jetson_fake.Board(bench)
    with pytest.raises(errors.Problem) as caught:
        fan.put(bench.machine, "silent")
    assert (caught.value.code, caught.value.hint) == ("mode-unknown", "it has: cool, quiet")


def test_jetpack_4_has_a_fan_mode_of_nvpmodel(bench: strict.Bench) -> None:
    bench.put("/usr/sbin/nvpmodel", mode=0o755)
    said = "NV Fan Mode:{}\nNV Power Mode: MAXN\n0\n"
    bench.runner.plan("nvpmodel", "-q", out=said.format("quiet"))
    bench.runner.plan("nvpmodel", "-d", "cool")
    bench.runner.plan("nvpmodel", "-q", out=said.format("cool"), times=None)
    assert fan.put(bench.machine, "cool").done
    assert ("nvpmodel", "-d", "cool") in bench.runner.commands


def test_a_fan_mode_that_was_never_set_can_be_set(bench: strict.Bench) -> None:
    bench.folder("/run")
    bench.put("/usr/sbin/nvpmodel", mode=0o755)
    unset = "NVPM WARN: fan mode is not set!\nNV Power Mode: MODE_15W\n2\n"
    bench.runner.plan("nvpmodel", "-q", out=unset, times=2)
    bench.runner.plan("nvpmodel", "-d", "quiet")
    bench.runner.plan("nvpmodel", "-q", out="NV Fan Mode:quiet\nNV Power Mode: MODE_15W\n2\n", times=None)
    assert change.profile(bench.machine, "quiet").done
    done = change.back(bench.machine, "fan")
    assert done is not None
    assert (done.kind, done.words) == ("unsupported", "what its fan was before is not known: it stays as it is")
    assert _before(bench) is None


def test_a_board_without_profiles_says_so(bench: strict.Bench) -> None:
    bench.put("/usr/sbin/nvpmodel", mode=0o755)
    bench.runner.plan("nvpmodel", "-q", out="NV Power Mode: MAXN\n0\n", times=None)
    done = fan.put(bench.machine, "cool")
    assert (done.kind, done.words) == ("unsupported", fan.NONE)


def test_the_fan_goes_back(bench: strict.Bench) -> None:
    fake = jetson_fake.Board(bench)
    change.profile(bench.machine, "cool")
    done = change.back(bench.machine, "fan")
    assert done is not None
    assert done.done
    assert fake.fan == "quiet"


def test_conf_without_a_file_is_empty(bench: strict.Bench) -> None:
    assert conf.read(bench.machine) == conf.Conf()
    bench.runner.planned.clear()
