"""Rebooting one host and waiting for it: another boot must answer, with the mode that waited, or it is said what did not happen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from wattherd import errors, inventory
from wattherd.verbs import access, rebooting, watch

HOST = cast("inventory.Host", SimpleNamespace(name="orin", connection=SimpleNamespace(local=False)))


@dataclass
class Node:
    """A host as a controller meets it: each opening of a session takes the next of `turns`, a boot id or a problem; the last one stays."""

    turns: list[str | errors.Problem]
    pending: str = "10W"
    mode_after: str = "10W"
    refusal: errors.Problem | None = None
    opened: int = 0
    closed: int = 0
    orders: list[Mapping[str, Any]] = field(default_factory=list)

    def open(self, _host: inventory.Host) -> Any:
        turn = self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]
        if isinstance(turn, errors.Problem):
            raise turn
        self.opened += 1
        return SimpleNamespace(facts=SimpleNamespace(system=SimpleNamespace(boot_id=turn)), call=self.call, close=self.close)

    def call(self, order: Mapping[str, Any], _body: object = None, _on_event: object = None) -> Mapping[str, Any]:
        self.orders.append(order)
        if self.refusal is not None:
            raise self.refusal
        if order.get("check"):
            return {"mode": self.mode_after, "pending": ""}
        return {"mode": "40W", "pending": self.pending, "rebooting": True}

    def close(self) -> None:
        self.closed += 1


class Heard(watch.Silent):
    def __init__(self) -> None:
        self.words: list[str] = []
        self.warned: list[str] = []

    def event(self, host: str, message: Mapping[str, Any]) -> None:
        self.words.append(f"{host}: {message['words']}")

    def tell(self, words: str) -> None:
        self.words.append(words)

    def warn(self, words: str) -> None:
        self.warned.append(words)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebooting, "_PAUSE_S", 0.001)


def _run(node: Node, seen: Heard, limit_s: float = 30) -> rebooting.Rebooted:
    return rebooting.reboot_and_wait(cast("access.Access", node), HOST, seen, limit_s)


def test_it_waits_until_another_boot_answers_and_reads_the_mode_again() -> None:
    gone = errors.Problem("unreachable", "no route")
    node = Node(["one", "one", gone, errors.Problem("auth-failed", "the system is booting up"), "two"])
    seen = Heard()
    done = _run(node, seen)
    assert (done.mode, done.asked, done.took) == ("10W", "10W", True)
    assert node.orders == [{"verb": "reboot"}, {"verb": "reboot", "check": True}]
    assert node.opened == node.closed == 3
    assert "orin: waiting for it to come back" in seen.words
    assert seen.words[-1].startswith("orin: rebooted, back after")
    assert seen.words[-1].endswith("in mode 10W")


def test_a_mode_that_did_not_take_is_said() -> None:
    seen = Heard()
    done = _run(Node(["one", "two"], mode_after="40W"), seen)
    assert not done.took
    assert "but in mode 40W and not 10W" in seen.warned[0]


def test_a_host_without_modes_is_just_back() -> None:
    done = _run(Node(["one", "two"], pending="", mode_after=""), Heard())
    assert done.took
    assert done.words.startswith("rebooted, back after")


@pytest.mark.parametrize(
    ("turns", "words"),
    [
        (["one"], "it still answers with the boot that it had before"),
        (["one", errors.Problem("unreachable", "no route to host")], "no route to host"),
    ],
)
def test_one_that_does_not_come_back_is_a_timeout_with_what_was_last_seen(turns: list[str | errors.Problem], words: str) -> None:
    with pytest.raises(errors.Problem) as caught:
        _run(Node(turns), Heard(), limit_s=0.05)
    assert caught.value.code == "reboot-timeout"
    assert words in caught.value.message


def test_another_host_key_is_no_host_that_still_boots() -> None:
    with pytest.raises(errors.Problem) as caught:
        _run(Node(["one", errors.Problem("host-key-changed", "another key")]), Heard())
    assert caught.value.code == "host-key-changed"


def test_a_node_that_stays_up_since_it_could_not_be_emptied_is_not_waited_for() -> None:
    node = Node(["one"], refusal=errors.Problem("drain-timeout", "3 requests in flight"))
    with pytest.raises(errors.Problem) as caught:
        _run(node, Heard())
    assert caught.value.code == "drain-timeout"
    assert node.opened == node.closed == 1


def test_the_machine_that_the_command_runs_on_is_not_rebooted() -> None:
    node = Node(["one"])
    host = cast("inventory.Host", SimpleNamespace(name="here", connection=SimpleNamespace(local=True)))
    with pytest.raises(errors.Problem, match="the machine that this command runs on"):
        rebooting.reboot_and_wait(cast("access.Access", node), host, Heard())
    assert node.opened == 0
