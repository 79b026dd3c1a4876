"""`history`, `rollback` and `remove`: verbs that act on what the nodes themselves keep."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from wattherd import fleet, inventory
from wattherd.link import session
from wattherd.records import dataclass
from wattherd.verbs import access, confirming, project, running, sightings, watch
from wattherd.wire import fields


@dataclass(frozen=True, kw_only=True)
class Options:
    """`to` None means the generation before the current one, on each node."""

    to: int | None = None
    check: bool = False
    diff: bool = False


@dataclass(frozen=True, kw_only=True)
class Generation:
    number: int
    digest: str
    applied_at: str
    resources: int
    release: str = ""
    release_present: bool = False
    units: tuple[str, ...] = ()


def history(reach: access.Access, selection: project.Selection, seen: watch.Watch) -> Mapping[str, fleet.Done[list[Generation]]]:
    hosts = {host.name: host for host in project.hosts_of(reach.project.load(selection), selection, writes=False)}
    seen.phase("history", list(hosts))
    return fleet.each(list(hosts), lambda name: _history(reach, hosts[name]), forks=reach.forks)


def _history(reach: access.Access, host: inventory.Host) -> list[Generation]:
    opened = reach.open(host)
    try:
        return [fields.build(Generation, row) for row in fields.objects(opened.call({"verb": "history"}), "generations")]
    finally:
        opened.close()


def rollback(reach: access.Access, selection: project.Selection, options: Options, seen: watch.Watch) -> running.Report:
    order: dict[str, object] = {"verb": "rollback", "check": options.check, "diff": options.diff}
    if options.to is not None:
        order["to"] = options.to
    report = on_all(
        reach, selection, seen, "roll back", lambda opened, _, on_event: opened.call(order, None, on_event), check=options.check
    )
    sightings.forget_applied(reach.project.state, report.reached)
    return report


def remove(reach: access.Access, selection: project.Selection, seen: watch.Watch, *, check: bool) -> running.Report:
    """Everything that Wattherd created on the node goes, its own store and records at the end."""

    def work(opened: session.Session, name: str, on_event: session.OnEvent) -> fields.Document:
        return opened.call({"verb": "remove", "host": name, "check": check}, None, on_event)

    report = on_all(reach, selection, seen, "remove", work, check=check)
    sightings.forget_applied(reach.project.state, report.reached)
    return report


def on_all(
    reach: access.Access,
    selection: project.Selection,
    seen: watch.Watch,
    words: str,
    work: Callable[[session.Session, str, session.OnEvent], fields.Document],
    *,
    check: bool,
) -> running.Report:
    """One verb of the nodes' own on every selected host, in a session of each."""
    begun_s = time.monotonic()
    hosts = {host.name: host for host in project.hosts_of(reach.project.load(selection), selection, writes=True)}
    counts = {name: fleet.Count() for name in hosts}
    seen.phase(words, list(hosts))

    def one(name: str) -> None:
        def on_event(message: Mapping[str, object]) -> None:
            counts[name].see(message)
            seen.event(name, message)

        opened = reach.open(hosts[name])
        try:
            answer = work(opened, name, on_event)
            counts[name].ended(answer)
            confirming.confirm(name, answer, counts[name], lambda order: opened.call(order, None, on_event))
        finally:
            opened.close()

    def tell(name: str, done: fleet.Done[None]) -> None:
        seen.done(name, counts[name].outcome(done.problem))

    done = fleet.each(list(hosts), one, forks=reach.forks, on_done=tell)
    return running.Report({name: counts[name].outcome(done[name].problem) for name in hosts}, round(time.monotonic() - begun_s, 3), check)
