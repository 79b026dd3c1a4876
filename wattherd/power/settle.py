"""The one enforcer: brings cards to a policy, or back to what they were, and believes only what they then say of themselves.

Used by the resource, the keeper, restore and put-back alike. Idempotent: when all is as wanted nothing is written and nothing is run;
killed anywhere, the next call converges. Cards only: a Jetson's board has its own (wattherd.power.jetson).
"""

from __future__ import annotations

from typing import Callable, List, Optional, Protocol, Sequence, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.power import change, faults, memory, reading, settings, wanted
from wattherd.power import look as looking
from wattherd.power.settings import Value
from wattherd.records import dataclass, field

CHANGED, UNSUPPORTED, FAILED = "changed", "unsupported", "failed"
#: Right after boot a write may reach one card and not its neighbour: read back, and write again.
TRIES = 3
RETRY_S = 0.4
#: A locked clock may differ from the lock by a step or two; beyond this the lock is not there any more.
_CLOCK_SLACK_MHZ = 50
_CLOCK_SLACK = 0.03
_HOPELESS = (change.UNSUPPORTED, change.OUT_OF_RANGE, change.NO_PERMISSION, change.LOST, change.MISMATCH, change.SILENT)


class Tell(Protocol):
    """Words about what is being done."""

    def __call__(self, words: str) -> None: ...


@dataclass(frozen=True)
class Step:
    """What became of one setting of one card: changed (and read back), unsupported, or failed. What was right already makes no step.

    `was` and `now` are as `settings.shown` shows them; `words` is what there is to add: the reason, or what else holds the card.
    """

    uuid: str
    setting: str
    outcome: str
    card: str = ""
    was: str = ""
    now: str = ""
    words: str = ""
    problem: Optional[errors.Problem] = None

    @property
    def key(self) -> Tuple[str, str]:
        return self.uuid, self.setting


@dataclass
class _Task:
    """One setting on its way. `back` is a return to what was before, `guessed` to the default in its stead; `first` is a first change."""

    card: reading.Card
    setting: str
    value: Value
    was: Optional[Value]
    back: bool = False
    guessed: bool = False
    first: bool = False
    verdict: change.Verdict = field(default_factory=lambda: change.Verdict(change.FAILED, "it was not tried"))

    @property
    def key(self) -> Tuple[str, str]:
        return self.card.uuid, self.setting


def apply(
    machine: machines.Machine,
    policy: wanted.Policy,
    look: reading.Look,
    tell: Tell,
    *,
    still: Callable[[], bool] = lambda: True,
) -> Tuple[Step, ...]:
    """Make the cards what `policy` says; one step for each setting that was changed or could not be.

    `look` is a fresh one; a card that sleeps in it is left asleep. `still` is asked once the power lock is held: False is a policy that is
    no longer wanted, and nothing is done.
    Nothing raises for one card: a step's `problem` tells (power-range, card-unknown, card-lost, power-permission, power-failed,
    driver-silent, driver-mismatch, disk-full). Raises `node-busy` when something else changes the cards for a minute.
    """
    steps, tasks = _compare(machine, policy, look)
    if tasks:
        with memory.alone(machine):
            if not still():
                return ()
            lost = _remember(machine, tasks)
            steps += [*lost, *_carry_out(machine, [one for one in tasks if one.key not in {step.key for step in lost}], look, tell)]
    return tuple(steps)


def _remember(machine: machines.Machine, tasks: Sequence[_Task]) -> List[Step]:
    """What is there now, of each that is changed for the first time. A step for each that could not be written down: it is left alone."""
    steps: List[Step] = []
    for task in tasks:
        try:
            task.first = memory.remember(machine, task.card.uuid, task.setting, _before(machine, task))
        except (errors.Problem, OSError) as error:  # a full disk; what is remembered already can still be held
            shown = settings.shown(task.setting, task.was)
            steps.append(Step(task.card.uuid, task.setting, FAILED, task.card.shown, shown, problem=_unwritten(error)))
    return steps


def _unwritten(error: Exception) -> errors.Problem:
    return error if isinstance(error, errors.Problem) else errors.Problem("permission", f"{wanted.STATE} cannot be written: {error}")


def restore(machine: machines.Machine, look: reading.Look, tell: Tell, *, only: Optional[Tuple[str, str]] = None) -> Tuple[Step, ...]:
    """Bring every setting that was ever changed, or `only` (UUID, setting), back to its value before the first change, and forget that.

    `look` is a fresh one, with all cards awake. A card that cannot be reached makes a failed step and stays remembered. Where the value
    before is not known the limit goes to the card's own default, if it names one; everything else stays as it is, and the step says so.
    """
    with memory.alone(machine):
        steps, tasks, settled = _compare_before(machine, look, only)
        for uuid, setting in settled:
            memory.forget(machine, uuid, setting)
        return (*steps, *_carry_out(machine, tasks, look, tell))


