"""`invoke power-apply`: the part of a deploy that the role power makes, its way back, and the reboots that some Jetson modes take.

Owns which hosts it is about, and what comes after the run. What is planned, refused and confirmed is the same as in a deploy.
"""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from wattherd import errors, fleet, inventory, plan, role
from wattherd.link import session
from wattherd.verbs import access, activating, budgets, generations, prepare, project, rebooting, running, secrets, sightings, watch
from wattherd.wire import event, facts, fields, manifest

_NO_ROLE = "power is not in its roles: add it there (roles: [base, power])"


def apply(
    reach: access.Access, selection: project.Selection, options: running.Options, seen: watch.Watch, *, reboots: bool = False
) -> running.Report:
    """Bring cards and boards of the selected hosts to what the inventory says. Nothing else of these hosts is touched.

    `reboots`: hosts of which a setting waits for one are rebooted after the run, one at a time, drained.
    """
    begun_s = time.monotonic()
    loaded, hosts = _hosts(reach, selection, seen)
    project.check_tags([*options.tags, *options.skip_tags], [budgets.ROLE])
    done = _round(reach, loaded, hosts, options, seen)
    if reboots and not options.check:
        _reboot(reach, hosts, done, seen, lambda host: _round(reach, loaded, [host], options, seen))
    return running.Report({host.name: done.outcomes[host.name] for host in hosts}, round(time.monotonic() - begun_s, 3), options.check)


def restore(
    reach: access.Access, selection: project.Selection, options: running.Options, seen: watch.Watch, *, reboots: bool = False
) -> running.Report:
    """Every setting back to what it was before Wattherd first changed it, from each node's own records; nothing holds it there."""
    if options.tags or options.skip_tags:
        raise errors.Problem("bad-flag", "--restore goes back whole: it knows no --tags", hint="leave --tags and --skip-tags out")
    begun_s = time.monotonic()
    _, hosts = _hosts(reach, selection, seen)
    done = _back(reach, selection, options, seen)
    if reboots and not options.check:
        _reboot(reach, hosts, done, seen, lambda host: _back(reach, replace(selection, hosts=host.name, limit=None), options, seen))
    report = running.Report(done.outcomes, round(time.monotonic() - begun_s, 3), options.check)
    sightings.forget_applied(reach.project.state, report.reached)
    return report


@dataclass(frozen=True)
class _Done:
    """One round: what became of each host, and which of its settings wait for a reboot."""

    outcomes: dict[str, fleet.Outcome]
    waiting: dict[str, set[str]]


def _back(reach: access.Access, selection: project.Selection, options: running.Options, seen: watch.Watch) -> _Done:
    waiting: dict[str, set[str]] = {}

    def work(opened: session.Session, name: str, on_event: session.OnEvent) -> fields.Document:
        def listen(message: Mapping[str, object]) -> None:
            if running.waits(message):
                waiting.setdefault(name, set()).add(str(message.get("id")))
            on_event(message)

        return opened.call({"verb": "power-restore", "check": options.check}, None, listen)

    report = generations.on_all(reach, selection, seen, "restore", work, check=options.check)
    return _Done(dict(report.hosts), waiting)


def _hosts(reach: access.Access, selection: project.Selection, seen: watch.Watch) -> tuple[inventory.Inventory, tuple[inventory.Host, ...]]:
    loaded = reach.project.load(selection)
    for words in loaded.warnings:
        seen.warn(words)
    return loaded, project.hosts_of(loaded, selection, writes=True, early=lambda names: reach.foresee(loaded, names))


