"""Programs that do not end in time: asked, killed, and where nothing helps, left behind without a wait."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import sys
import time
from collections.abc import Iterator

import pytest

from wattherd import machine as machines

#: cgroup version 1: a process in a frozen group does not even die of SIGKILL, as one that waits in the kernel.
FREEZER = pathlib.Path("/sys/fs/cgroup/freezer")


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


def run(argv: list[str], timeout_s: float) -> tuple[machines.Result, float]:
    began_s = time.monotonic()
    done = machines.run_program(argv, None, dict(os.environ), timeout_s)
    return done, time.monotonic() - began_s


def test_what_ends_in_time_is_given_whole() -> None:
    done = machines.run_program(["cat"], b"x" * 300_000, dict(os.environ), 20)
    assert (done.code, len(done.out), done.left_pid) == (0, 300_000, None)


def held(code: str, timeout_s: float) -> tuple[machines.Result, float]:
    """As a probe runs: with a lock in its hands."""
    reading, writing = os.pipe()
    began_s = time.monotonic()
    try:
        done = machines.run_program(python(code), None, dict(os.environ), timeout_s, (writing,))
    finally:
        os.close(reading)
        os.close(writing)
    return done, time.monotonic() - began_s


def test_a_probe_is_heard_to_its_end_on_both_pipes() -> None:
    done, _ = held("import sys; sys.stderr.write('e' * 200_000); sys.stdout.write('o' * 3_000_000); sys.exit(4)", 20)
    assert (done.code, len(done.out), len(done.err)) == (4, 3_000_000, 200_000)


def test_a_probe_that_never_stops_talking_is_ended_and_takes_no_memory() -> None:
    done, took_s = held("while True: print('GPU is lost ' * 5000)", 60)
    assert (done.code, done.out) == (125, b"")
    assert b"more than 4 MiB of words" in done.err
    assert took_s < 20


def test_a_probe_that_says_something_and_hangs_is_not_waited_for() -> None:
    done, took_s = held("import time; print('All done.', flush=True); time.sleep(60)", 0.5)
    assert (done.code, done.out) == (124, b"All done.\n")
    assert took_s < 10
    quiet, _ = held("import os, time; os.close(1); os.close(2); time.sleep(60)", 0.5)
    assert quiet.code == 124, "closed pipes are no end"


def test_a_program_that_is_not_there() -> None:
    assert machines.run_program(["no-such-program-here"], None, {}, 5).code == 127


def test_what_ends_when_asked_keeps_what_it_said() -> None:
    done, took_s = run(python("import time; print('before', flush=True); time.sleep(60)"), 1)
    assert (done.code, done.text, done.left_pid) == (124, "before\n", None)
    assert "no end after 1 s" in done.words
    assert took_s < 3


def test_one_that_ignores_the_asking_is_killed() -> None:
    code = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid(), flush=True); time.sleep(60)"
    done, took_s = run(python(code), 1)
    assert done.code == 124
    assert took_s < 4
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.text), 0)


def test_a_pipe_that_a_grandchild_holds_is_not_waited_for() -> None:
    done, took_s = run(["sh", "-c", "sleep 30 & echo $!; exec sleep 30"], 1)
    assert done.code == 124
    assert took_s < 3
    os.kill(int(done.text), signal.SIGKILL)


@pytest.fixture
def frozen_group() -> Iterator[pathlib.Path]:
    if os.geteuid() != 0 or not (FREEZER / "cgroup.procs").exists():
        pytest.skip("needs root and the freezer of cgroup version 1")
    group = FREEZER / f"wattherd-test-{os.getpid()}"
    group.mkdir()
    yield group
    (group / "freezer.state").write_text("THAWED")
    until_s = time.monotonic() + 10
    while (group / "cgroup.procs").read_text().strip() and time.monotonic() < until_s:
        time.sleep(0.02)  # its one member dies of the signal that it was sent while frozen
    group.rmdir()


def test_one_that_cannot_be_killed_is_left_behind(frozen_group: pathlib.Path) -> None:
    freeze = (
        f"import os, time; open('{frozen_group}/cgroup.procs', 'w').write(str(os.getpid())); "
        f"print(os.getpid(), flush=True); open('{frozen_group}/freezer.state', 'w').write('FROZEN'); time.sleep(60)"
    )
    done, took_s = run(python(freeze), 1)
    assert (done.code, str(done.left_pid)) == (124, done.text.strip())
    assert f"process {done.left_pid} cannot be killed" in done.words
    assert took_s < 5
    assert done.left_pid is not None
    os.kill(done.left_pid, 0)
    with contextlib.suppress(ChildProcessError):
        assert os.waitpid(done.left_pid, os.WNOHANG)[0] == 0, "it is alive, and nobody waits for it"
