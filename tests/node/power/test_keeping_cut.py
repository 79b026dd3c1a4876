"""A keeper that is killed at any step: the next rounds bring the node to where it would have been, and count a drift once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.node import strict
from tests.node.power.keeping import A, Node
from tests.node.resources.cases import program as cases
from wattherd.power import health, memory, pending, wanted
from wattherd.resources import power, program


class Cut(BaseException):
    """Stands for kill -9: nothing catches it."""


def _cut_at(node: Node, step: int, monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> bool:
    """`work` ends at the `step`-th thing that it does to the world, before or after it was done. True when it was cut."""
    left = [step]
    machine = node.bench.machine

    def count() -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Cut

    for name in ("write", "unlink", "run", "rename", "symlink", "remove_tree"):
        real = getattr(machine, name)

        def wrapped(*words: Any, _real: Any = real, **more: Any) -> Any:
            count()
            done = _real(*words, **more)
            count()
            return done

        monkeypatch.setattr(machine, name, wrapped)
    try:
        work()
    except Cut:
        return True
    finally:
        monkeypatch.undo()
        node.killed()
    return False


@pytest.mark.parametrize("what", ["drift", "boot", "policy", "first policy back", "policy back"])
def test_killed_at_any_step_the_next_rounds_converge(tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cut in turn, each on a node of its own; afterwards all is as without a cut, and a drift is counted once."""
    for step in range(1, 200):
        node = _node(tmp_path / str(step))
        expected = _arrange(node, what)
        cut = _cut_at(node, step, monkeypatch, node.keeper.round)
        node.round(3)
        _check(node, what, expected)
        if not cut:
            assert step > 4, "the round did too little to be worth a cut"
            return
    raise AssertionError("the round never came to its end")


def _arrange(node: Node, what: str) -> float:
    one = node.begin(limit_w=200.0, persistence=True) if what != "first policy back" else node.cards.cards[0]
    if what == "drift":
        one.requested_w = 280.0
        return 200.0
    if what == "boot":
        node.cards.reboot()
        return 200.0
    if what == "policy":
        node.policy(limit_w=150.0)
        return 150.0
    one.requested_w = one.requested_w if what == "policy back" else 330.0
    text = wanted.encode(wanted.Policy({A: wanted.CardPolicy(limit_w=120.0, clocks_mhz=(0, 900))}, confirm_s=30))
    pending.begin(node.bench.machine, text, health.Vitals())
    node.bench.put(wanted.POLICY, text)
    node.round(1)
    assert one.requested_w == 120.0
    node.bench.machine.wait(60.0)
    return 200.0 if what == "policy back" else 330.0


def _check(node: Node, what: str, expected_w: float) -> None:
    one = node.cards.cards[0]
    assert one.requested_w == expected_w
    if what == "drift":
        assert node.drifted().total == 1
        assert not node.drifted().is_open
    elif what == "boot":
        assert node.record.drifts == ()
    if what.endswith("back"):
        assert one.locked_mhz is None
        assert pending.waiting(node.bench.machine) is None
        assert not node.bench.machine.exists(pending.PLACE)
        assert node.record.put_back is not None
        assert (pending.current(node.bench.machine) is None) == (what == "first policy back")
        owned = memory.before(node.bench.machine)
        assert (A in owned) == (what == "policy back")
    assert node.record.conflicts == ()


def _node(root: Path) -> Node:
    root.mkdir()
    runner = strict.Runner()
    runner.plan("systemctl", "show", strict.REST, times=None)
    return Node(strict.Bench(strict.Machine(str(root), runner), runner))


def _apply(node: Node) -> None:
    """What a session does to bring a new policy, until its controller is killed."""
    bench = node.bench
    text = wanted.encode(wanted.Policy({A: wanted.CardPolicy(limit_w=150.0, clocks_mhz=(0, 900))}, confirm_s=30))
    power.PowerPolicy(text).fix(bench.machine, {}, bench.tell)
    power.Power(A, "limit_w", (150.0,)).fix(bench.machine, {}, bench.tell)
    power.Power(A, "clocks_mhz", (0.0, 900.0)).fix(bench.machine, {}, bench.tell)


def test_a_session_killed_at_any_step_of_a_new_policy_ends_with_the_confirmed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(1, 200):
        node = _node(tmp_path / str(step))
        one = node.begin(limit_w=200.0, persistence=True)
        old = pending.current(node.bench.machine)
        cut = _cut_at(node, step, monkeypatch, lambda: _apply(node))  # noqa: B023 - used at once
        node.round()
        node.bench.machine.wait(31.0)
        node.round(3)
        assert (one.requested_w, one.locked_mhz) == (200.0, None), step
        assert pending.current(node.bench.machine) == old
        assert not node.bench.machine.exists(pending.PLACE)
        assert node.record.drifts == ()
        if not cut:
            assert step > 10
            return
    raise AssertionError("it never came to its end")


def test_a_program_that_was_killed_at_any_step_of_its_coming_comes_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(1, 200):
        node = _node(tmp_path / str(step))
        bench = node.bench
        cases.brought(bench, "one").fix(bench.machine, {}, bench.tell)
        one = cases.brought(bench, "two")
        cut = _cut_at(node, step, monkeypatch, lambda: one.fix(bench.machine, {}, bench.tell))  # noqa: B023 - used at once
        led = bench.machine.readlink(program.CURRENT)
        assert led is not None
        assert program.is_whole(bench.machine, led), "what is in use is whole at any moment"
        one.fix(bench.machine, {}, bench.tell)
        assert one.actual(bench.machine) == one.wanted()
        assert not [name for name in bench.machine.names(program.HOME) if name.startswith(".")]
        if not cut:
            assert step > 4
            bench.runner.planned.clear()
            return
    raise AssertionError("it never came to its end")
