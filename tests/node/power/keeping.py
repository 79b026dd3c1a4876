"""A node with simulated cards, a policy and a keeper, for tests that ask for one round at a time."""

from __future__ import annotations

from typing import Any

from tests.node import strict
from tests.node.power import fake
from wattherd.node import keep
from wattherd.power import drift, pending, settings, wanted

A, B = "GPU-aaaaaaaa-0000-0000-0000-000000000000", "GPU-bbbbbbbb-0000-0000-0000-000000000000"


def card(uuid: str = A, **more: Any) -> fake.Card:
    return fake.Card(uuid=uuid, bus=f"0000:0{1 if uuid == A else 2}:00.0", **more)


class Node:
    """A node with cards, a policy and a keeper that is asked for one round at a time."""

    def __init__(self, bench: strict.Bench, *cards: fake.Card) -> None:
        self.bench = bench
        self.cards = fake.Cards(bench, cards or (card(),))
        self.said: list[str] = []
        self.keeper = keep.Keeper(bench.machine, say=self.said.append)
        bench.folder("/run")
        bench.folder(wanted.FOLDER)

    def policy(self, *, uuid: str = A, **chosen: Any) -> None:
        """As a session leaves it: written, and confirmed."""
        now = pending.current(self.bench.machine)
        cards = {**(wanted.decode(now).cards if now else {}), uuid: wanted.CardPolicy(**chosen)}
        self.bench.put(wanted.POLICY, wanted.encode(wanted.Policy(cards)))

    def round(self, count: int = 1) -> float:
        wait_s = 0.0
        for _ in range(count):
            wait_s = self.keeper.round()
            self.bench.machine.wait(wait_s)
        return wait_s

    def begin(self, *, uuid: str = A, **chosen: Any) -> fake.Card:
        """A policy that holds, as far as the keeper knows."""
        self.policy(uuid=uuid, **chosen)
        self.round(2)
        self.said.clear()
        return self.cards.card(uuid)

    def killed(self) -> None:
        """As by kill -9: another process, which knows only what is in the files."""
        self.keeper = keep.Keeper(self.bench.machine, say=self.said.append)

    @property
    def record(self) -> drift.Record:
        return drift.load(self.bench.machine)

    def drifted(self, setting: str = settings.LIMIT, uuid: str = A) -> drift.Drift:
        found = self.record.of(uuid, setting)
        assert found is not None
        return found

    @property
    def writes(self) -> int:
        return len(self.cards.set_calls)
