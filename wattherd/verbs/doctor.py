"""`invoke doctor`: each node looks at itself (units, builds, devices, driver, kernel log) and says what is wrong. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wattherd import fleet, inventory
from wattherd.verbs import access, project, watch
from wattherd.wire import fields, finding


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """One node's findings, worst first, and in a few words what was looked at."""

    findings: tuple[finding.Finding, ...]
    looked: tuple[str, ...]

    @property
    def status(self) -> str:
        return "failed" if any(one.severity == finding.ERROR for one in self.findings) else "ok"


def doctor(reach: access.Access, selection: project.Selection, seen: watch.Watch) -> Mapping[str, fleet.Done[Diagnosis]]:
    loaded = reach.project.load(selection)
    for words in loaded.warnings:
        seen.warn(words)
    hosts = {host.name: host for host in project.hosts_of(loaded, selection, writes=False)}
    seen.phase("look", list(hosts))

    def tell(name: str, _: fleet.Done[Diagnosis]) -> None:
        seen.done(name, fleet.Count().outcome())

    return fleet.each(list(hosts), lambda name: _one(reach, hosts[name], seen), forks=reach.forks, on_done=tell)


def _one(reach: access.Access, host: inventory.Host, seen: watch.Watch) -> Diagnosis:
    opened = reach.open(host)
    try:
        told = opened.call({"verb": "doctor"}, None, lambda message: seen.event(host.name, message))
    finally:
        opened.close()
    found = [finding.decode(row) for row in fields.objects(told, "findings")]
    ordered = sorted(found, key=lambda one: (one.rank, one.where))
    return Diagnosis(findings=tuple(ordered), looked=tuple(finding.plain_line(words, 80) for words in fields.texts(told, "looked")[:12]))
