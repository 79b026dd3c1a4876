"""Who else could have set the cards: by process, unit, timer and cron entry, whatever it is called, and never ourselves."""

from __future__ import annotations

import os

import pytest

from tests.node import strict
from wattherd.power import writers


def process(bench: strict.Bench, pid: int, *words: str, unit: str = "", maps: str = "", cwd: str = "") -> None:
    bench.put(f"/proc/{pid}/cmdline", "\0".join(words) + "\0")
    bench.put(f"/proc/{pid}/cgroup", f"0::/system.slice/{unit}\n" if unit else "0::/user.slice/user-1000.slice/session-3.scope\n")
    bench.put(f"/proc/{pid}/maps", maps)
    if cwd:
        bench.link(f"/proc/{pid}/cwd", cwd)


def found(bench: strict.Bench) -> dict[str, writers.Writer]:
    return {one.name: one for one in writers.find(bench.machine)}


def test_nobody_is_named_where_nobody_is(bench: strict.Bench) -> None:
    process(bench, 10, "/usr/bin/python3", "/srv/app.py")
    process(bench, 11, "nvidia-smi", "dmon")
    process(bench, 12, "watch", "-n1", "nvidia-smi")
    assert found(bench) == {}


@pytest.mark.parametrize("name", ["nvidia-powerd", "lactd", "gpud", "nvidia-pstated", "gppmd"])
def test_tools_that_set_cards_by_themselves_are_known_by_name(bench: strict.Bench, name: str) -> None:
    process(bench, 10, f"/usr/bin/{name}", "daemon", unit=f"{name}.service")
    assert found(bench)[f"{name}.service"].how == f"{name} sets cards by itself (process 10)"


def test_tuned_runs_in_python_and_is_known_by_its_unit(bench: strict.Bench) -> None:
    process(bench, 10, "/usr/bin/python3", "-Es", "/usr/sbin/tuned", "-l", unit="tuned.service")
    assert list(found(bench)) == ["tuned.service"]


def test_a_loop_on_a_command_line_is_named_with_what_it_runs(bench: strict.Bench) -> None:
    process(bench, 10, "/bin/sh", "-c", "while :; do nvidia-smi -i 0 -pl 280; sleep 1; done", unit="cap.service")
    one = found(bench)["cap.service"]
    assert "nvidia-smi -i 0 -pl 280" in one.how
    assert (one.lives, one.sure) == (True, True)


def test_only_the_call_that_sets_something_is_repeated_and_nothing_beside_it(bench: strict.Bench) -> None:
    """Journal, doctor and power-status show it: a password on the same command line is not theirs to tell."""
    line = "curl -H 'Authorization: Bearer s3cret' http://a/; nvidia-smi -L | wc; nvidia-smi -i 0 -pl 280 && PASSWORD=s3cret report"
    process(bench, 10, "/bin/sh", "-c", line)
    assert found(bench)["process 10 (sh)"].how == "process 10 runs: nvidia-smi -i 0 -pl 280"


def test_a_script_is_read_by_its_whole_path_and_from_where_it_runs(bench: strict.Bench) -> None:
    bench.put("/opt/cap.sh", "#!/bin/sh\nwhile :; do\n  nvidia-smi --power-limit=280\ndone\n")
    process(bench, 10, "/bin/bash", "/opt/cap.sh")
    process(bench, 11, "bash", "./cap.sh", cwd="/opt")
    assert list(found(bench)) == ["process 10 (bash)", "process 11 (bash)"]


def test_a_program_that_only_has_the_library_is_a_suspect_where_there_is_no_better(bench: strict.Bench) -> None:
    process(bench, 10, "/usr/bin/nvtop", maps="7f0 r-xp 0 0 0 /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05\n")
    assert found(bench)["process 10 (nvtop)"].sure is False
    process(bench, 11, "nvidia-smi", "-pl", "280")
    assert list(found(bench)) == ["process 11 (nvidia-smi)"]


def test_cron_rc_local_and_units_with_a_timer_come_again_and_a_unit_alone_does_not(bench: strict.Bench) -> None:
    bench.put("/etc/cron.d/gpu", "*/5 * * * * root nvidia-smi -i 0 -pl 280\n")
    bench.put("/etc/rc.local", "#!/bin/sh\nnvidia-smi -pm 1\nnvidia-smi -pl 280\n")
    bench.put("/usr/local/bin/gpu-cap", "#!/bin/sh\nexec nvidia-smi -pl 280\n")
    bench.put("/etc/systemd/system/night.service", "[Service]\nExecStart=/usr/local/bin/gpu-cap\n")
    bench.put("/etc/systemd/system/night.timer", "[Timer]\nOnCalendar=22:00\n")
    bench.put("/etc/systemd/system/boot.service", "[Service]\nExecStart=/usr/bin/nvidia-smi -i 0 -pl 300\n")
    bench.put("/etc/systemd/system/plain.service", "[Service]\nExecStart=/usr/bin/nvidia-smi -q\n")
    assert {name: one.lives for name, one in found(bench).items()} == {
        "/etc/cron.d/gpu": True,
        "/etc/rc.local": True,
        "night.service": True,
        "boot.service": False,
    }


def test_we_are_never_our_own_suspect(bench: strict.Bench) -> None:
    loaded = "7f0 r-xp 0 0 0 /usr/lib/libnvidia-ml.so.1\n"
    process(bench, os.getpid(), "nvidia-smi", "-pl", "280")
    process(bench, 10, "/usr/bin/python3", "-c", "keep", "/opt/wattherd/program/current", maps=loaded)
    process(bench, 11, "nvidia-smi", "-pl", "200", unit="wattherd-keeper.service")
    bench.put("/etc/systemd/system/wattherd-keeper.service", "[Service]\nExecStart=nvidia-smi -pl 200\n")
    assert found(bench) == {}


def test_what_a_process_calls_itself_is_one_bounded_plain_line(bench: strict.Bench) -> None:
    process(bench, 10, "nvidia-smi", "-pl", "280", "\x1b[31m\n" + "x" * 5000, "--api-key=hunter2hunter2hunter2")
    one = found(bench)["process 10 (nvidia-smi)"]
    assert one.how.isprintable()
    assert len(one.how) <= 160
