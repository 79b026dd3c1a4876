"""What `deploy` and `power-apply` share: manifests into the run, the doubts about them, the batches in which nodes converge, the outcomes.

Owns one rule besides: a new power policy stands only once its node has been asked again and has answered well (power-confirm).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from wattherd import errors, fleet, inventory, plan
from wattherd.verbs import running
from wattherd.wire import fields, manifest

#: How long a node watches its new policy before it says that all is well: a unit that falls down is up and down again within that.
SETTLE_S = 15
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


def activate(run: running.Run, then: Callable[[str], None] = lambda _: None) -> None:
    """In batches; when one fails, the later ones are not touched. `then` is done on each host whose run came to its end."""
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
        run.each(batch, f"{words} (batch {number} of {len(batches)})" if len(batches) > 1 else words, lambda name: _one(run, name, then))
        stopped = any(name in run.lost or run.counts[name].problem is not None for name in batch)


def _one(run: running.Run, name: str, then: Callable[[str], None]) -> None:
    converge(run, name)
    then(name)
    run.seen.done(name, run.counts[name].outcome())


def converge(run: running.Run, name: str) -> None:
    order: dict[str, object] = {"verb": "check" if run.options.check else "apply", "diff": run.options.diff}
    if run.only[name] is not None:
        order["only"] = run.only[name]
    if run.whole_roles:
        order["roles"] = list(run.whole_roles)
    if run.coming.get(name):
        order["coming"] = run.coming[name]
    answer = run.call(name, order, None if run.staged else manifest.encode(run.manifests[name]))
    if answer.get("unconfirmed_s") is not None and not run.options.check:
        confirm(run, name, float(fields.number(answer, "unconfirmed_s")))


def confirm(run: running.Run, name: str, left_s: float) -> None:
    """Ask the node how it is under its new policy. It puts the former one back itself: at once when unwell, later when nobody asks."""
    answer = run.call(name, {"verb": "power-confirm", "settle_s": max(1, min(SETTLE_S, int(left_s) - 5))})
    if answer.get("confirmed") is not True and run.counts[name].problem is None:
        raise errors.Problem(
            "power-put-back",
            f"{name} did not confirm its new power policy, so the one before is in force again",
            hint=f"invoke power-status --hosts {name} shows what is there now",
        )


def outcome(run: running.Run, name: str) -> fleet.Outcome:
    lost = run.sessions.lost.get(name)
    if lost is not None:
        return fleet.Count().outcome(lost.problem)
    return run.counts[name].outcome(run.lost.get(name))
