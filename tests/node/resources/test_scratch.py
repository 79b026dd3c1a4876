"""Folders of the program cache for a while: gone afterwards, and what killed processes left goes with the next one."""

from __future__ import annotations

import os

import pytest

from tests.node import strict
from wattherd.resources import scratch

_DEAD = 4_194_305  # above what Linux gives


def test_it_is_gone_afterwards_also_after_a_failure(bench: strict.Bench) -> None:
    def fail() -> None:
        with scratch.folder(bench.machine, "trial", "b11434") as path:
            bench.put(f"{path}/bin/x")
            raise ValueError(path)

    with pytest.raises(ValueError, match=f"^/var/cache/wattherd/trial-b11434-{os.getpid()}$"):
        fail()
    assert bench.machine.names(scratch.CACHE) == []


def test_what_a_killed_process_left_goes_and_nothing_else(bench: strict.Bench) -> None:
    alive = os.getppid()
    bench.folder(f"/proc/{alive}")
    for name in (f"trial-b1-{_DEAD}", f"trial-b2-{alive}", f"haproxy-{_DEAD}", "trial-notes", "help"):
        bench.put(f"{scratch.CACHE}/{name}/x")
    with scratch.folder(bench.machine, "trial", "b1"):
        assert sorted(bench.machine.names(scratch.CACHE)) == sorted([f"trial-b2-{alive}", f"haproxy-{_DEAD}", "trial-notes", "help"])
    with scratch.folder(bench.machine, "haproxy"):
        assert f"haproxy-{_DEAD}" not in bench.machine.names(scratch.CACHE)
