"""How a diagnosis looks: by host, worst first, one line for a finding and one for what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from wattherd import fleet, units
from wattherd.console import reports, screen
from wattherd.wire import fields, finding

if TYPE_CHECKING:
    from wattherd.verbs import doctor

_STYLES = {finding.ERROR: "red", finding.WARNING: "yellow", finding.NOTE: "cyan"}


def diagnosed(out: screen.Screen, hosts: Mapping[str, fleet.Done[doctor.Diagnosis]]) -> int:
    if out.as_json:
        out.document({"hosts": {name: _document(done) for name, done in hosts.items()}})
    for name, done in hosts.items():
        if done.problem is not None:
            out.problem(done.problem, name)
        elif done.value is not None:
            _host(out, name, done.value)
    return fleet.exit_code([done.value.status if done.value is not None else fleet.status_of(done.problem) for done in hosts.values()])


def _host(out: screen.Screen, name: str, diagnosis: doctor.Diagnosis) -> None:
    looked = ", ".join(diagnosis.looked)
    if not any(one.severity != finding.NOTE for one in diagnosis.findings):
        out.say(f"{name}  nothing wrong  ({looked})", "green")
    else:
        counts = {severity: sum(one.severity == severity for one in diagnosis.findings) for severity in finding.SEVERITIES}
        told = ", ".join(units.plural(count, severity) for severity, count in counts.items() if count)
        out.say(f"{name}  {told}  ({looked})", "bold")
    for one in diagnosis.findings:
        out.say(f"  {one.severity:<7}  {one.where}  {one.words}  [{one.code}]", _STYLES[one.severity])
        if one.evidence and one.evidence not in one.words:
            out.say(f"           > {one.evidence}", "dim")
        if one.do:
            out.say(f"           -> {one.do}")


def _document(done: fleet.Done[doctor.Diagnosis]) -> dict[str, object]:
    found = done.value.findings if done.value is not None else ()
    looked = list(done.value.looked) if done.value is not None else []
    rows = [{"do": "", "evidence": "", **fields.plain(one)} for one in found]
    return {"findings": rows, "looked": looked, "problem": reports.problem_document(done.problem)}