def foresee_restore(machine: machines.Machine, look: reading.Look) -> Tuple[Step, ...]:
    """What `restore` would do with all of them, as its steps. Reads only."""
    steps, tasks, _ = _compare_before(machine, look, None)
    shown = [(task, settings.shown(task.setting, task.was), settings.shown(task.setting, task.value)) for task in tasks]
    return (*steps, *(Step(task.card.uuid, task.setting, CHANGED, task.card.shown, was, now) for task, was, now in shown))


def current(machine: machines.Machine, look: reading.Look, card: reading.Card, setting: str) -> Optional[Value]:
    """What the card has now: what it says itself, and for clocks our own record while its epoch is the current one; None is unknown."""
    return memory.last_set(machine, card.uuid, setting, look.epoch) if setting in settings.LOCKS else settings.read(card, setting)


def obstacle(machine: machines.Machine, look: reading.Look, card: reading.Card, setting: str) -> str:
    """Why the card cannot have this setting: what it says itself, or what this driver said when it was tried; empty where it may."""
    return settings.cannot(card, setting) or memory.unsupported(machine, card.uuid, setting, look.driver)


def clock_suspect(card: reading.Card, policy: wanted.CardPolicy) -> str:
    """Proof that a clock lock is not there any more, in words: a clock above its ceiling. Empty for every clock that the lock explains.

    A lock can be read nowhere, so it is the sampled clock (best under load) that tells. A clock below the range proves nothing: power, heat
    and idleness lower it.
    """
    pairs = (
        (settings.CLOCKS, policy.clocks_mhz, card.clocks.sm_mhz),
        (settings.MEMORY_CLOCKS, policy.memory_clocks_mhz, card.clocks.memory_mhz),
    )
    for setting, range_mhz, now_mhz in pairs:
        if range_mhz and now_mhz is not None and now_mhz > range_mhz[-1] + max(_CLOCK_SLACK_MHZ, range_mhz[-1] * _CLOCK_SLACK):
            return f"{card.shown}: it runs at {now_mhz} MHz, and its {settings.NAMES[setting]} ends at {range_mhz[-1]} MHz"
    return ""


# -- what differs


def _compare(machine: machines.Machine, policy: wanted.Policy, look: reading.Look) -> Tuple[List[Step], List[_Task]]:
    steps: List[Step] = []
    tasks: List[_Task] = []
    for uuid, card_policy in policy.cards.items():
        card, problem = faults.find(machine, look, uuid)
        if card is not None and card.suspended:
            continue  # draws nothing, and has nothing that could be compared; whoever wants it set wakes it with his look
        for setting, value in settings.of(card_policy).items():
            if card is None:
                steps.append(Step(uuid, setting, FAILED, problem=problem))
                continue
            was = current(machine, look, card, setting)
            if settings.agrees(setting, value, was):
                continue
            reason = obstacle(machine, look, card, setting)
            if reason:
                steps.append(Step(uuid, setting, UNSUPPORTED, card.shown, words=reason))
                continue
            try:
                settings.check(card, setting, value)
                tasks.append(_Task(card, setting, value, was))
            except errors.Problem as refused:
                steps.append(Step(uuid, setting, FAILED, card.shown, problem=refused))
    return steps, tasks


def _compare_before(
    machine: machines.Machine, look: reading.Look, only: Optional[Tuple[str, str]]
) -> Tuple[List[Step], List[_Task], List[Tuple[str, str]]]:
    """Steps that are told already, what there is to write, and what may be forgotten without writing."""
    steps: List[Step] = []
    tasks: List[_Task] = []
    settled: List[Tuple[str, str]] = []
    order = list(settings.COUNTS)
    pairs = [(uuid, setting) for uuid, row in memory.changed(machine).items() for setting in row if only in (None, (uuid, setting))]
    # Persistence goes last: without it the driver may forget the others at once.
    for uuid, setting in sorted(pairs, key=lambda one: (one[0], -order.index(one[1]) if one[1] in order else 0)):
        card, problem = faults.find(machine, look, uuid)
        if card is None:
            steps.append(Step(uuid, setting, FAILED, problem=problem))
            continue
        before = memory.value_before(machine, uuid, setting)
        value = settings.default(card, setting) if before is None else before
        was = current(machine, look, card, setting)
        if value is not None and (setting in settings.LOCKS or not settings.agrees(setting, value, was)):
            tasks.append(_Task(card, setting, value, was, back=True, guessed=before is None))
            continue
        settled.append((uuid, setting))
        if value is None:
            words = f"what its {settings.NAMES.get(setting, setting)} was before is not known: it stays as it is"
            steps.append(Step(uuid, setting, UNSUPPORTED, card.shown, words=words))
    return steps, tasks, settled


