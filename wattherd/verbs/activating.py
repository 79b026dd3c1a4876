"""What `deploy` and `power-apply` share: manifests into the run, the doubts about them, the batches that converge, the outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wattherd import errors, fleet, inventory, plan
from wattherd.verbs import confirming, running
from wattherd.wire import manifest

_MOST_NAMES = 4


def named(names: Sequence[str]) -> str:
    """A few names, and how many more: three hundred boxes of one kind are one line."""
    shown = ", ".join(names[:_MOST_NAMES])
    return f"{shown} and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else shown


def tell_doubts(run: running.Run, order: Sequence[str]) -> None:
    """Each once, with the hosts that it is about."""
    for tell, found in ((run.seen.tell, run.contexts), (run.seen.tell, run.notes), (run.seen.warn, run.doubts)):
        for words, names in found.items():
            tell(f"{named(sorted(names, key=order.index))}: {words}")


def take(run: running.Run, hosts: Sequence[inventory.Host], planned: Mapping[str, fleet.Done[manifest.Manifest]]) -> None:
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


def activate(run: running.Run) -> None:
    """In batches; when one fails, the later ones are not touched."""
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
        run.each(batch, f"{words} (batch {number} of {len(batches)})" if len(batches) > 1 else words, lambda name: _one(run, name))
        stopped = any(name in run.lost or run.counts[name].problem is not None for name in batch)


def _one(run: running.Run, name: str) -> None:
    _converge(run, name)
    run.seen.done(name, run.counts[name].outcome())


def _converge(run: running.Run, name: str) -> None:
    order: dict[str, object] = {"verb": "check" if run.options.check else "apply", "diff": run.options.diff}
    if run.only[name] is not None:
        order["only"] = run.only[name]
    if run.whole_roles:
        order["roles"] = list(run.whole_roles)
    if run.coming.get(name):
        order["coming"] = run.coming[name]
    answer = run.call(name, order, None if run.staged else manifest.encode(run.manifests[name]))
    confirming.confirm(name, answer, run.counts[name], lambda order: run.call(name, order))


def outcome(run: running.Run, name: str) -> fleet.Outcome:
    lost = run.sessions.lost.get(name)
    if lost is not None:
        return fleet.Count().outcome(lost.problem)
    return run.counts[name].outcome(run.lost.get(name))
