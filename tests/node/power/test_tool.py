"""One probe at a time, with a hard limit: real programs that hold the lock, end late, or never end."""

from __future__ import annotations

import fcntl
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests import power_cases
from tests.node import strict
from wattherd import errors
from wattherd import machine as machines
from wattherd.power import tool


@pytest.fixture
def node(tmp_path: pathlib.Path) -> machines.Machine:
    """A node whose programs are real, and whose /proc is this machine's."""
    root = tmp_path / "node"
    (root / "run").mkdir(parents=True)
    (root / "proc").symlink_to("/proc")
    return machines.Machine(str(root))


def holding(node: machines.Machine, code: str = "") -> subprocess.Popen[bytes]:
    """A process that holds the node's lock until it is killed, as a probe does that is stuck."""
    lock = node.path(tool.LOCK)
    hold = f"import fcntl, time; handle = open({lock!r}, 'a'); fcntl.flock(handle, fcntl.LOCK_EX); print(flush=True); "
    process = subprocess.Popen(python(hold + (code or "time.sleep(60)")), stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.fixture
def stuck(node: machines.Machine) -> Iterator[subprocess.Popen[bytes]]:
    process = holding(node)
    yield process
    process.kill()
    process.communicate()


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


def test_a_probe_holds_the_lock_for_as_long_as_it_lives(node: machines.Machine) -> None:
    told = tool.probe(node, python("import os; print(*[os.path.realpath(f'/proc/self/fd/{one}') for one in range(20)])"))
    assert node.path(tool.LOCK) in told.text
    with open(node.path(tool.LOCK)) as free:
        fcntl.flock(free, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_next_probe_waits_its_turn(node: machines.Machine) -> None:
    process = holding(node, "time.sleep(0.5)")
    began_s = time.monotonic()
    assert tool.probe(node, python("print('mine')"), limit_s=10).text == "mine\n"
    assert time.monotonic() - began_s < 5
    assert process.wait() == 0
    process.communicate()


def test_a_probe_that_does_not_end_is_a_driver_that_is_silent(node: machines.Machine) -> None:
    began_s = time.monotonic()
    with pytest.raises(errors.Problem) as caught:
        tool.probe(node, python("import time; time.sleep(60)"), limit_s=1)
    assert caught.value.code == "driver-silent"
    assert "did not end in 1 s" in caught.value.message
    assert time.monotonic() - began_s < 4


def test_no_second_probe_starts_while_one_is_stuck(node: machines.Machine, stuck: subprocess.Popen[bytes], tmp_path: pathlib.Path) -> None:
    trace = tmp_path / "started"
    with pytest.raises(errors.Problem) as caught:
        tool.probe(node, ["touch", str(trace)], limit_s=1)
    assert caught.value.code == "driver-silent"
    assert re.search(rf"process {stuck.pid} \(python.*\) asks it since \d{{4}}-\d\d-\d\d ", caught.value.message)
    assert f"kill {stuck.pid} ends it" in caught.value.hint, "it sleeps, so nobody has to reboot for it"
    assert caught.value.context["pid"] == stuck.pid
    assert not trace.exists()


def test_plan_smi_hangs(bench: strict.Bench) -> None:
    """plan-smi-hangs: state D, deaf to signals. It is named with its state and since when, at once, and nothing is started beside it."""
    assert "does not start a second probe while the first is stuck" in power_cases.case("plan-smi-hangs").expect
    bench.put(tool.LOCK)
    bench.put("/proc/uptime", "5000.00 9000.00\n")
    ticks = os.sysconf("SC_CLK_TCK")
    bench.put("/proc/4711/stat", f"4711 (nvidia-smi) D 1 {'0 ' * 17}{(5000 - 600) * ticks} 0 0\n")
    bench.folder("/proc/4711/fd")
    os.link(bench.machine.path(tool.LOCK), bench.machine.path("/proc/4711/fd/3"))
    began_s = bench.machine.clock_s
    with open(bench.machine.path(tool.LOCK)) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(errors.Problem) as caught:
            tool.smi(bench.machine, ["-L"])
    assert caught.value.code == "driver-silent"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(began_s - 600))
    assert f"process 4711 (nvidia-smi) asks it since {since} UTC and waits in the kernel (state D)" in caught.value.message
    assert "reboot" in caught.value.hint
    assert bench.machine.clock_s == began_s, "nobody waits for what cannot end"
    assert bench.runner.commands == []


def test_a_keeper_that_is_old_and_starts_a_probe_is_not_a_stuck_one(bench: strict.Bench) -> None:
    """Whoever starts a probe has the lock open for a moment too, and may be months old."""
    bench.put(tool.LOCK)
    bench.put("/proc/uptime", "9000000.00 1.00\n")
    bench.put("/proc/900/stat", f"900 (python3) S 1 {'0 ' * 17}100 0 0\n")
    bench.folder("/proc/900/fd")
    os.link(bench.machine.path(tool.LOCK), bench.machine.path("/proc/900/fd/3"))
    bench.runner.plan("nvidia-smi", "-L", out="GPU 0: one\n")
    held = open(bench.machine.path(tool.LOCK))  # noqa: SIM115 - let go in the middle of the wait
    fcntl.flock(held, fcntl.LOCK_EX)
    bench.machine.on_wait = lambda: held.close() if len(bench.machine.waits) == 5 else None
    assert tool.smi(bench.machine, ["-L"]).text == "GPU 0: one\n"


def test_the_limit_counts_from_the_start_of_the_wait(bench: strict.Bench) -> None:
    bench.put(tool.LOCK)
    began_s = bench.machine.clock_s
    with open(bench.machine.path(tool.LOCK)) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(errors.Problem, match="another probe of the cards did not end in 20 s"):
            tool.smi(bench.machine, ["-L"])
    assert 19 < bench.machine.clock_s - began_s < 21


def test_a_tool_that_is_missing_is_an_answer(bench: strict.Bench) -> None:
    bench.runner.plan("nvidia-smi", "-L", code=127, err="nvidia-smi: not found")
    assert tool.smi(bench.machine, ["-L"]).code == 127


def test_a_probe_that_cannot_be_killed_keeps_the_lock(node: machines.Machine) -> None:
    """What a stuck child does: it outlives its starter, and the file that it inherited stays locked."""
    code = "import os, time; pid = os.fork(); print(pid, flush=True) if pid else (os.close(1), os.close(2), time.sleep(60))"
    child = int(tool.probe(node, python(code), limit_s=10).text)
    try:
        with open(node.path(tool.LOCK)) as mine, pytest.raises(BlockingIOError):
            fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.kill(child, signal.SIGKILL)
