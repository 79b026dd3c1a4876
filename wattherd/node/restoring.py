"""`power-restore`: every card and the board back to what they were before the first change, and no policy that would set them again.

The policy goes first, or the keeper would put everything back. Killed anywhere, the next restore goes on: what is not yet as it was is
still remembered. A later deploy or power-apply sets everything again.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.node import generations
from wattherd.power import look as looking
from wattherd.power import memory, pending, settle, wanted
from wattherd.resources import base, jetson
from wattherd.wire import event

Emit = Callable[[Mapping[str, Any]], None]
POLICY_ID = "power-policy:node"
VERB = "power-restore"


def restore(machine: machines.Machine, emit: Emit, *, check: bool) -> Mapping[str, Any]:
    """Counts (ok changed failed skipped), after one event for each setting. A check writes nothing and says what a restore would do.

    A card that cannot be reached is a `failed` event, and stays remembered. The caller holds the node's lock, except for a check.
    """
    return _Restore(machine, emit, check=check).run()


class _Restore:
    """One restore: what its steps share."""

    def __init__(self, machine: machines.Machine, emit: Emit, *, check: bool) -> None:
        self.machine = machine
        self.emit = emit
        self.check = check
        self.counts: Dict[str, int] = {"ok": 0, "changed": 0, "failed": 0, "skipped": 0}

    def run(self) -> Mapping[str, Any]:
        before = memory.before(self.machine).get(memory.BOARD, {})
        lost = memory.lost(self.machine)
        if lost:
            self.emit(event.note(f"some of what was remembered here had been damaged: what is not named below stays as it is ({lost})"))
        if not self.machine.exists(wanted.POLICY) and not memory.changed(self.machine) and not before:
            self.emit(event.note("nothing that Wattherd set is in force on a card or board here: there is nothing to go back to"))
            return self.counts
        if not self.check:
            generations.unsettle(self.machine)
            generations.begin(self.machine, VERB, POLICY_ID)
        self._policy()
        self._cards()
        for setting in ("pinned", "mode", "fan"):
            if setting in before:
                self._board(setting, before[setting])
        if not self.check:
            self._disown_settled()
            generations.finish(self.machine)
        return self.counts

    def _policy(self) -> None:
        if not self.machine.exists(wanted.POLICY):
            return
        if not self.check:
            self.machine.unlink(wanted.POLICY)
            self.machine.sync_folder(wanted.FOLDER)
            pending.settle(self.machine)
        self._changed(POLICY_ID, "remove", {})

    def _cards(self) -> None:
        if not memory.changed(self.machine):
            return
        look = looking.look(self.machine, wake=True)
        if self.check:
            steps = settle.foresee_restore(self.machine, look)
        else:
            steps = settle.restore(self.machine, look, lambda words: self.emit(event.progress(POLICY_ID, words, 0, 0)))
        for step in steps:
            self._step(step)

    def _step(self, step: settle.Step) -> None:
        name = f"power:{step.uuid}/{step.setting}"
        if step.problem is not None:
            self._failed(name, step.problem)
        elif step.outcome == settle.CHANGED:
            self._changed(name, "fix", {step.setting: (step.was, step.now)})
            if step.words:
                self.emit(event.note(step.words))
        else:
            self._skipped(name, step.words)

    def _board(self, setting: str, before: object) -> None:
        """A Jetson's own: a mode that takes a reboot for it comes back with the next boot, and that is said."""
        shown = {True: "yes", False: "no"}[before] if isinstance(before, bool) else str(before)
        one = jetson.Jetson(setting, shown)
        told: List[str] = []
        try:
            was = (one.actual(self.machine) or {}).get(setting)
            if not self.check:
                one.remove(self.machine, lambda words, done=0, total=0, unit="": told.append(words))  # noqa: ARG005 - a Tell
        except base.Deferred as later:
            self._skipped(one.id, str(later))
        except errors.Problem as problem:
            self._failed(one.id, problem)
        else:
            if told:
                self._skipped(one.id, "; ".join(told))
            else:
                self._changed(one.id, "fix", {setting: (was, shown)})

    # -- telling

    def _changed(self, name: str, action: str, delta: Mapping[str, Tuple[object, object]]) -> None:
        if not self.check:
            self._disown(name)
        self.counts["changed"] += 1
        self.emit(event.changed(name, action, delta, check=self.check))

    def _disown(self, name: str) -> None:
        """As it was before Wattherd, so it is not Wattherd's any more: a later `remove` leaves it alone."""
        owned = generations.Owned.load(self.machine)
        if name in owned.rows:
            owned.forget(name)
            owned.save()

    def _disown_settled(self) -> None:
        """What was as before already makes no step, and is no more Wattherd's than the rest."""
        left = memory.changed(self.machine)
        owned = generations.Owned.load(self.machine)
        gone = [name for name in owned.rows if name.startswith("power:") and not _is_changed(left, name)]
        for name in gone:
            owned.forget(name)
        if gone:
            owned.save()

    def _failed(self, name: str, problem: errors.Problem) -> None:
        self.counts["failed"] += 1
        self.emit(event.failed(name, problem))

    def _skipped(self, name: str, words: str) -> None:
        self.counts["skipped"] += 1
        self.emit(event.skipped(name, words))


def _is_changed(left: Mapping[str, Tuple[str, ...]], name: str) -> bool:
    uuid, _, setting = name.partition(":")[2].rpartition("/")
    return setting in left.get(uuid, ())
