"""The four cases of one setting of a card. A limit can be read; a lock on clocks is only known from our own record."""

from __future__ import annotations

from tests.node import strict
from tests.node.power import fake
from wattherd.resources import power

CARD = "GPU-11111111-1111-1111-1111-111111111111"


def absent(bench: strict.Bench) -> power.Power:
    fake.Cards(bench, [fake.Card(uuid=CARD)])
    return power.Power(CARD, "clocks_mhz", (0, 1400), "RTX 3090")


def drifted(bench: strict.Bench) -> power.Power:
    fake.Cards(bench, [fake.Card(uuid=CARD, requested_w=350)])
    return power.Power(CARD, "limit_w", (250,), "RTX 3090")


def settled(bench: strict.Bench) -> power.Power:
    fake.Cards(bench, [fake.Card(uuid=CARD, requested_w=250)])
    return power.Power(CARD, "limit_w", (250,), "RTX 3090")


def checked(bench: strict.Bench) -> power.Power:
    fake.Cards(bench, [fake.Card(uuid=CARD, persistence=False)])
    return power.Power(CARD, "memory_clocks_mhz", (405, 5001), "RTX 3090")
