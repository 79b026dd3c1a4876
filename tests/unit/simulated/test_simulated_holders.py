"""Who holds which card: CUDA_VISIBLE_DEVICES as CUDA reads it, and real processes of this machine."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.lab.simulated import holders

UUIDS = ("GPU-aaaa-1", "GPU-aabb-2", "GPU-cccc-3")


def process(shown: tuple[str, ...] | None) -> holders.Process:
    return holders.Process(1, 1, 0, "llama-server", 2, shown)


@pytest.mark.parametrize(
    ("shown", "indices"),
    [
        (None, (0, 1, 2)),
        ((), ()),
        (("-1",), ()),
        (("1",), (1,)),
        (("2", "0"), (2, 0)),
        (("GPU-cccc-3",), (2,)),
        (("GPU-cc",), (2,)),
        (("GPU-aa",), ()),
        (("0", "7", "1"), (0,)),
        (("1", "1"), (1,)),
    ],
)
def test_cuda_takes_the_list_until_the_first_that_it_does_not_know(shown: tuple[str, ...] | None, indices: tuple[int, ...]) -> None:
    assert holders.chosen(process(shown), UUIDS) == indices


def test_a_program_of_llama_cpp_is_met_by_its_name_and_holds_once_it_is_large(tmp_path: Path) -> None:
    program = tmp_path / "llama-bench"
    program.symlink_to(sys.executable)
    large = "import time; kept = bytearray(200 << 20); print(flush=True); time.sleep(60)"
    watch = holders.Watch()
    with subprocess.Popen([program, "-c", large, "--threads", "1"], stdout=subprocess.PIPE, env={"CUDA_VISIBLE_DEVICES": "1"}) as running:
        assert running.stdout
        running.stdout.readline()
        watch.look(time.monotonic())
        watch.look(time.monotonic())
        (found,) = [one for one in watch.known.values() if one.pid == running.pid]
        assert (found.inside, found.threads, found.cards, found.loaded) == (running.pid, 1, ("1",), True)
        assert found in watch.of(Path("/").stat().st_dev)
        running.kill()
    watch.look(time.monotonic())
    assert running.pid not in watch.known


def test_a_busy_process_is_busy_and_an_idle_one_is_not() -> None:
    watched = holders.Process(1, 1, 0, "x", 1, None)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as running:
        watched.pid = running.pid
        until = time.monotonic() + 10
        while watched.busy < 0.5 and time.monotonic() < until:
            assert watched.read(time.monotonic())
            time.sleep(0.1)  # the kernel's own count of its time is what is waited for
        running.kill()
    assert watched.busy >= 0.5
