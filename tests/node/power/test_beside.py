"""A real child: its lines with their times, its end, and that it does not outlive its reader."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
import time

from wattherd.power import beside

RUNS = "for i in 1 2 3; do echo \"run $i\" >&2; sleep 0.1; done; echo 'error: no memory' >&2; exit 3"


def wait_for_end(one: beside.Beside, limit_s: float = 5.0) -> None:
    ends_s = time.monotonic() + limit_s
    while one.code is None and time.monotonic() < ends_s:
        time.sleep(0.01)


def test_lines_have_the_second_at_which_they_came() -> None:
    one = beside.Beside(["sh", "-c", RUNS], beside.environment({}), time.monotonic, lambda line: line.startswith("run"))
    wait_for_end(one)
    one.stop()
    assert one.code == 3
    assert [line for _, line in one.lines] == ["run 1", "run 2", "run 3"]
    times = [at_s for at_s, _ in one.lines]
    assert 0.15 < times[2] - times[0] < 2.0
    assert one.words == "error: no memory"


def test_it_ends_when_told() -> None:
    one = beside.Beside(["sleep", "60"], beside.environment({}), time.monotonic, lambda _line: True)
    assert one.code is None
    one.stop()
    assert one.code == -signal.SIGTERM


def test_one_that_does_not_listen_is_killed() -> None:
    script = "trap '' TERM; echo ready >&2; while :; do sleep 0.05; done"
    one = beside.Beside(["sh", "-c", script], beside.environment({}), time.monotonic, lambda _line: True)
    ends_s = time.monotonic() + 5
    while not one.lines and time.monotonic() < ends_s:
        time.sleep(0.01)
    beside._ENDS_S, kept = 0.3, beside._ENDS_S
    try:
        one.stop()
    finally:
        beside._ENDS_S = kept
    assert one.code == -signal.SIGKILL


def test_it_does_not_outlive_a_reader_that_was_killed() -> None:
    """kill -9 of the session: the load's next line finds nobody, and ends it."""
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1])\n"
        "from wattherd.power import beside\n"
        "one = beside.Beside(['sh', '-c', 'while :; do echo $$ >&2; sleep 0.05; done'], beside.environment({}), time.monotonic, "
        "lambda line: True)\n"
        "while not one.lines: time.sleep(0.01)\n"
        "print(one.lines[0][1], flush=True)\n"
        "time.sleep(60)\n"
    )
    root = pathlib.Path(beside.__file__).resolve().parents[2]
    with subprocess.Popen([sys.executable, "-c", code, str(root)], stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        child = pathlib.Path(f"/proc/{int(reader.stdout.readline())}")
        assert child.exists()
        reader.kill()
        reader.wait()
    ends_s = time.monotonic() + 5
    while child.exists() and time.monotonic() < ends_s:
        time.sleep(0.02)
    assert not child.exists()