def _before(machine: machines.Machine, task: _Task) -> object:
    """What to remember: nothing where what the card has is our own doing and the record of what was there is lost."""
    if task.setting in settings.LOCKS:
        return []
    ours = memory.last_set(machine, task.card.uuid, task.setting)
    return None if task.was is None or (ours is not None and settings.agrees(task.setting, ours, task.was)) else list(task.was)


# -- writing, and reading back


def _carry_out(machine: machines.Machine, tasks: Sequence[_Task], look: reading.Look, tell: Tell) -> List[Step]:
    steps: List[Step] = []
    left = list(tasks)
    for attempt in range(TRIES):
        if not left:
            break
        if attempt:
            machine.wait(RETRY_S)
        for task in left:
            tell(f"{task.card.shown}: {settings.NAMES[task.setting]} to {settings.shown(task.setting, task.value)}")
            task.verdict = _write(machine, task)
        life, look = look.epoch, looking.look(machine, wake=True)
        waiting = []
        for task in left:
            if look.epoch != life and task.verdict.kind == change.DONE and task.setting in settings.LOCKS:
                # The driver began anew between the writing and the look: no reader can show that a lock went with it.
                task.verdict = change.Verdict(change.FAILED, "the driver was loaded anew while it was set")
            step = _judge(machine, task, look, last=attempt == TRIES - 1)
            if step is None:
                waiting.append(task)
            else:
                steps.append(step)
        left = waiting
    return steps


def _write(machine: machines.Machine, task: _Task) -> change.Verdict:
    uuid, value = task.card.uuid, task.value
    if task.setting == settings.LIMIT:
        return change.set_limit(machine, uuid, value[0])
    if task.setting == settings.PERSISTENCE:
        return change.set_persistence(machine, uuid, bool(value[0]))
    if task.setting == settings.TEMPERATURE:
        return change.set_temperature(machine, uuid, int(value[0]))
    if task.setting == settings.CLOCKS:
        return change.set_clocks(machine, uuid, int(value[0]), int(value[1])) if value else change.reset_clocks(machine, uuid)
    return change.set_memory_clocks(machine, uuid, int(value[0]), int(value[1])) if value else change.reset_memory_clocks(machine, uuid)


def _judge(machine: machines.Machine, task: _Task, look: reading.Look, *, last: bool) -> Optional[Step]:
    """What became of it, by what the card says now; None while another try may help."""
    uuid, setting, kind = task.card.uuid, task.setting, task.verdict.kind
    card, problem = faults.find(machine, look, uuid)
    if card is None:
        return Step(uuid, setting, FAILED, task.card.shown, settings.shown(setting, task.was), problem=problem)
    found = settings.read(card, setting)
    is_set = kind == change.DONE if setting in settings.LOCKS else settings.agrees(setting, task.value, found)
    if is_set:
        try:
            return _done(machine, task, card, look)
        except errors.Problem as problem:  # a full disk: set, and not written down. The other cards are judged all the same
            return Step(
                uuid, setting, FAILED, card.shown, settings.shown(setting, task.was), settings.shown(setting, found), problem=problem
            )
    if not last and kind not in _HOPELESS:
        return None
    was, now = settings.shown(setting, task.was), settings.shown(setting, found)
    if kind == change.UNSUPPORTED:
        return _unsupported(machine, task, look, was)
    wished = settings.shown(setting, task.value)
    return Step(uuid, setting, FAILED, card.shown, was, now, problem=faults.refused(card, setting, task.verdict, wished, now))


def _done(machine: machines.Machine, task: _Task, card: reading.Card, look: reading.Look) -> Step:
    words = [settings.held_lower(card)] if task.setting == settings.LIMIT else []
    if task.back:
        memory.forget(machine, card.uuid, task.setting)
        words += ["what it was before is not known: this is the card's own default"] if task.guessed else []
    else:
        memory.keep_set(machine, card.uuid, task.setting, task.value, look.epoch)
        words += settings.forgetful(card, task.setting)
    shown = (settings.shown(task.setting, task.was), settings.shown(task.setting, task.value))
    return Step(card.uuid, task.setting, CHANGED, card.shown, *shown, words="; ".join(one for one in words if one))


def _unsupported(machine: machines.Machine, task: _Task, look: reading.Look, was: str) -> Step:
    """Nothing was changed, so there is nothing to go back to; and it is not tried again while this driver runs."""
    uuid, setting = task.card.uuid, task.setting
    reason = settings.refused(setting)
    memory.keep_unsupported(machine, uuid, setting, look.driver, reason)
    if task.first or task.back:
        memory.forget(machine, uuid, setting)
    return Step(uuid, setting, UNSUPPORTED, task.card.shown, was, words=reason)
