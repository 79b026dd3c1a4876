"""What the node keeps about power, after an editor, a full disk or another version was at it: nobody falls down, nothing good is lost."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
from collections.abc import Callable

import pytest

from tests.node import strict
from tests.node.power import fake
from tests.node.power.keeping import A, B, Node, card
from wattherd import errors
from wattherd.node import keep, restoring
from wattherd.power import drift, empty, look, memory, pending, settle, tuning_record, wanted

GOOD = {A: {"limit_w": [300.0]}}
NOT_OURS = {
    "empty": b"",
    "no object": b"[]",
    "a number": b"5",
    "nothing": b"null",
    "half of it": json.dumps(GOOD).encode()[:20],
    "no text": b"\xff\xfe\x00\x01",
    "no end of brackets": b"[" * 100_000,
    "no list": json.dumps({A: {"limit_w": 300}}).encode(),
    "no value": json.dumps({A: {"limit_w": [], "persistence": [], "clocks_mhz": [1400.0]}}).encode(),
    "too many": json.dumps({A: {"limit_w": [1.0, 2.0]}}).encode(),
    "words": json.dumps({A: {"limit_w": ["abc"]}}).encode(),
    "no number": f'{{"{A}": {{"limit_w": [NaN]}}}}'.encode(),
    "without end": f'{{"{A}": {{"limit_w": [Infinity]}}}}'.encode(),
    "digits without end": f'{{"{A}": {{"limit_w": [1{"0" * 400}]}}}}'.encode(),
    "a setting of another version": json.dumps({A: {"fan_rpm": [3.0]}}).encode(),
}
FILES = (memory.BEFORE, memory.APPLIED, memory.UNSUPPORTED, pending.PLACE, drift.PLACE, empty.PLACE, tuning_record.RECORD, look.REMEMBERED)


def _keeper(node: Node) -> None:
    node.round(3)


def _restore(node: Node) -> None:
    restoring.restore(node.bench.machine, lambda _message: None, check=False)


def _apply(node: Node) -> None:
    settle.apply(node.bench.machine, wanted.Policy({A: wanted.CardPolicy(limit_w=150)}), look.look(node.bench.machine), node.bench.tell)


@pytest.mark.parametrize("work", [_keeper, _restore, _apply])
@pytest.mark.parametrize("body", list(NOT_OURS.values()), ids=list(NOT_OURS))
@pytest.mark.parametrize("path", FILES)
def test_a_file_that_is_not_as_we_wrote_it_stops_nobody(bench: strict.Bench, path: str, body: bytes, work: Callable[[Node], None]) -> None:
    node = Node(bench, card(requested_w=200))
    node.policy(limit_w=200)
    bench.put(memory.BEFORE, json.dumps(GOOD))
    bench.put(path, body)
    work(node)
    expected = 300.0 if work is _restore else 150.0 if work is _apply else 200.0
    # Where the value before is what was damaged, the card's own default stands in for it, or it stays as it is.
    assert look.look(bench.machine).cards, "and the cards can still be read"
    unsure = {350.0, 200.0} if path == memory.BEFORE and work is _restore else set()
    assert node.cards.card(A).requested_w in {expected, *unsure}


def _folder(real: pathlib.Path) -> None:
    real.mkdir()


def _pipe(real: pathlib.Path) -> None:
    os.mkfifo(real)


def _huge(real: pathlib.Path) -> None:
    with real.open("wb") as stream:
        stream.truncate(1 << 40)


@pytest.mark.parametrize("put", [_folder, _pipe, _huge])
def test_a_policy_that_is_no_file_of_ours_is_told_once_and_is_waited_for_by_nobody(
    bench: strict.Bench, put: Callable[[pathlib.Path], None]
) -> None:
    """A pipe would be waited for for ever, and what is huge would end the keeper by its own limit of memory."""
    node = Node(bench, card(requested_w=200))
    put(pathlib.Path(bench.machine.path(wanted.POLICY)))
    node.round(3)
    assert len(node.said) == 1
    assert "cannot be read, so nothing is held" in node.said[0]
    assert look.look(bench.machine).cards[0].limits.requested_w == 200.0


@pytest.mark.parametrize("put", [_pipe, _huge])
@pytest.mark.parametrize("path", [one for one in FILES if one != look.REMEMBERED])
def test_what_somebody_put_in_the_place_of_a_file_of_ours_stops_no_keeper(
    bench: strict.Bench, path: str, put: Callable[[pathlib.Path], None]
) -> None:
    node = Node(bench, card(requested_w=300))
    node.policy(limit_w=200)
    bench.folder(wanted.STATE)
    put(pathlib.Path(bench.machine.path(path)))
    node.round(3)
    assert node.cards.card(A).requested_w == 200.0


def test_one_damaged_row_costs_no_other_card_its_way_back(bench: strict.Bench) -> None:
    fake.Cards(bench, [card(requested_w=200)])
    bench.put(memory.BEFORE, json.dumps({**GOOD, B: 5, "": {"limit_w": [1.0]}}))
    assert memory.remember(bench.machine, A, "persistence", [0.0])
    assert memory.before(bench.machine) == {A: {"limit_w": [300.0], "persistence": [0.0]}}
    assert json.loads(bench.machine.text(memory.BEFORE + ".damaged"))[B] == 5, "a person may still make something of it"
    said: list[str] = []
    restoring.restore(bench.machine, lambda message: said.append(str(message.get("words", ""))), check=True)
    assert "what is not named below stays as it is (/var/lib/wattherd/power/before.json.damaged)" in said[0]


def test_what_another_version_remembers_is_left_to_it(bench: strict.Bench) -> None:
    fake.Cards(bench, [card(requested_w=200)])
    bench.put(memory.BEFORE, json.dumps({A: {"limit_w": [300.0], "fan_rpm": [1200.0]}}))
    steps = settle.restore(bench.machine, look.look(bench.machine), bench.tell)
    assert [(one.setting, one.now) for one in steps] == [("limit_w", "300 W")]
    assert memory.before(bench.machine) == {A: {"fan_rpm": [1200.0]}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"clocks_mhz": [1400]}', "must be two numbers, the least first, not [1400]"),
        ('{"memory_clocks_mhz": [0, 1, 2]}', "must be two numbers"),
        ('{"clocks_mhz": [1400, 0]}', "must be two numbers, the least first"),
        ('{"clocks_mhz": [-1, 5]}', "must be two numbers"),
        (f'{{"clocks_mhz": [0, 1{"0" * 400}]}}', "at most 64 bits"),
        ('{"limit_w": -5}', "limit_w must be more than 0"),
        ('{"limit_w": NaN}', "limit_w must be a number, not nan"),
        ('{"limit_w": 1e999}', "limit_w must be a number"),
        (f'{{"limit_w": 1{"0" * 400}}}', "limit_w must be a number"),
        ('{"temperature_c": 0}', "temperature_c must be more than 0"),
        ("[" * 100_000, "is no JSON: nested too deeply"),
    ],
)
def test_a_policy_that_no_card_could_mean_is_told_once_and_nothing_is_held(bench: strict.Bench, text: str, words: str) -> None:
    with pytest.raises(errors.Problem, match="manifest-invalid") as refused:
        wanted.decode(f'{{"cards": {{"{A}": {text}}}}}')
    assert words in refused.value.message
    node = Node(bench)
    bench.put(wanted.POLICY, f'{{"cards": {{"{A}": {text}}}}}')
    node.round(3)
    assert len(node.said) == 1
    assert "cannot be read, so nothing is held" in node.said[0]
    assert node.writes == 0
    assert look.look(bench.machine).cards[0].limits.requested_w == 350.0


def test_a_keeper_whose_folders_were_taken_away_starts_anew(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could hold the cards, and never put a policy back: to a running unit the folder that was made again is read-only."""
    node = Node(bench, card(requested_w=300))
    node.policy(limit_w=200)
    real = os.open

    def shut(path: str, flags: int, *more: int) -> int:
        if wanted.STATE in str(path) and flags & os.O_CREAT:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", shut)
    with pytest.raises(SystemExit):
        node.keeper.run()
    assert len([one for one in bench.machine.waits if one == node.keeper.interval_s]) == 2
    assert "it starts anew" in node.said[-1]


