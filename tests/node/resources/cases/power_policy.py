"""The four cases of the policy file: a new one is written beside its way back, which takes a look at the cards and at our units."""

from __future__ import annotations

from tests.node import strict
from tests.node.power import fake
from wattherd.power import wanted
from wattherd.resources import power

CARD = "GPU-11111111-1111-1111-1111-111111111111"


def policy(watts: float) -> power.PowerPolicy:
    return power.PowerPolicy(wanted.encode(wanted.Policy({CARD: wanted.CardPolicy(limit_w=watts, persistence=True)})))


def absent(bench: strict.Bench) -> power.PowerPolicy:
    fake.Cards(bench, [fake.Card(uuid=CARD)])
    bench.runner.plan("systemctl", "show", strict.REST, times=None)
    return policy(250)


def drifted(bench: strict.Bench) -> power.PowerPolicy:
    wanted_one = absent(bench)
    bench.put(wanted.POLICY, policy(300).text)
    return wanted_one


def settled(bench: strict.Bench) -> power.PowerPolicy:
    bench.put(wanted.POLICY, policy(250).text)
    return policy(250)


def checked(bench: strict.Bench) -> power.PowerPolicy:
    return drifted(bench)
