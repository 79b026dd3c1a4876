"""A new power policy is confirmed by every verb that may bring one, a rollback too; and what is brought back is at no limit of ours."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from wattherd import errors, fleet
from wattherd.link import session
from wattherd.verbs import access, confirming, generations, project, sightings, watch
from wattherd.wire import event, fields

WHY = errors.Problem("power-put-back", "titan throttled for heat", hint="choose a lower limit")

WELL = {"confirmed": False, "well": True}


class Node:
    """An open session: one answer for each verb (of several the next), and what is told before the end of `power-confirm`."""

    def __init__(self, answers: Mapping[str, Mapping[str, Any] | list[Mapping[str, Any]]], *events: Mapping[str, Any]) -> None:
        self.answers = answers
        self.events = events
        self.asked: list[Mapping[str, object]] = []

    def call(self, order: Mapping[str, object], _body: object = None, on_event: session.OnEvent = lambda _: None) -> fields.Document:
        self.asked.append(order)
        for one in self.events if order["verb"] == "power-confirm" else ():
            on_event(one)
        answer = self.answers[str(order["verb"])]
        return answer.pop(0) if isinstance(answer, list) else answer

    def close(self) -> None:
        pass


@pytest.fixture
def reach(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> access.Access:
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory/hosts.yaml").write_text("all: {hosts: {titan: {}}}")
    monkeypatch.setenv("WATTHERD_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("WATTHERD_INVENTORY", raising=False)
    return access.Access(project=project.Project(tmp_path))


Back = Callable[[Node], fleet.Outcome]


@pytest.fixture
def back(reach: access.Access, monkeypatch: pytest.MonkeyPatch) -> Back:
    """back(node): what comes of a rollback of titan."""

    def run(node: Node) -> fleet.Outcome:
        monkeypatch.setattr(access.Access, "open", lambda *_: node)
        return generations.rollback(reach, project.Selection(hosts="titan"), generations.Options(), watch.Silent()).hosts["titan"]

    return run


@pytest.mark.parametrize(("left_s", "settle_s"), [(180, 15), (12, 7), (3, 1)])
def test_a_rollback_confirms_the_policy_that_it_brought_back(back: Back, left_s: int, settle_s: int) -> None:
    """Without that its own keeper would undo it at the deadline, and call the newer policy the good one."""
    node = Node({"rollback": {"changed": 1, "unconfirmed_s": left_s}, "power-confirm": [WELL, {"confirmed": True, "well": True}]})
    assert back(node).problem is None
    assert node.asked[1:] == [
        {"verb": "power-confirm", "settle_s": settle_s, "stand": False},
        {"verb": "power-confirm", "settle_s": 0},
    ]


def test_a_host_that_is_lost_while_it_is_watched_is_never_told_that_its_policy_stands(back: Back, monkeypatch: pytest.MonkeyPatch) -> None:
    """It puts it back itself, at the deadline. Its word alone would let a policy stand that cost it its network."""
    node = Node({"rollback": {"changed": 1, "unconfirmed_s": 180}, "power-confirm": [WELL]})
    real = node.call

    def lost(order: Mapping[str, object], *words: Any) -> fields.Document:
        if order["verb"] == "power-confirm" and "stand" not in order:
            raise errors.Problem("host-silent", "titan said nothing for 60 s")
        return real(order, *words)

    monkeypatch.setattr(node, "call", lost)
    told = back(node)
    assert told.problem is not None
    assert told.problem.code == "host-silent"


def test_a_rollback_that_changes_no_policy_asks_nothing_more(back: Back) -> None:
    node = Node({"rollback": {"changed": 1}})
    assert back(node).problem is None
    assert len(node.asked) == 1


def test_a_policy_that_its_node_put_back_is_a_failure_of_that_host(back: Back) -> None:
    answers: dict[str, Any] = {"rollback": {"unconfirmed_s": 180}, "power-confirm": {"confirmed": False, "well": False}}
    told = back(Node(answers, event.failed("power-policy:node", WHY)))
    assert told.status == "failed"
    assert told.problem is not None
    assert told.problem.message == WHY.message
    silent = back(Node(answers)).problem
    assert silent is not None
    assert (silent.code, "did not confirm" in silent.message) == ("power-put-back", True)


def test_a_run_without_a_new_policy_needs_no_second_order() -> None:
    def ask(_: Mapping[str, object]) -> fields.Document:
        raise AssertionError("nothing is to be confirmed")

    count = fleet.Count()
    confirming.confirm("titan", {"ok": 3}, count, ask)
    assert count.problem is None


def test_after_a_rollback_the_limits_of_before_count_in_no_sum(back: Back, reach: access.Access) -> None:
    card = sightings.Card(uuid="GPU-1", default_w=350, applied_w=280)
    sightings.keep(reach.project.state, {"titan": sightings.Sighting(cards=(card,)), "atlas": sightings.Sighting(cards=(card,))})
    back(Node({"rollback": {"changed": 1}}))
    seen = sightings.read(reach.project.state)
    assert [seen[name].cards[0].applied_w for name in ("titan", "atlas")] == [None, 280]