@pytest.mark.parametrize("errno_of", [errno.ENOSPC, errno.EROFS])
def test_a_full_disk_is_no_reason_to_let_go_of_the_cards(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch, errno_of: int) -> None:
    node = Node(bench, card(), card(B))
    for uuid in (A, B):
        node.policy(uuid=uuid, limit_w=200, clocks_mhz=(0, 1400))
    node.round(2)
    node.cards.reboot()
    real = os.open

    def full(path: str, flags: int, *more: int) -> int:
        if wanted.STATE in str(path) and flags & os.O_CREAT:
            raise OSError(errno_of, os.strerror(errno_of), str(path))
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", full)
    with contextlib.suppress(errors.Problem):  # which the keeper's own loop tells once
        node.round()
    monkeypatch.undo()
    assert [(one.requested_w, one.locked_mhz) for one in node.cards.cards] == [(200.0, (0, 1400))] * 2
    for _ in range(4):
        node.round()
        bench.machine.wait(300)
    assert all(memory.last_set(bench.machine, uuid, "clocks_mhz", look.look(bench.machine).epoch) for uuid in (A, B)), "written down now"
    assert not any(one.is_open for one in node.record.drifts)


def test_before_the_first_change_a_full_disk_stops_it(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was there before could not be returned to."""
    cards = fake.Cards(bench, [card(requested_w=300)])
    seen = look.look(bench.machine)

    def full(*_words: object, **_more: object) -> None:
        raise errors.Problem("disk-full", "no space left")

    monkeypatch.setattr(bench.machine, "write", full)
    (step,) = settle.apply(bench.machine, wanted.Policy({A: wanted.CardPolicy(limit_w=150)}), seen, bench.tell)
    assert step.problem is not None
    assert step.problem.code == "disk-full"
    assert (cards.card(A).requested_w, cards.set_calls) == (300, [])


def test_a_defect_of_the_keeper_is_told_once_and_the_next_look_comes(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    keeper = keep.Keeper(bench.machine, said.append)

    def falls(_machine: object) -> None:
        raise IndexError("tuple index out of range")

    def ends(_seconds_s: float) -> None:
        if len(bench.machine.waits) == 3:
            raise KeyboardInterrupt
        bench.machine.waits.append(_seconds_s)

    monkeypatch.setattr(pending, "waiting", falls)
    monkeypatch.setattr(bench.machine, "wait", ends)
    with pytest.raises(KeyboardInterrupt):
        keeper.run()
    assert bench.machine.waits == [keeper.interval_s] * 3
    assert len(said) == 1
    assert "please report it: IndexError: tuple index out of range (test_damaged.py:" in said[0]
