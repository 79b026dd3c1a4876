"""The middle of a deploy: everything bulky arrives on the nodes before anything is activated.

Owns who builds, what is shipped to whom, and what is sent. A host that fails here leaves the run; the others go on.
"""

from __future__ import annotations

import functools

from wattherd import errors, fleet, units
from wattherd.verbs import prepare, releases, running, secrets
from wattherd.wire import facts, fields, manifest


def stage(run: running.Run, sources: prepare.Sources) -> None:
    """Everything bulky arrives before anything is activated: builds first, then releases and models."""
    shop = releases.Shop(run.reach.project.cache / "releases")
    wanted = {fingerprint: [name for name in hosts if name in run.names] for fingerprint, hosts in _wanted_builds(run).items()}
    # Each kind of machine has its own builder, so all of them compile at the same time.
    done = fleet.each(list(wanted), lambda one: _release(run, shop, one, wanted[one], sources), forks=max(1, len(wanted)))
    for fingerprint, one in done.items():
        if one.problem is not None:
            for name in wanted[fingerprint]:
                if name not in run.lost:
                    run.drop(name, one.problem)
    run.each(run.names, "stage", lambda name: _send_missing(run, name, sources))
    run.staged = True


def foresee(run: running.Run) -> dict[str, list[dict[str, object]]]:
    """For a check: the releases that `stage` would ship to each host. A host that could not run one leaves, as it would then."""
    shop = releases.Shop(run.reach.project.cache / "releases")
    told = {name: run.sessions.live[name].facts for name in run.names}
    found: dict[str, list[dict[str, object]]] = {}
    for fingerprint, hosts in _wanted_builds(run).items():
        built, receivers = releases.receivers(fingerprint, {name: told[name] for name in hosts}, run.builders, shop.find)
        for name in receivers:
            row: dict[str, object] = {"digest": built.digest, "size_bytes": built.size_bytes} if built else {"digest": "", "size_bytes": 0}
            found.setdefault(name, []).append({"fingerprint": fingerprint, **row})
            if built is not None:
                try:
                    releases.check_receiver(built, told[name].system)
                except errors.Problem as problem:
                    run.drop(name, problem)
    return found


def _wanted_builds(run: running.Run) -> dict[str, list[str]]:
    return releases.wanted_builds({name: run.manifests[name] for name in run.names}, run.only)


def _release(run: running.Run, shop: releases.Shop, fingerprint: str, hosts: list[str], sources: prepare.Sources) -> None:
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


def _build_on(run: running.Run, shop: releases.Shop, fingerprint: str, builders: list[str], sources: prepare.Sources) -> facts.Built | None:
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


def _build(run: running.Run, shop: releases.Shop, fingerprint: str, name: str, sources: prepare.Sources) -> facts.Built | None:
    build = releases.build_entry(run.manifests[name], fingerprint)
    _send_missing(run, name, sources, only=[build.id])
    run.call(name, {"verb": "apply", "only": [build.id]})
    failed = run.counts[name].problem
    if failed is not None:
        raise failed
    shop.built_on.setdefault(fingerprint, []).append(name)
    return _fetch(run, shop, fingerprint, name)


def _fetch(run: running.Run, shop: releases.Shop, fingerprint: str, name: str) -> facts.Built | None:
    answer = run.call(name, {"verb": "builds"})
    for row in fields.objects(answer, "builds"):
        built = fields.build(facts.Built, row)
        if built.fingerprint == fingerprint:
            run.sessions.live[name].pull(built.digest, shop.path(built), functools.partial(run.seen.moved, name, "release (fetched)"))
            return shop.keep(built)
    return None


def _ship(run: running.Run, shop: releases.Shop, name: str, built: facts.Built) -> None:
    releases.check_receiver(built, run.sessions.live[name].facts.system)
    run.sessions.live[name].push(shop.path(built), built.digest, functools.partial(run.seen.moved, name, "release"))
    run.call(name, {"verb": "record-build", "build": fields.plain(built)})


def _send_missing(run: running.Run, name: str, sources: prepare.Sources, *, only: list[str] | None = None) -> None:
    """Ask what the node's store lacks for its manifest, and send exactly that."""
    chosen = only if only is not None else run.only[name]
    order: dict[str, object] = {"verb": "needs"} | ({} if chosen is None else {"only": chosen})
    answer = run.call(name, order, manifest.encode(run.manifests[name]))
    missing = fields.document(answer.get("missing"), "missing")
    for digest in dict.fromkeys(digest for wanted in missing.values() for digest in fields.document(wanted, "missing")):
        if digest not in sources.files:
            raise errors.Problem("artifact-missing", f"the node asks for {digest[:12]}…, which this controller does not have")
        staged = sources.files[digest]
        path = staged.here()
        sent = run.sessions.live[name].push(path, digest, functools.partial(run.seen.moved, name, staged.what))
        there = path.stat().st_size - sent
        if there:
            run.say(name, f"{staged.what}: {units.size(there)} were there from a copy that was cut; it went on from there")
    secrets.send(run, name, answer, sources.secrets)
    run.mended.setdefault(name, set()).update(missing)
