"""`invoke deploy`: facts, builders, stage, activate: each a barrier across hosts, each host's failure its own value.

Owns the order of a deploy. What a host should be is the roles' word, how it gets there the node's.
"""

from __future__ import annotations

import functools
import time

from wattherd import errors, fleet, inventory, plan
from wattherd.verbs import access, activating, budgets, models, prepare, project, running, sightings, staging, watch
from wattherd.wire import facts, manifest


def deploy(reach: access.Access, selection: project.Selection, options: running.Options, seen: watch.Watch) -> running.Report:
    """Bring the selected hosts to their manifests. Raises a Problem only for what stops the whole run before it touches a host."""
    begun_s = time.monotonic()
    loaded = reach.project.load(selection)
    for words in loaded.warnings:
        seen.warn(words)
    hosts = project.hosts_of(loaded, selection, writes=True, early=functools.partial(reach.foresee, loaded))
    circuits = loaded.circuits
    fleet.batches([host.name for host in hosts], options.serial)
    project.check_tags([*options.tags, *options.skip_tags], sorted({name for host in hosts for name in host.settings.roles}))
    sources = prepare.sources(reach.project, loaded, hosts, lambda what, done, total: seen.moved("", what, done, total))
    for words in (*sources.secrets.warnings, *sources.notes):
        seen.warn(words)
    sessions = access.Sessions(reach)
    run = running.Run(reach, options, seen, sessions, sighted=sightings.read(reach.project.state))
    planned: dict[str, fleet.Done[manifest.Manifest]] = {}
    sessions.open_all(hosts, seen, lambda host, opened: planned.update({host.name: _planned(run, host, opened.facts, sources)}))
    try:
        activating.take(run, hosts, planned)
        budgets.check(run, loaded, hosts, circuits)
        activating.tell_doubts(run, [host.name for host in hosts])
        if options.check:
            run.coming = staging.foresee(run)
        else:
            staging.stage(run, sources)
        activating.activate(run)
        budgets.remember(run)
    finally:
        sessions.close()
    outcomes = {host.name: activating.outcome(run, host.name) for host in hosts}
    return running.Report(outcomes, round(time.monotonic() - begun_s, 3), options.check)


def _planned(run: running.Run, host: inventory.Host, told: facts.Facts, sources: prepare.Sources) -> fleet.Done[manifest.Manifest]:
    try:
        wanted = sources.role_host(host)
        for words in models.doubts(wanted, told, plans=run.options.check):
            run.doubts.setdefault(words, []).append(host.name)
        for words in models.contexts(wanted) if run.options.check else ():
            run.contexts.setdefault(words, []).append(host.name)
        return fleet.Done(value=plan.manifest_for(wanted, budgets.note(run, host, told), run.reach.project.roles))
    except errors.Problem as problem:
        return fleet.Done(problem=problem)
