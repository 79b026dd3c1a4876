"""The node's lock: one writer at a time, who is named to the next; waited for by a session, passed over by the keeper."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest

from tests.node import strict
from wattherd import errors, store
from wattherd.node import turn


def test_who_has_it_is_in_the_file_and_the_keeper_does_not_wait(bench: strict.Bench) -> None:
    bench.folder("/run")
    with turn.taken(bench.machine, lambda _: None):
        assert bench.machine.text(store.LOCK) == str(os.getpid())
        with turn.if_free(bench.machine) as mine:
            assert mine is False
    with turn.if_free(bench.machine) as mine:
        assert mine is True


def test_a_session_waits_tells_for_whom_and_gives_up(bench: strict.Bench) -> None:
    bench.folder("/run")
    told: list[Mapping[str, Any]] = []
    with turn.if_free(bench.machine) as mine:
        assert mine
        began_s = bench.machine.monotonic_s()
        with pytest.raises(errors.Problem) as caught, turn.taken(bench.machine, told.append):
            raise AssertionError("nobody else may have it now")
    assert caught.value.code == "node-busy"
    assert f"process {os.getpid()}" in caught.value.message
    assert bench.machine.monotonic_s() - began_s >= turn.WAIT_S
    assert {one["id"] for one in told} == {"lock:node"}


def test_what_goes_wrong_in_a_turn_ends_it(bench: strict.Bench) -> None:
    bench.folder("/run")
    with pytest.raises(errors.Problem) as caught, turn.taken(bench.machine, lambda _: None):
        raise errors.Problem("disk-full", "no room")
    assert caught.value.code == "disk-full"
    with turn.if_free(bench.machine) as mine:
        assert mine is True
