"""What the doctor makes of the keeper's record, and that it says nothing of a node that is well."""

from __future__ import annotations

import pytest

from tests.node import strict
from wattherd.node import doctor, power_status
from wattherd.node.findings import keeper
from wattherd.power import drift, wanted
from wattherd.wire import finding

FOUGHT = drift.Drift(
    "GPU-a",
    "limit_w",
    "200 W",
    "280 W",
    card="RTX 3090 GPU-a",
    is_open=True,
    conflict_s=1.0,
    writers=("night.service: process 9 runs: nvidia-smi -pl 280",),
)


def test_the_unit_has_one_name() -> None:
    assert keeper.UNIT == power_status.KEEPER


def test_a_node_that_is_well_has_none() -> None:
    assert keeper.judge(drift.Record(), None, "active") == []
    assert keeper.judge(drift.Record(), None, "") == []


def test_a_conflict_names_value_and_suspect() -> None:
    (one,) = keeper.judge(drift.Record(drifts=(FOUGHT,)), None, "active")
    assert (one.code, one.where, one.severity) == ("power-conflict", "RTX 3090 GPU-a", finding.WARNING)
    assert one.words.startswith("power limit: 280 W, not 200 W;")
    assert one.do == "stop night.service, then invoke power-apply"
    assert one.evidence == FOUGHT.writers[0]


def test_a_policy_that_went_back_says_why() -> None:
    (one,) = keeper.judge(drift.Record(), drift.PutBack(1.0, "card GPU-a is lost", "d"), "active")
    assert (one.code, "card GPU-a is lost" in one.words) == ("power-put-back", True)


@pytest.mark.parametrize("active", ["inactive", "failed", "unknown"])
def test_a_keeper_that_does_not_run_is_an_error(active: str) -> None:
    (one,) = keeper.judge(drift.Record(), None, active)
    assert (one.code, one.severity) == ("keeper-stopped", finding.ERROR)


def test_the_doctor_asks_only_where_there_is_a_policy(bench: strict.Bench) -> None:
    assert doctor._power(bench.machine) == []
    assert bench.runner.ran == []
    bench.put(wanted.POLICY, "{}")
    bench.runner.plan("systemctl", "is-active", keeper.UNIT, code=3, out="inactive\n")
    assert [one.code for one in doctor._power(bench.machine)] == ["keeper-stopped"]
