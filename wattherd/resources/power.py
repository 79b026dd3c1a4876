"""What the owner chose for the cards of a node: one setting of one card each, and the policy that the keeper holds them to.

A value is written through nvidia-smi and counts as set only when the card itself says so (wattherd.power.settle). Removal returns the card
to what it was before the first change. Knows no per cent, no budget and no Jetson.
"""

from __future__ import annotations

import hashlib
import weakref
from typing import ClassVar, Dict, Mapping, MutableMapping, Optional, Sequence, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.power import faults, health, memory, pending, reading, settings, settle, wanted
from wattherd.power import look as looking
from wattherd.records import dataclass, field
from wattherd.resources import base, place

#: A look at eight cards takes seconds where the driver has let them go: what is only judged before the writing shares one that is so fresh.
_FRESH_S = 5.0
_LAST: MutableMapping[machines.Machine, Tuple[float, reading.Look]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Power(base.Resource):
    """One `setting` of the card `uuid`: limit_w (watts), clocks_mhz, memory_clocks_mhz (least, most), persistence (1 or 0), temperature_c.

    `card` is its name for messages. `unfit` is why this card cannot have the setting, where the controller knows: then it is skipped.
    """

    TYPE: ClassVar[str] = "power"
    INDEPENDENT: ClassVar[bool] = True

    uuid: str
    setting: str
    value: Tuple[float, ...] = ()
    card: str = ""
    unfit: str = ""

    def __post_init__(self) -> None:
        count = settings.COUNTS.get(self.setting)
        if count is None:
            names = ", ".join(settings.COUNTS)
            raise errors.Problem("manifest-invalid", f"{self.id}: no setting '{self.setting}' here (there are: {names})")
        if len(self.value) != count and not (self.unfit and not self.value):
            raise errors.Problem("manifest-invalid", f"{self.id}: {self.setting} takes {count} numbers, not {len(self.value)}")

    @property
    def id(self) -> str:
        return f"power:{self.uuid}/{self.setting}"

    def wanted(self) -> base.State:
        return {self.setting: settings.shown(self.setting, self.value) if self.value else "none"}

    def actual(self, machine: machines.Machine) -> Optional[base.State]:
        return {} if self.unfit else self._state(machine, _look_again(machine))

    @classmethod
    def observe(cls, machine: machines.Machine, batch: Sequence[Power]) -> Mapping[str, Optional[base.State]]:
        """One look at the cards serves all of them."""
        if all(one.unfit for one in batch):
            return {one.id: {} for one in batch}
        look = _look_again(machine)
        return {one.id: {} if one.unfit else one._state(machine, look) for one in batch}  # noqa: SLF001 - of this very class

    def _state(self, machine: machines.Machine, look: reading.Look) -> Optional[base.State]:
        """None where the card is not here, and for a lock on clocks that we have not set.

        Beside the value: `unsupported` (why the card cannot have it), `fault` (why nothing can be set now), `remarks` (what else holds it,
        and whether it will last).
        """
        card, problem = faults.find(machine, look, self.uuid)
        if card is None:
            return None if problem is not None and problem.code == "card-unknown" else {self.setting: None, "fault": str(problem)}
        now = settle.current(machine, look, card, self.setting)
        if settings.agrees(self.setting, self.value, now):
            now = self.value
        reason = "" if now == self.value else settle.obstacle(machine, look, card, self.setting)
        if now is None and not reason and self.setting in settings.LOCKS:
            return None
        state: Dict[str, object] = {self.setting: None if now is None else settings.shown(self.setting, now)}
        held = settings.held_lower(card) if self.setting == settings.LIMIT else ""
        more = {"unsupported": reason, "remarks": [*settings.forgetful(card, self.setting), *([held] if held else [])]}
        return {**state, **{key: words for key, words in more.items() if words}}

    def unsupported(self, machine: machines.Machine, state: Optional[base.State]) -> str:  # noqa: ARG002 - the state has it
        return self.unfit or str((state or {}).get("unsupported", ""))

    def preflight(self, machine: machines.Machine, state: Optional[base.State]) -> None:
        """Refuses the operator's own mistakes: a UUID that no card here ever had, a value that this card does not take.

        A card that is lost, and a driver that does not answer, are no reason to leave the rest of the node undone: `foresee` tells.
        """
        if self.unfit or (state or {}).get("fault"):
            return
        card, problem = faults.find(machine, _look(machine), self.uuid)
        if card is not None:
            settings.check(card, self.setting, self.value)
        elif problem is not None and problem.code == "card-unknown":
            raise problem

    def foresee(self, machine: machines.Machine, state: Optional[base.State]) -> None:
        if (state or {}).get("fault"):
            _, problem = faults.find(machine, _look(machine), self.uuid)
            if problem is not None:
                raise problem

    def notes(self, machine: machines.Machine) -> Tuple[str, ...]:
        if self.unfit or self.setting not in settings.LOCKS:
            return ()
        card = _look(machine).card(self.uuid)
        if card is None or card.fault:
            return ()
        return settings.doubts(card, self.setting, self.value)

    def remarks(self, state: Optional[base.State]) -> Tuple[str, ...]:
        return tuple((state or {}).get("remarks", ()))

    def fix(self, machine: machines.Machine, delta: base.Delta, tell: base.Tell) -> None:  # noqa: ARG002 - settle compares for itself
        policy = wanted.Policy(cards={self.uuid: settings.policy(self.setting, self.value)})
        look = _look(machine)
        _LAST.pop(machine, None)
        for step in settle.apply(machine, policy, look, tell):
            if step.problem is not None:
                raise step.problem
            if step.outcome == settle.UNSUPPORTED:
                raise base.Deferred(step.words)

    def remove(self, machine: machines.Machine, tell: base.Tell) -> None:
        """Back to the value before the first change. A card that is lost has nothing to be set back: a reboot gives it its default."""
        look = _look_again(machine)
        _LAST.pop(machine, None)
        for step in settle.restore(machine, look, tell, only=(self.uuid, self.setting)):
            if step.problem is None:
                if step.words:  # what it is set back to was told while it was
                    tell(step.words)
            elif step.problem.code == "card-lost" or look.fault_kind == "no-driver":
                tell(f"{step.problem.message}; nothing to set back")
                memory.forget(machine, self.uuid, self.setting)
            else:
                raise step.problem

    def is_new(self, machine: machines.Machine, state: Optional[base.State]) -> bool:  # noqa: ARG002 - the card was there before
        return False

    def ours(self, machine: machines.Machine) -> bool:
        """The node remembers what it was before: without that there is nothing to go back to."""
        return self.setting in memory.changed(machine).get(self.uuid, ())

    def gone(self, machine: machines.Machine) -> bool:
        return not self.ours(machine)

    def takes(self) -> Tuple[str, ...]:
        return ()


def _look_again(machine: machines.Machine) -> reading.Look:
    look = looking.look(machine, wake=True)
    _LAST[machine] = (machine.monotonic_s(), look)
    return look


def _look(machine: machines.Machine) -> reading.Look:
    at_s, look = _LAST.get(machine, (0.0, None))
    if look is not None and machine.monotonic_s() - at_s < _FRESH_S:
        return look
    return _look_again(machine)


@dataclass(frozen=True)
class PowerPolicy(base.Resource):
    """The policy file (wattherd.power.wanted) that the keeper re-applies; `text` is what `wanted.encode` gives."""

    TYPE: ClassVar[str] = "power-policy"

    text: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        wanted.decode(self.text)

    @property
    def id(self) -> str:
        return "power-policy:node"

    def wanted(self) -> base.State:
        return {"sha256": hashlib.sha256(self.text.encode()).hexdigest()}

    def actual(self, machine: machines.Machine) -> Optional[base.State]:
        body = wanted.small(machine, wanted.POLICY)
        return None if body is None else {"sha256": hashlib.sha256(body).hexdigest()}

    def fix(self, machine: machines.Machine, delta: base.Delta, tell: base.Tell) -> None:  # noqa: ARG002 - one surface for every type
        """The way back is written first: a policy that nobody confirms goes (wattherd.power.pending)."""
        machine.make_dirs(wanted.FOLDER)
        place.sweep(machine, wanted.POLICY)
        pending.begin(machine, self.text, health.take(machine, looking.look(machine)))
        machine.write(wanted.POLICY, self.text.encode(), mode=0o644)

    def remove(self, machine: machines.Machine, tell: base.Tell) -> None:  # noqa: ARG002 - one surface for every type
        place.sweep(machine, wanted.POLICY)
        machine.unlink(wanted.POLICY)
        pending.settle(machine)

    def takes(self) -> Tuple[str, ...]:
        return (wanted.POLICY,)

    def texts(self, machine: machines.Machine) -> Tuple[str, str]:
        return pending.current(machine) or "", self.text
