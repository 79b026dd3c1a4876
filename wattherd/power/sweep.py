"""One sweep: set a step, wait until the card has come to rest at it, measure one phase of work, go on to the next.

A step counts as set when the card itself says so, as settled when its watts lie still under load, and as measured when nobody else wanted
the card meanwhile. Knows limits and clocks of cards and the load's runs; not which card, nor what the figures are good for.
"""

from __future__ import annotations

from typing import Callable, List, Optional, Sequence, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.policy import knee
from wattherd.power import change, load, look, samples, settings

LIMIT, CLOCKS = "limit_w", "clocks_mhz"
#: A clock lock is kept when the clock under load is at most this much above it.
_CLOCK_SLACK = 1.05
_CLOCK_SLACK_MHZ = 30
#: Below this share of the highest clock cards save nothing more, and many take no lock.
_LOWEST_CLOCK = 0.4
_CLOCK_GRAIN_MHZ = 15
#: Between two looks while the watts settle and while clients are waited for; and within a window, whose ends the energy counter measures.
_SAMPLE_S = 0.5
_COUNTED_S = 1.0
_COUNTED_LOOKS = 4
_READ_BACK_S = 6.0
_SETTLE_LIMIT_S = 30.0
_TRIES = 3
#: A client that works longer than this has the card; the sweep ends politely.
_PATIENCE_S = 60.0

Tell = Callable[[str], None]


class Stopped(Exception):  # noqa: N818 - not an error: clients have the card, and the sweep gives way
    """In words why the sweep ends here. What was measured stands."""


class Rig:
    """The cards that one load works on together, and what of them is turned: `kind` limit_w or clocks_mhz."""

    def __init__(self, machine: machines.Machine, kind: str, uuids: Sequence[str]) -> None:
        self.machine = machine
        self.kind = kind
        self.uuids = tuple(uuids)
        self.notes: List[str] = []

    def sample(self) -> samples.Sample:
        """Raises `card-lost` when a card, or its driver, is gone."""
        begun_s = self.machine.monotonic_s()
        seen = look.look(self.machine)
        cards = [seen.card(uuid) for uuid in self.uuids]
        faults = ["it is not seen any more" if one is None else one.fault for one in cards]
        wrong = seen.fault or next((fault for fault in faults if fault), "")
        if wrong:
            raise errors.Problem("card-lost", f"the card was lost in the middle of the sweep: {wrong}", hint=seen.fault_hint)
        return samples.as_one([one for one in cards if one is not None], (begun_s + self.machine.monotonic_s()) / 2)

    def set(self, value: float) -> samples.Sample:
        """Set every card and read it back. Raises `tune-unfit` (cannot be set at all), `power-permission`, or `power-failed`."""
        for uuid in self.uuids:
            verdict = (
                change.set_limit(self.machine, uuid, value)
                if self.kind == LIMIT
                else change.set_clocks(self.machine, uuid, 0, round(value))
            )
            _refuse(verdict, self.kind)
        return self._read_back(value)

    def _read_back(self, value: float) -> samples.Sample:
        ends_s = self.machine.monotonic_s() + _READ_BACK_S
        while True:
            seen = self.sample()
            if self.kind != LIMIT:
                return seen  # nothing tells of a lock: the clock under load does, later
            asked = seen.requested_w is not None and abs(seen.requested_w - value) <= settings.SLACK_W
            if asked and (seen.enforced_w is None or seen.enforced_w <= value + settings.SLACK_W):
                return seen
            if self.machine.monotonic_s() >= ends_s:
                now = "nothing" if seen.requested_w is None else f"{seen.requested_w:g} W"
                raise errors.Problem(
                    "power-failed",
                    f"the power limit was set to {value:g} W, and the card says {now}",
                    hint="another agent may be setting it too: look for nvidia-smi -pl in timers, containers and other tools on this host",
                )
            self.machine.wait(_SAMPLE_S)


