"""One sweep on this node: a card, a load, step by step, and everything set back at its end, whatever the end is.

The value that was there is on disk, and a guard is at its post, before the first change.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Mapping, Tuple

from wattherd import errors, records, units
from wattherd import machine as machines
from wattherd.node import tuning_choice, tuning_guard, tuning_job, tuning_use
from wattherd.policy import knee
from wattherd.power import beside, change, load, look, memory, reading, served, sweep, tuning_record
from wattherd.wire import event, fields

Emit = Callable[[Mapping[str, Any]], None]

#: What a measurement takes beside its own seconds, about: setting, reading back, coming to rest.
_SETTLE_S = 6.0
_LOADING_S = 20.0


def tune(machine: machines.Machine, order: fields.Document, emit: Emit, start: load.Start = beside.Beside) -> Mapping[str, Any]:
    """Order and answer: docs/protocol.md, `power-tune`. With `check` only what would be done is told, and nothing is touched."""
    job = tuning_job.job_of(order)
    chosen = tuning_choice.choose(machine, look.look(machine), job)
    if job.check:
        return {"plan": _plan(job, chosen)}
    left = tuning_record.read(machine)
    if left is not None:
        raise errors.Problem(
            "card-busy",
            f"an earlier sweep's card is not set back yet: {', '.join(left.cards)}",
            hint="its driver may be stuck: nvidia-smi on the host tells; invoke power-status shows the card",
        )
    observed = tuning_use.observed(machine, chosen)
    with tuning_record.hold(machine):
        try:
            result = Run(machine, job, chosen, emit, start).carry_out()
        except errors.Problem as problem:
            if problem.code != "tune-unfit" or chosen.span.kind != sweep.LIMIT:
                raise
            # The card tells a range and takes none of it (laptops): remembered, so that the choice falls on its clocks.
            for card in chosen.cards:
                memory.keep_unsupported(machine, card.uuid, sweep.LIMIT, chosen.driver, problem.message)
            chosen = tuning_choice.choose(machine, look.look(machine), job)
            result = Run(machine, job, chosen, emit, start).carry_out()
    return {"plan": _plan(job, chosen), "observed": observed, **result}


def _plan(job: tuning_job.Job, chosen: tuning_choice.Chosen) -> Dict[str, Any]:
    values = _values(chosen, job)
    per_phase_s = len(values) * (job.seconds_s + _SETTLE_S) + _LOADING_S
    return {
        "cards": [{"uuid": one.uuid, "name": one.name} for one in chosen.cards],
        "kind": chosen.span.kind,
        "values": list(values),
        "before_w": chosen.cards[0].limits.requested_w,
        "load": chosen.words,
        "model": chosen.model,
        "build": chosen.build,
        "driver": chosen.driver,
        "seconds": round(len(knee.PHASES) * per_phase_s),
        "notes": list(chosen.span.notes),
    }


def _values(chosen: tuning_choice.Chosen, job: tuning_job.Job) -> Tuple[float, ...]:
    """Before anything is measured: the whole range."""
    if chosen.span.kind == sweep.LIMIT:
        return sweep.limits(chosen.span.least, chosen.span.most, job.steps)
    return sweep.clocks(round(chosen.span.most), job.steps)


class Run:
    """One sweep while it runs. Lives for one call of `carry_out`."""

    def __init__(self, machine: machines.Machine, job: tuning_job.Job, chosen: tuning_choice.Chosen, emit: Emit, start: load.Start) -> None:
        self._machine = machine
        self._job = job
        self._chosen = chosen
        self._emit = emit
        self._start = start
        self._rig = sweep.Rig(machine, chosen.span.kind, [one.uuid for one in chosen.cards])
        self._record = _record(machine, chosen)
        self._values = _values(chosen, job)
        self._figures: Dict[Tuple[str, float], knee.Figure] = {}
        self._notes: List[str] = []
        self._done = tuning_record.Restored()
        self._begun_s = machine.monotonic_s()

    def carry_out(self) -> Mapping[str, Any]:
        """The caller holds the lock of `tuning_record`. What was there is back when this returns or raises, or stays on record."""
        stopped = ""
        with self._held():
            try:
                for phase in knee.PHASES:
                    self._phase(phase)
            except sweep.Stopped as why:
                stopped = str(why)
        return {
            "steps": [fields.plain(one) for one in self._steps()],
            "notes": self._notes,
            "stopped": stopped,
            "restored": list(self._done.words),
            "not_restored": list(self._done.left),
        }

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        tuning_record.write(self._machine, self._record)
        try:
            tuning_guard.start(self._machine)
            self._keep_persistent()
            yield
        finally:
            self._done = tuning_record.restore(self._machine)

    def _keep_persistent(self) -> None:
        """Without persistence the driver forgets a limit as soon as no program has the card open: between two loads."""
        for card in self._chosen.cards:
            if card.persistence is False:
                verdict = change.set_persistence(self._machine, card.uuid, on=True)
                if verdict.kind != change.DONE:
                    self._notes.append(f"{card.shown}: persistence mode could not be switched on ({verdict.words or verdict.kind})")

    def _phase(self, phase: str) -> None:
        work = self._load()
        try:
            self._rig.set(self._values[0])
            work.begin(phase, self._tell)
            measurer = sweep.Measurer(self._rig, work, self._job.seconds_s, self._tell)
            at = 0
            while at < len(self._values):
                self._step(phase, at, measurer)
                at += 1
        finally:
            work.end()
            if work.interruptions:
                times = units.plural(work.interruptions, "time")
                self._notes.append(f"clients used the server {times} during {phase}: it was theirs, and those steps were measured again")

    def _step(self, phase: str, at: int, measurer: sweep.Measurer) -> None:
        value = self._values[at]
        figure = measurer.measure(value, self._put_back)
        if self._chosen.span.kind == sweep.CLOCKS and at > 0 and not sweep.keeps_clock(figure, value):
            raise errors.Problem(
                "tune-unfit",
                f"the card takes a clock ceiling of {value:g} MHz and runs at {figure.clock_mhz or '?'} MHz all the same",
                hint="its driver ignores the lock: neither limits nor clocks can be tuned here",
            )
        self._figures[phase, value] = figure
        if not at and phase == knee.PHASES[0]:
            self._from_plateau(value, figure)
        self._told(phase, value, figure)

    def _from_plateau(self, most: float, figure: knee.Figure) -> None:
        """A first step that does not bind shows what the card draws by itself: steps between there and here would measure the same."""
        if self._chosen.span.kind != sweep.LIMIT:
            return
        count = len(self._chosen.cards)
        drawn_w = figure.watts / count
        if not knee.binds(knee.Step(sweep.LIMIT, most, prefill=figure, cards=count)) and self._chosen.span.least < drawn_w < most:
            self._values = (most, *sweep.limits(self._chosen.span.least, float(int(drawn_w)), self._job.steps - 1))

    def _load(self) -> load.Load:
        if self._chosen.server is None:
            return load.Bench(self._machine, self._chosen.bench, self._start)
        return served.Serving(self._machine, self._chosen.server, self._chosen.others)

    def _put_back(self) -> None:
        """A client has the card: he gets it as it was. The record stays, for the sweep is not over."""
        for uuid, before in self._record.cards.items():
            if self._chosen.span.kind == sweep.LIMIT and before.limit_w is not None:
                change.set_limit(self._machine, uuid, before.limit_w)
            elif before.clocks_mhz:
                change.set_clocks(self._machine, uuid, *before.clocks_mhz[:2])
            elif self._chosen.span.kind == sweep.CLOCKS:
                change.reset_clocks(self._machine, uuid)

    # -- what is told

    def _tell(self, words: str) -> None:
        self._emit(event.progress(self._id, words, len(self._figures), self._total, "steps"))

    def _told(self, phase: str, value: float, figure: knee.Figure) -> None:
        done = len(self._figures)
        left_s = (self._machine.monotonic_s() - self._begun_s) / done * (self._total - done)
        empty = knee.Step(self._chosen.span.kind, value, cards=len(self._chosen.cards))
        step = records.replace(empty, prefill=figure) if phase == knee.PREFILL else records.replace(empty, decode=figure)
        self._emit(event.step(self._id, fields.plain(step), done, self._total, round(left_s)))

    @property
    def _total(self) -> int:
        return len(knee.PHASES) * len(self._values)

    @property
    def _id(self) -> str:
        return f"power-tune:{self._chosen.cards[0].uuid}"

    def _steps(self) -> List[knee.Step]:
        kind, count = self._chosen.span.kind, len(self._chosen.cards)
        found = [
            knee.Step(kind, value, "", self._figures.get((knee.PREFILL, value)), self._figures.get((knee.DECODE, value)), count)
            for value in self._values
        ]
        return [one for one in found if one.prefill is not None or one.decode is not None]


def _record(machine: machines.Machine, chosen: tuning_choice.Chosen) -> tuning_record.Record:
    cards = {one.uuid: _before(machine, one, chosen) for one in chosen.cards}
    return tuning_record.Record(machine.boot_id(), chosen.epoch, cards)


def _before(machine: machines.Machine, card: reading.Card, chosen: tuning_choice.Chosen) -> tuning_record.Before:
    held = tuple(round(one) for one in memory.last_set(machine, card.uuid, sweep.CLOCKS, chosen.epoch) or ())
    return tuning_record.Before(card.limits.requested_w, held, card.persistence, (chosen.span.kind, "persistence"))
