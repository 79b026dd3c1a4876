"""What is said at the end of a command that changes hosts."""

from __future__ import annotations

import json

import pytest

from wattherd import errors, fleet
from wattherd.console import reports, screen
from wattherd.verbs import running

PROBLEM = errors.Problem("unit-failed", "it does not stay up")
HALF = fleet.Outcome(status="failed", ok=3, changed=2, failed=1, problem=PROBLEM)
HOSTS = {
    "titan": fleet.Outcome(status="changed", ok=3, changed=2),
    "atlas": HALF,
    "orin": fleet.Outcome(status="failed", failed=1, problem=PROBLEM),
    "rig": HALF,
    "far": fleet.Outcome(status="unreachable", problem=errors.Problem("unreachable", "no answer")),
}


@pytest.mark.parametrize(("check", "goes_back", "named"), [(False, True, True), (True, True, False), (False, False, False)])
def test_whoever_stopped_halfway_is_told_the_way_back(
    capsys: pytest.CaptureFixture[str], *, check: bool, goes_back: bool, named: bool
) -> None:
    """Not those where nothing was touched, and not after a check, a rollback or a removal."""
    code = reports.deployed(screen.Screen(), running.Report(HOSTS, 1.0, check), goes_back=goes_back)
    said = " ".join(capsys.readouterr().out.split())
    assert code == 6
    assert ("invoke rollback --hosts atlas:rig" in said) is named


def test_in_json_the_document_stays_alone(capsys: pytest.CaptureFixture[str]) -> None:
    reports.deployed(screen.Screen(as_json=True), running.Report(HOSTS, 1.0), goes_back=True)
    said = capsys.readouterr()
    assert set(json.loads(said.out)["hosts"]) == set(HOSTS)
    assert "invoke rollback" in said.err
