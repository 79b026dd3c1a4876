"""`invoke deploy`: facts, builders, stage, activate: each a barrier across hosts, each host's failure its own value.

Owns the order of a deploy. What a host should be is the roles' word, how it gets there the node's.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence

from wattherd import errors, fleet, inventory, plan
from wattherd.verbs import access, models, prepare, project, running, staging, watch
from wattherd.wire import facts, manifest

_MOST_NAMES = 4


def deploy(reach: access.Access, selection: project.Selection, options: running.Options, seen: watch.Watch) -> running.Report:
    """Bring the selected hosts to their manifests. Raises a Problem only for what stops the whole run before it touches a host."""
    begun_s = time.monotonic()
    loaded = reach.project.load(selection)
    for words in loaded.warnings:
        seen.warn(words)
    hosts = project.hosts_of(loaded, selection, writes=True, early=functools.partial(reach.foresee, loaded))
    fleet.batches([host.name for host in hosts], options.serial)
    project.check_tags([*options.tags, *options.skip_tags], sorted({name for host in hosts for name in host.settings.roles}))
    sources = prepare.sources(reach.project, loaded, hosts, lambda what, done, total: seen.moved("", what, done, total))
    for words in (*sources.secrets.warnings, *sources.notes):
        seen.warn(words)
    sessions = access.Sessions(reach)
    run = running.Run(reach, options, seen, sessions)
    planned: dict[str, fleet.Done[manifest.Manifest]] = {}
    sessions.open_all(hosts, seen, lambda host, opened: planned.update({host.name: _planned(run, host, opened.facts, sources)}))
    try:
        _tell_doubts(run, [host.name for host in hosts])
        _plan(run, hosts, planned)
        if options.check:
            run.coming = staging.foresee(run)
        else:
            staging.stage(run, sources)
        _activate(run)
    finally:
        sessions.close()
    return running.Report({host.name: _outcome(run, host.name) for host in hosts}, round(time.monotonic() - begun_s, 3), options.check)


def _planned(run: running.Run, host: inventory.Host, told: facts.Facts, sources: prepare.Sources) -> fleet.Done[manifest.Manifest]:
    try:
        wanted = sources.role_host(host)
        for words in models.doubts(wanted, told, plans=run.options.check):
            run.doubts.setdefault(words, []).append(host.name)
        for words in models.contexts(wanted) if run.options.check else ():
            run.contexts.setdefault(words, []).append(host.name)
        return fleet.Done(value=plan.manifest_for(wanted, told, run.reach.project.roles))
    except errors.Problem as problem:
        return fleet.Done(problem=problem)


def _tell_doubts(run: running.Run, order: Sequence[str]) -> None:
    """Each once, with the hosts that it is about: three hundred boxes of one kind are one line."""
    for tell, found in ((run.seen.tell, run.contexts), (run.seen.warn, run.doubts)):
        for words, names in found.items():
            whose = sorted(names, key=order.index)
            shown = ", ".join(whose[:_MOST_NAMES])
            tell(f"{shown}{f' and {len(whose) - _MOST_NAMES} more' if len(whose) > _MOST_NAMES else ''}: {words}")


def _plan(run: running.Run, hosts: Sequence[inventory.Host], planned: Mapping[str, fleet.Done[manifest.Manifest]]) -> None:
    """Every host's manifest into the run, in the inventory's order: the first ones are the first batch."""
    for host in hosts:
        if host.name not in run.sessions.live:
            continue
        run.counts[host.name] = fleet.Count()
        if host.settings.llama_cpp is not None and host.settings.llama_cpp.builder:
            run.builders.append(host.settings.llama_cpp.builder)
        done = planned[host.name]
        if done.value is None:
            run.drop(host.name, done.problem or errors.Problem("internal", f"{host.name} was not planned"))
            continue
        run.manifests[host.name] = done.value
        run.only[host.name] = plan.tagged(done.value, run.options.tags, run.options.skip_tags)


def _activate(run: running.Run) -> None:
    stopped = False
    batches = fleet.batches(run.names, run.options.serial) if run.names else []
    for number, batch in enumerate(batches, 1):
        if stopped:
            for name in batch:
                run.drop(
                    name,
                    errors.Problem("batch-stopped", "not touched: a host of an earlier batch failed", hint="mend that one, then run again"),
                )
            continue
        words = "check" if run.options.check else "activate"
        run.each(batch, f"{words} (batch {number} of {len(batches)})" if len(batches) > 1 else words, lambda name: _converge(run, name))
        stopped = any(name in run.lost or run.counts[name].problem is not None for name in batch)


def _converge(run: running.Run, name: str) -> None:
    order: dict[str, object] = {"verb": "check" if run.options.check else "apply", "diff": run.options.diff}
    if run.only[name] is not None:
        order["only"] = run.only[name]
    if run.coming.get(name):
        order["coming"] = run.coming[name]
    run.call(name, order, manifest.encode(run.manifests[name]) if run.options.check else None)
    run.seen.done(name, run.counts[name].outcome())


def _outcome(run: running.Run, name: str) -> fleet.Outcome:
    lost = run.sessions.lost.get(name)
    if lost is not None:
        return fleet.Count().outcome(lost.problem)
    return run.counts[name].outcome(run.lost.get(name))