def _round(
    reach: access.Access, loaded: inventory.Inventory, hosts: Sequence[inventory.Host], options: running.Options, seen: watch.Watch
) -> _Done:
    circuits = loaded.circuits
    theirs = tuple(host for host in hosts if budgets.ROLE in host.settings.roles)
    outcomes = {host.name: _without(host.name, seen) for host in hosts if host not in theirs}
    sessions = access.Sessions(reach)
    run = running.Run(
        reach,
        options,
        seen,
        sessions,
        whole_roles=(budgets.ROLE,),
        sighted=sightings.read(reach.project.state),
    )
    sources = prepare.Sources(reach.project.template_folders, secrets.book(reach.project.root))
    planned: dict[str, fleet.Done[manifest.Manifest]] = {}
    sessions.open_all(theirs, seen, lambda host, opened: planned.update({host.name: _planned(run, host, opened.facts, sources)}))
    try:
        activating.take(run, theirs, planned)
        for name in run.names:
            run.only[name] = _only(run, name)
        budgets.check(run, loaded, theirs, circuits)
        activating.tell_doubts(run, [host.name for host in theirs])
        activating.activate(run)
        budgets.remember(run)
    finally:
        sessions.close()
    outcomes |= {host.name: activating.outcome(run, host.name) for host in theirs}
    return _Done(outcomes, {name: waiting for name, waiting in run.waiting.items() if name not in run.lost})


def _without(name: str, seen: watch.Watch) -> fleet.Outcome:
    count = fleet.Count()
    message = event.skipped(f"role:{budgets.ROLE}", _NO_ROLE)
    count.see(message)
    seen.event(name, message)
    return count.outcome()


def _planned(run: running.Run, host: inventory.Host, told: facts.Facts, sources: prepare.Sources) -> fleet.Done[manifest.Manifest]:
    """The role power, and the role base where the host has it: the folder above the policy is that one's."""
    try:
        whole = budgets.note(run, host, told)
        roles = tuple(name for name in host.settings.roles if name in {"base", budgets.ROLE})
        wanted: role.Host = replace(sources.role_host(host), settings=host.settings.model_copy(update={"roles": roles}))
        return fleet.Done(value=plan.manifest_for(wanted, whole, run.reach.project.roles))
    except errors.Problem as problem:
        return fleet.Done(problem=problem)


def _only(run: running.Run, name: str) -> list[str]:
    """What the role power makes, and the folders above it that another role makes."""
    entries = run.manifests[name].resources
    tagged = run.only[name]
    chosen = set(tagged if tagged is not None else [one.id for one in entries if one.role == budgets.ROLE])
    above = {folder for one in entries if one.id in chosen for folder in _folders(str(one.spec.get("path", "")))}
    return [one.id for one in entries if one.id in chosen or (one.type == "directory" and one.spec["path"] in above)]


def _folders(path: str) -> list[str]:
    found = []
    while path not in {"", "/"}:
        path = posixpath.dirname(path)
        found.append(path)
    return found


def _reboot(
    reach: access.Access, hosts: Sequence[inventory.Host], done: _Done, seen: watch.Watch, again: Callable[[inventory.Host], _Done]
) -> None:
    """Those that wait for it, one at a time, each looked at again. The first that does not come back ends it: the others are named."""
    waiting = [host for host in hosts if host.name in done.waiting]
    for number, host in enumerate(waiting, 1):
        seen.phase("reboot", [host.name])
        try:
            rebooting.reboot_and_wait(reach, host, seen)
        except errors.Problem as problem:
            before = done.outcomes[host.name]
            done.outcomes[host.name] = replace(before, status=fleet.status_of(problem), failed=before.failed + 1, problem=problem)
            seen.done(host.name, done.outcomes[host.name])
            if waiting[number:]:
                seen.warn(f"not rebooted after that: {activating.named([one.name for one in waiting[number:]])}")
            return
        after = again(host)
        took = done.waiting[host.name] - after.waiting.get(host.name, set())
        done.outcomes[host.name] = merged(done.outcomes[host.name], after.outcomes[host.name], tuple(sorted(took)))


def merged(before: fleet.Outcome, after: fleet.Outcome, took: Sequence[str] = ()) -> fleet.Outcome:
    """One host's two rounds as one: as it is after the second, with the changes of both, and what the reboot between them set."""
    gained = [*before.changes, *took] if after.problem is None else [*before.changes]
    earlier = [name for name in dict.fromkeys(gained) if name not in after.changes]
    changes = (*earlier, *after.changes)
    return replace(
        after,
        status="changed" if changes and after.status == "ok" else after.status,
        ok=max(0, after.ok - len(earlier)),
        changed=len(changes),
        changes=changes,
        notes=(*before.notes, *after.notes),
    )
