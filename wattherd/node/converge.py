"""Brings a node to its manifest: observe, preflight, fix in order, read again, remove what is no longer wanted.

One pass serves check and apply; a check never calls `fix` or `remove`. Knows nothing of SSH: events leave through `emit`.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Set, Tuple

from wattherd import errors, resources, units
from wattherd import machine as machines
from wattherd.node import generations, refused
from wattherd.records import dataclass, field
from wattherd.resources import base, listeners, unit
from wattherd.wire import event, facts, manifest

Emit = Callable[[Mapping[str, Any]], None]
_DIFF_LIMIT_CHARS = 64 * 1024
#: Removed before what may want the same port is made; everything else goes at the end.
_FIRST_TO_GO = ("unit",)


@dataclass(frozen=True)
class Job:
    """What to do with a manifest. `only` limits the run to some ids (tags); such a run removes nothing and makes no generation, but for
    what `roles` (those whose part it brings here whole) no longer want.

    `last` is a run after which no records are wanted: everything goes. `coming` are fingerprints of releases that the run behind a check
    would have shipped here before it converges.
    """

    wanted: manifest.Manifest
    body: bytes
    check: bool = False
    diff: bool = False
    only: Optional[FrozenSet[str]] = None
    roles: FrozenSet[str] = frozenset()
    last: bool = False
    coming: FrozenSet[str] = frozenset()


@dataclass
class Tally:
    """Counts for the recap, and the generation that a whole run made."""

    counts: Dict[str, int] = field(default_factory=lambda: {"ok": 0, "changed": 0, "failed": 0, "skipped": 0})
    generation: Optional[facts.Generation] = None

    def add(self, name: str) -> None:
        self.counts[name] += 1


class Run:
    """One convergence. Lives for one call of `converge`; holds what the steps share."""

    def __init__(self, machine: machines.Machine, job: Job, emit: Emit) -> None:
        self.machine = machine
        self.job = job
        self.emit = emit
        self.tally = Tally()
        self.owned = generations.Owned.load(machine)
        self.touched = False
        self.gone: Set[str] = set()
        self.made: Set[str] = set()
        self.early: List[manifest.Entry] = []
        entries = [entry for entry in job.wanted.resources if job.only is None or entry.id in job.only]
        self.items: List[Tuple[manifest.Entry, base.Resource]] = [(entry, resources.decode(entry)) for entry in entries]
        self.states = self._observe([resource for _, resource in self.items])
        self.states.update({one.id: one.wanted() for _, one in self.items if getattr(one, "fingerprint", None) in job.coming})
        self.replaced: Set[str] = set()
        self.put_off: Dict[str, str] = {}

    def converge(self) -> Tally:
        leaving = self._leaving()
        if not self._preflight(leaving):
            return self.tally
        self.early = [entry for entry in leaving if entry.type in _FIRST_TO_GO]
        late = [entry for entry in leaving if entry.type not in _FIRST_TO_GO]
        if self._fix_all() and self._remove_all(late) and not self.job.check:
            self._settle()
        self.machine.keep_digests()
        return self.tally

    # -- looking

    def _observe(self, wanted: Sequence[base.Resource]) -> Dict[str, Optional[base.State]]:
        """One look per type. A type that cannot look (a conflict on one path) is asked again one by one, in its turn."""
        found: Dict[str, Optional[base.State]] = {}
        for kind in dict.fromkeys(type(one) for one in wanted):
            try:
                found.update(kind.observe(self.machine, [one for one in wanted if type(one) is kind]))
            except (errors.Problem, OSError):
                continue
        return found

    def _state(self, resource: base.Resource) -> Optional[base.State]:
        """The observed state while nothing was touched; afterwards a fresh one, since earlier fixes may have moved it."""
        if not self.touched and resource.id in self.states:
            return self.states[resource.id]
        return resource.actual(self.machine)

    def _preflight(self, leaving: Sequence[manifest.Entry]) -> bool:
        """Everything that can be known to fail is said before anything is touched."""
        problems: List[Tuple[base.Resource, errors.Problem]] = []
        leaving_units = {entry.id for entry in leaving if entry.type == "unit"}
        for _, resource in self.items:
            try:
                state = self._state(resource)
                if base.delta(resource.wanted(), state) and not resource.unsupported(self.machine, state):
                    resource.preflight(self.machine, state)
                    for words in resource.notes(self.machine):
                        self.emit(event.note(words))
            except errors.Problem as problem:
                if not (problem.code == "port-in-use" and f"unit:{problem.context.get('unit')}" in leaving_units):
                    problems.append((resource, problem))
            except OSError as error:
                problems.append((resource, _from_os(self.machine, error)))
        for resource, found in problems:
            self._fail(resource.id, found)
        if problems:
            self._pass_over(len(self.items) - len(problems))
        return not problems

    def _pass_over(self, count: int) -> None:
        """What a failure leaves undone is said and counted, not left to be guessed."""
        self.tally.counts["skipped"] += count
        if count:
            self.emit(event.note(f"{units.plural(count, 'resource')} not looked at after that failure"))

    # -- fixing

    def _fix_all(self) -> bool:
        well = True
        for index, (entry, resource) in enumerate(self.items):
            # A server that goes gives up its port as late as possible: right before the first one that may want it.
            if getattr(resource, "ports", ()) and not (self._remove_early() and self._make_way(resource, self.items[index + 1 :])):
                return False
            if not self._guarded(resource.id, lambda e=entry, r=resource: self._one(e, r)):  # type: ignore[misc]
                well = False
                if not resource.INDEPENDENT:
                    self._pass_over(len(self.items) - index - 1)
                    return False
        return self._remove_early() and well

    def _make_way(self, resource: base.Resource, later: Sequence[Tuple[manifest.Entry, base.Resource]]) -> bool:
        """A server that this run moves to another port gives up its old one before the server that gets it: two may swap."""
        if self.job.check or not base.delta(resource.wanted(), self._state(resource)):
            return True
        movers = {one.name: one for _, one in later if isinstance(one, unit.Unit) and one.ports}
        for holder in listeners.held(self.machine, getattr(resource, "ports", ())):
            mover = movers.get(holder.unit)
            if mover is not None and holder.port not in mover.ports and not self._guarded(mover.id, lambda u=mover: self._step_aside(u)):  # type: ignore[misc]
                return False
        return True

    def _step_aside(self, mover: unit.Unit) -> None:
        """Stopped only: its own turn, in this run or in the next, starts it where it belongs."""
        self._touch(mover.id)
        mover.step_aside(self.machine, self._teller(mover.id))

    def _one(self, entry: manifest.Entry, resource: base.Resource) -> None:
        state = self._state(resource)
        reason = resource.unsupported(self.machine, state)
        if reason:
            self._skip(resource.id, reason)
            return
        difference = base.delta(resource.wanted(), state)
        if self.job.check:
            # What is damaged is still what processes have: they are restarted when it has been put anew, and only then show it.
            difference = {**resource.follows(self.machine, self.replaced), **difference}
            self.replaced.update(resource.replaces(self.machine) if difference else ())
        if not difference:
            self.owned.manage(entry, absent=self._is_ours(entry, resource))
            self.tally.add("ok")
            self.emit(event.ok(resource.id))
            return
        resource.foresee(self.machine, state)
        action = "create" if state is None else "fix"
        shown = self._diff(resource)
        if not self.job.check:
            try:
                self._fix(entry, resource, difference, absent=resource.is_new(self.machine, state) or self._is_ours(entry, resource))
            except base.Deferred as later:
                self._skip(resource.id, str(later))
                return
        self.made.update(resource.takes())
        self.tally.add("changed")
        self.emit(event.changed(resource.id, action, difference, check=self.job.check, diff=shown))

    def _fix(self, entry: manifest.Entry, resource: base.Resource, difference: base.Delta, *, absent: bool) -> None:
        self.emit(event.start(resource.id))
        self._touch(resource.id)
        self.owned.manage(entry, absent=absent)
        self.owned.save()
        resource.fix(self.machine, difference, self._teller(resource.id))
        state = resource.actual(self.machine)
        left = base.delta(resource.wanted(), state)
        if left:
            key, (was, wanted) = next(iter(left.items()))
            raise errors.Problem(
                "resource-failed", f"{key} is still {was!r} after it was set to {wanted!r}", hint="something else on this node sets it back"
            )
        for words in resource.remarks(state):
            self.emit(event.note(words))

    def _is_ours(self, entry: manifest.Entry, resource: base.Resource) -> bool:
        return self.owned.created(entry.id) or resource.ours(self.machine)

    def _diff(self, resource: base.Resource) -> str:
        if not self.job.diff:
            return ""
        import difflib

        old, new = resource.texts(self.machine)
        lines = difflib.unified_diff(old.splitlines(True), new.splitlines(True), f"{resource.id} (now)", f"{resource.id} (wanted)")
        return "".join(line if line.endswith("\n") else line + "\n" for line in lines)[:_DIFF_LIMIT_CHARS]

    def _touch(self, resource_id: str) -> None:
        if not self.touched:
            generations.unsettle(self.machine)
        self.touched = True
        generations.begin(self.machine, "apply", resource_id)

    def _teller(self, resource_id: str) -> base.Tell:
        def tell(words: str, done: float = 0, total: float = 0, unit: str = "") -> None:
            self.emit(event.progress(resource_id, words, done, total, unit))

        return tell

    def _guarded(self, resource_id: str, work: Callable[[], None]) -> bool:
        """Run one step; whatever goes wrong becomes that resource's `failed` event, and the run stops there."""
        try:
            work()
        except errors.Problem as problem:
            self._fail(resource_id, problem)
            return False
        except BrokenPipeError:
            raise
        except OSError as error:
            self._fail(resource_id, _from_os(self.machine, error))
            return False
        return True

    def _fail(self, resource_id: str, problem: errors.Problem) -> None:
        self.tally.add("failed")
        self.emit(event.failed(resource_id, problem))

    # -- removing

    def _leaving(self) -> List[manifest.Entry]:
        """Owned entries that the manifest no longer wants, last first."""
        wanted = {entry.id for entry in self.job.wanted.resources}
        leaving = [self.owned.entry(entry_id) for entry_id in reversed(list(self.owned.rows)) if entry_id not in wanted]
        return [entry for entry in leaving if self.job.only is None or entry.role in self.job.roles]

    def _remove_all(self, leaving: Sequence[manifest.Entry]) -> bool:
        return all(self._guarded(entry.id, lambda e=entry: self._remove(e)) for entry in leaving)  # type: ignore[misc]

    def _remove_early(self) -> bool:
        leaving, self.early = self.early, []
        return self._remove_all(leaving)

    def _remove(self, entry: manifest.Entry) -> None:
        resource = resources.decode(entry)
        if not self._is_ours(entry, resource):
            self._forget(entry.id)
            self._skip(entry.id, "no longer wanted; it was there before Wattherd, so it stays")
            return
        if resource.actual(self.machine) is None:
            self._forget(entry.id)
            return
        kept = resource.kept(self.machine, self.gone, self.made)
        if not kept and not self.job.check:
            self.emit(event.start(entry.id))
            self._touch(entry.id)
            try:
                resource.remove(self.machine, self._teller(entry.id))
            except base.Deferred as later:
                self._skip(entry.id, f"no longer wanted, but left as it is: {later}")
                if resource.gone(self.machine):
                    self._forget(entry.id)
                return
            kept = "" if resource.gone(self.machine) else "it is still there after its removal"
        if kept:
            self._keep(entry.id, kept)
            return
        self.gone.update(resource.takes())
        self._forget(entry.id)
        self.tally.add("changed")
        self.emit(event.changed(entry.id, "remove", {}, check=self.job.check))

    def _keep(self, entry_id: str, words: str) -> None:
        """Looked at again in every run, but said only once: an old release that waits for a rollback is no news every night."""
        if self.job.last:
            self.put_off[entry_id] = words  # what keeps it now may go itself before all is done
        elif self.owned.rows[entry_id].get("kept") != words:
            self._skip(entry_id, f"no longer wanted, but kept: {words}")
            if not self.job.check:
                self.owned.rows[entry_id]["kept"] = words

    def _skip(self, entry_id: str, words: str) -> None:
        self.tally.add("skipped")
        self.emit(event.skipped(entry_id, words))

    def _forget(self, entry_id: str) -> None:
        if not self.job.check:
            self.owned.forget(entry_id)

    # -- the end

    def _settle(self) -> None:
        """The run went through: remember the order, and the generation."""
        if self.job.only is None:
            order = [entry.id for entry in self.job.wanted.resources if entry.id in self.owned.rows]  # what was skipped is not ours
            kept = [entry_id for entry_id in self.owned.rows if entry_id not in set(order)]
            self.owned.rows = {entry_id: self.owned.rows[entry_id] for entry_id in kept + order}
        self.owned.save()
        if self.job.only is None and not self.job.last:
            self.tally.generation = generations.keep(self.machine, self.job.body)
            generations.settle(self.machine)


def _from_os(machine: machines.Machine, error: OSError) -> errors.Problem:
    if isinstance(error, PermissionError):
        return refused.problem(machine, error)
    return errors.Problem("internal", f"{error.strerror or error}: {error.filename or ''}".rstrip(": "))