class Measurer:
    """Settles and measures under a load. `seconds_s` is how long one measurement should take."""

    def __init__(self, rig: Rig, work: load.Load, seconds_s: float, tell: Tell) -> None:
        self._rig = rig
        self._machine = rig.machine
        self._load = work
        self._seconds_s = seconds_s
        self._tell = tell

    def measure(self, value: float, away: Callable[[], None]) -> knee.Figure:
        """One phase at one step. While a client has the card, `away` has put back what was set before; then this step is done again.

        Raises `Stopped` when clients keep the card.
        """
        for _ in range(_TRIES):
            self._await_quiet(away)
            count = self._load.interruptions
            self._rig.set(value)
            settled = self._settle(count)
            figure = self._window(settled, count) if self._load.interruptions == count else None
            if figure is not None:
                return figure
        away()
        raise Stopped(f"clients used the server again and again while {value:g} was measured")

    def _await_quiet(self, away: Callable[[], None]) -> None:
        if self._load.is_quiet():
            return
        away()
        ends_s = self._machine.monotonic_s() + _PATIENCE_S
        while not self._load.is_quiet():
            self._tell("a client uses the server: waiting, with the card as it was")
            if self._machine.monotonic_s() > ends_s:
                raise Stopped("clients have been using the server for a minute")
            self._load.check()
            self._machine.wait(_SAMPLE_S)

    def _settle(self, count: int) -> bool:
        """Until the watts lie still under load. False when they did not within the limit, or a client came."""
        seen: List[samples.Sample] = []
        begun_s = self._machine.monotonic_s()
        runs = len(self._load.runs())
        while self._machine.monotonic_s() - begun_s < _SETTLE_LIMIT_S and self._load.interruptions == count:
            self._load.check()
            seen.append(self._rig.sample())
            drawn = "" if seen[-1].watts is None else f", {seen[-1].watts:.0f} W"
            self._tell(f"waiting until the watts lie still{drawn}")
            if len(self._load.runs()) > runs and samples.lies_still(seen):
                return True
            self._machine.wait(_SAMPLE_S)
        return False

    def _window(self, settled: bool, count: int) -> Optional[knee.Figure]:
        """None when a client came in between."""
        first = len(self._load.runs())
        seen = [self._rig.sample()]
        every_s = self._every_s(seen[0])
        while True:
            self._machine.wait(_SAMPLE_S)
            self._load.check()
            now_s = self._machine.monotonic_s()
            self._tell(f"measuring, {now_s - seen[0].at_s:.0f} s")
            if self._load.interruptions != count:
                return None
            if now_s - seen[-1].at_s < every_s:
                continue
            seen.append(self._rig.sample())
            runs = [one for one in self._load.runs()[first:] if one.begun_s >= seen[0].at_s]
            lasted_s = seen[-1].at_s - seen[0].at_s
            if samples.is_enough(runs, lasted_s, self._seconds_s):
                break
            if lasted_s > max(_PATIENCE_S, samples.LONGEST_FOR_RUNS * self._seconds_s) and not runs:
                raise errors.Problem("tune-load", f"no run ended in {lasted_s:.0f} s", hint="try a smaller model, or --seconds-per-step")
        figure = samples.figure_of(seen, runs, settled=settled)
        if figure is None:
            raise errors.Problem("tune-unfit", "the card does not say what it draws, so there is nothing to compare", hint=_WALL)
        return figure

    def _every_s(self, sample: samples.Sample) -> float:
        """Each look costs the host some computing, and an energy counter needs but two: often only where watts are all there is."""
        return _SAMPLE_S if sample.energy_mj is None else max(_COUNTED_S, self._seconds_s / _COUNTED_LOOKS)


_WALL = "such a card needs a wall meter; its power limit can still be set by hand in the inventory (power: limit:)"


def limits(least_w: float, most_w: float, steps: int) -> Tuple[float, ...]:
    """Power limits from `most_w` down to `least_w`, both included, in whole watts of equal distance; fewer where there are not so many."""
    width = (most_w - least_w) / max(steps - 1, 1)
    grain = 5.0 if width >= 10.0 else 1.0
    inner = [round((most_w - at * width) / grain) * grain for at in range(1, steps - 1)]
    return tuple(dict.fromkeys([most_w, *(one for one in inner if least_w < one < most_w), least_w]))


def clocks(most_mhz: int, steps: int) -> Tuple[float, ...]:
    """Clock ceilings from the card's highest down to the share below which nothing is saved, in the grain that drivers take."""
    least = most_mhz * _LOWEST_CLOCK
    width = (most_mhz - least) / max(steps - 1, 1)
    grain = _CLOCK_GRAIN_MHZ
    return tuple(dict.fromkeys([float(most_mhz), *(float(round((most_mhz - at * width) / grain) * grain) for at in range(1, steps))]))


def keeps_clock(figure: knee.Figure, ceiling_mhz: float) -> bool:
    """Whether the clock under load shows the lock, which can be read back nowhere."""
    return figure.clock_mhz is not None and figure.clock_mhz <= max(ceiling_mhz * _CLOCK_SLACK, ceiling_mhz + _CLOCK_SLACK_MHZ)


def _refuse(verdict: change.Verdict, kind: str) -> None:
    if verdict.kind == change.DONE:
        return
    what = "power limit" if kind == LIMIT else "clock ceiling"
    if verdict.kind == change.NO_PERMISSION:
        raise errors.Problem(
            "power-permission",
            f"the {what} could not be set: {verdict.words}",
            hint="it needs root on the host itself: a container, a rented pod and WSL2 cannot do it",
        )
    if verdict.kind in (change.UNSUPPORTED, change.OUT_OF_RANGE):
        raise errors.Problem("tune-unfit", f"the {what} of this card cannot be set: {verdict.words}")
    raise errors.Problem("power-failed", f"the {what} could not be set: {verdict.words or verdict.kind}")
