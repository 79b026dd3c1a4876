"""`invoke deploy`: facts, builders, stage, activate: each a barrier across hosts, each host's failure its own value.

Owns the order of a deploy. What a host should be is the roles' word, how it gets there the node's.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from wattherd import errors, fleet, inventory, plan
from wattherd.verbs import access, prepare, project, releases, watch
from wattherd.wire import facts, fields, manifest


@dataclass(frozen=True, kw_only=True)
class Options:
    """`tags` and `skip_tags` limit a run to parts of the manifest; such a run removes nothing. `serial` as Ansible's."""

    check: bool = False
    diff: bool = False
    tags: tuple[str, ...] = ()
    skip_tags: tuple[str, ...] = ()
    serial: str = "100%"


@dataclass(frozen=True)
class Report:
    """What `invoke deploy` gives back; `hosts` in inventory order."""

    hosts: Mapping[str, fleet.Outcome]
    seconds: float
    check: bool = False


@dataclass
class Deploy:
    """One run: what the steps share. Lives for one call of `deploy`."""

    reach: access.Access
    options: Options
    seen: watch.Watch
    sessions: access.Sessions
    manifests: dict[str, manifest.Manifest] = field(default_factory=dict)
    only: dict[str, list[str] | None] = field(default_factory=dict)
    counts: dict[str, fleet.Count] = field(default_factory=dict)
    lost: dict[str, errors.Problem] = field(default_factory=dict)
    builders: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The hosts that are still with us, in order."""
        return [name for name in self.manifests if name not in self.lost]

    def call(self, name: str, order: Mapping[str, object], body: bytes | None = None) -> fields.Document:
        def on_event(message: Mapping[str, object]) -> None:
            self.counts[name].see(message)
            self.seen.event(name, message)

        return self.sessions.live[name].call(order, body, on_event)

    def drop(self, name: str, problem: errors.Problem) -> None:
        """This host is out of the run; the others go on."""
        self.lost[name] = problem
        self.seen.done(name, self.counts[name].outcome(problem))

    def each(self, names: Sequence[str], work: str, step: Callable[[str], None]) -> None:
        """Run one step on hosts; who fails is dropped."""
        self.seen.phase(work, names)
        for name, done in fleet.each(names, step, forks=self.reach.forks).items():
            if done.problem is not None:
                self.drop(name, done.problem)


def deploy(reach: access.Access, selection: project.Selection, options: Options, seen: watch.Watch) -> Report:
    """Bring the selected hosts to their manifests. Raises a Problem only for what stops the whole run before it touches a host."""
    begun_s = time.monotonic()
    loaded = reach.project.load(selection)
    for words in loaded.warnings:
        seen.warn(words)
    hosts = project.hosts_of(loaded, selection, writes=True, early=functools.partial(reach.foresee, loaded))
    fleet.batches([host.name for host in hosts], options.serial)
    project.check_tags([*options.tags, *options.skip_tags], sorted({name for host in hosts for name in host.settings.roles}))
    sources = prepare.sources(reach.project, loaded, hosts, lambda what, done, total: seen.moved("", what, done, total))
    sessions = access.Sessions(reach)
    run = Deploy(reach, options, seen, sessions)
    planned: dict[str, fleet.Done[manifest.Manifest]] = {}
    sessions.open_all(hosts, seen, lambda host, opened: planned.update({host.name: _planned(run, host, opened.facts, sources)}))
    try:
        _plan(run, hosts, planned)
        if not options.check:
            _stage(run, sources)
        _activate(run)
    finally:
        sessions.close()
    return Report({host.name: _outcome(run, host.name) for host in hosts}, round(time.monotonic() - begun_s, 3), options.check)


def _planned(run: Deploy, host: inventory.Host, told: facts.Facts, sources: prepare.Sources) -> fleet.Done[manifest.Manifest]:
    try:
        return fleet.Done(value=plan.manifest_for(sources.role_host(host), told, run.reach.project.roles))
    except errors.Problem as problem:
        return fleet.Done(problem=problem)


def _plan(run: Deploy, hosts: Sequence[inventory.Host], planned: Mapping[str, fleet.Done[manifest.Manifest]]) -> None:
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


def _stage(run: Deploy, sources: prepare.Sources) -> None:
    """Everything bulky arrives before anything is activated: builds first, then releases and models."""
    shop = releases.Shop(run.reach.project.cache / "releases")
    wanted = {fingerprint: [name for name in hosts if name in run.names] for fingerprint, hosts in _wanted_builds(run).items()}
    # Each kind of machine has its own builder, so all of them compile at the same time.
    done = fleet.each(list(wanted), lambda one: _release(run, shop, one, wanted[one], sources), forks=max(1, len(wanted)))
    for fingerprint, one in done.items():
        for name in wanted[fingerprint] if one.problem is not None else ():
            if name not in run.lost and one.problem is not None:
                run.drop(name, one.problem)
    run.each(run.names, "stage", lambda name: _send_missing(run, name, sources.files, send_manifest=True))


def _wanted_builds(run: Deploy) -> dict[str, list[str]]:
    return releases.wanted_builds({name: run.manifests[name] for name in run.names}, run.only)


def _release(run: Deploy, shop: releases.Shop, fingerprint: str, hosts: list[str], sources: prepare.Sources) -> None:
    """See that every host of one fingerprint has the release: from a host that has it, from our cache, or built once."""
    lacking = [name for name in hosts if run.sessions.live[name].facts.build(fingerprint) is None]
    if not lacking:
        return
    built = shop.find(fingerprint)
    if built is None:
        holder = next((name for name in hosts if name not in lacking), None)
        built = _fetch(run, shop, fingerprint, holder) if holder else None
    builders = releases.builders(run.builders, lacking)
    while built is None and builders:
        built = _build_on(run, shop, fingerprint, builders, sources)
    others = [name for name in lacking if name not in run.lost and not (built is not None and name in shop.built_on.get(fingerprint, ()))]
    if built is None:
        for name in others:
            run.drop(
                name,
                errors.Problem(
                    "release-not-built",
                    f"release {fingerprint[:12]} could not be built on any host of its kind",
                    hint="the builder's own error is above",
                ),
            )
        return
    run.each(others, f"ship release {fingerprint[:12]}", lambda name: _ship(run, shop, name, built))


def _build_on(run: Deploy, shop: releases.Shop, fingerprint: str, builders: list[str], sources: prepare.Sources) -> facts.Built | None:
    """Try the first builder; a lost link moves on to the next, a failed build does not: it would fail there too."""
    name = builders.pop(0)
    run.seen.phase(f"build release {fingerprint[:12]} on", [name])
    done = fleet.each([name], lambda host: _build(run, shop, fingerprint, host, sources), forks=1)[name]
    if done.problem is None:
        return done.value
    run.drop(name, done.problem)
    if done.problem.code not in fleet.UNREACHABLE:
        builders.clear()
    return None


def _build(run: Deploy, shop: releases.Shop, fingerprint: str, name: str, sources: prepare.Sources) -> facts.Built | None:
    build = releases.build_entry(run.manifests[name], fingerprint)
    _send_missing(run, name, sources.files, send_manifest=True, only=[build.id])
    run.call(name, {"verb": "apply", "only": [build.id]})
    failed = run.counts[name].problem
    if failed is not None:
        raise failed
    shop.built_on.setdefault(fingerprint, []).append(name)
    return _fetch(run, shop, fingerprint, name)


def _fetch(run: Deploy, shop: releases.Shop, fingerprint: str, name: str) -> facts.Built | None:
    answer = run.call(name, {"verb": "builds"})
    for row in fields.objects(answer, "builds"):
        built = fields.build(facts.Built, row)
        if built.fingerprint == fingerprint:
            run.sessions.live[name].pull(built.digest, shop.path(built), functools.partial(run.seen.moved, name, "release (fetched)"))
            return shop.keep(built)
    return None


def _ship(run: Deploy, shop: releases.Shop, name: str, built: facts.Built) -> None:
    run.sessions.live[name].push(shop.path(built), built.digest, functools.partial(run.seen.moved, name, "release"))
    run.call(name, {"verb": "record-build", "build": fields.plain(built)})


def _send_missing(
    run: Deploy, name: str, files: Mapping[str, prepare.Staged], *, send_manifest: bool, only: list[str] | None = None
) -> None:
    """Ask what the node's store lacks for its manifest, and send exactly that."""
    chosen = only if only is not None else run.only[name]
    order: dict[str, object] = {"verb": "needs"} | ({} if chosen is None else {"only": chosen})
    answer = run.call(name, order, manifest.encode(run.manifests[name]) if send_manifest else None)
    missing = fields.document(answer.get("missing"), "missing")
    for digest in dict.fromkeys(digest for wanted in missing.values() for digest in fields.document(wanted, "missing")):
        if digest not in files:
            raise errors.Problem("artifact-missing", f"the node asks for {digest[:12]}…, which this controller does not have")
        staged = files[digest]
        run.sessions.live[name].push(staged.path, digest, functools.partial(run.seen.moved, name, staged.what))
    for resource_id in missing:
        # A damaged blob is mended by its arrival alone, and that is a change too, as the check before has said.
        run.counts[name].see({"event": "changed", "id": resource_id})


def _activate(run: Deploy) -> None:
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


def _converge(run: Deploy, name: str) -> None:
    order: dict[str, object] = {"verb": "check" if run.options.check else "apply", "diff": run.options.diff}
    if run.only[name] is not None:
        order["only"] = run.only[name]
    run.call(name, order, manifest.encode(run.manifests[name]) if run.options.check else None)
    run.seen.done(name, run.counts[name].outcome())


def _outcome(run: Deploy, name: str) -> fleet.Outcome:
    lost = run.sessions.lost.get(name)
    if lost is not None:
        return fleet.Count().outcome(lost.problem)
    return run.counts[name].outcome(run.lost.get(name))
