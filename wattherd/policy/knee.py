"""Where the knee of a sweep lies: the step with the least energy per token that keeps the speed its user asked for. Pure.

Watts, tokens per second, tokens per joule, per cent. Two steps whose difference is within what was measured twice at one step are equal.
"""

from __future__ import annotations

import math
from typing import List, Optional, Sequence, Tuple

from wattherd.records import dataclass

PREFILL, DECODE = "prefill", "decode"
PHASES = (PREFILL, DECODE)
#: Which phases have to keep the floor, and whose energy counts.
WEIGHTS = ("both", PREFILL, DECODE)
#: A cap does nothing where the card draws less than this share of it and was not held back by it.
_NEAR_CAP = 0.95
_THROTTLED_PERCENT = 2.0
#: Runs of one step that differ by more than this, and by more than half of what the floor lets go, tell more of the host than of the card.
_RESTLESS = 0.1
#: However far runs differ, the floor is taken from steps that are this near to the fastest.
_EQUAL = 0.03


@dataclass(frozen=True)
class Figure:
    """One phase at one step, over `seconds_s` of steady load. None is unknown.

    `spread` is how far single measurements of the same step lie apart, as a share of `tok_s`: 0.01 is one per cent. `method` says where
    the watts are from: "energy counter" or "power samples". `throttled_percent` is the share of the time that the power limit held it back.
    """

    tok_s: float
    watts: float
    seconds_s: float
    spread: float = 0.0
    method: str = ""
    clock_mhz: Optional[int] = None
    throttled_percent: Optional[float] = None
    temperature_c: Optional[int] = None
    settled: bool = True

    @property
    def tok_j(self) -> float:
        """Tokens per joule; 0 for a draw of nothing, which no card has."""
        return self.tok_s / self.watts if self.watts > 0 else 0.0


@dataclass(frozen=True)
class Step:
    """One value of a sweep: a power limit (`kind` limit_w, watts), a clock ceiling (clocks_mhz, MHz), or a mode (its `name`).

    Each of the `cards` that were swept together has the value; the watts of the figures are theirs together.
    """

    kind: str
    value: float
    name: str = ""
    prefill: Optional[Figure] = None
    decode: Optional[Figure] = None
    cards: int = 1

    def figure(self, phase: str) -> Optional[Figure]:
        return self.prefill if phase == PREFILL else self.decode

    @property
    def shown(self) -> str:
        if self.kind == "mode":
            return self.name
        return f"{self.value:g} {'W' if self.kind == 'limit_w' else 'MHz'}"


@dataclass(frozen=True)
class Wish:
    """The user's floor in per cent of the best tok/s, what counts, and the tokens that the server was seen to work on (0: not known)."""

    floor_percent: float = 95.0
    weight: str = "both"
    prefill_tokens: float = 0.0
    decode_tokens: float = 0.0

    @property
    def phases(self) -> Tuple[str, ...]:
        return PHASES if self.weight == "both" else (self.weight,)


@dataclass(frozen=True)
class Advice:
    """What to set. Without a `step` nothing is worth setting, and `reason` says why; `nothing_saves`: because the reference is the best.

    `saving` is the share of the energy per token that the step saves against `reference`, the step without a binding cap (0.2: a fifth).
    `watts` and `reference_watts` are the mean draw under this load, `kept_percent` the tok/s of each phase in per cent of the best.
    `plateau_w` is the most that one card draws by itself: caps above do nothing. `notes` are for the reader.
    """

    reason: str
    step: Optional[Step] = None
    reference: Optional[Step] = None
    saving: float = 0.0
    watts: float = 0.0
    reference_watts: float = 0.0
    kept_percent: Tuple[Tuple[str, float], ...] = ()
    plateau_w: Optional[float] = None
    notes: Tuple[str, ...] = ()
    nothing_saves: bool = False


def recommend(steps: Sequence[Step], wish: Wish) -> Advice:
    """Steps in any order. One that lacks a phase that counts is left out; modes are compared like everything else."""
    whole = [one for one in _ordered(steps) if all(one.figure(phase) is not None for phase in wish.phases)]
    if not whole:
        return Advice("no step was measured whole, so there is nothing to compare")
    reference = whole[0]
    plateau_w, notes = plateau(whole), _notes(whole, wish)
    if len(whole) == 1:
        return Advice("only one step was measured, so there is nothing to compare", reference=reference, plateau_w=plateau_w, notes=notes)
    if _widest(whole, wish) > max(_RESTLESS, (100.0 - wish.floor_percent) / 200.0):
        words = "equal runs differ by more than the steps could, so none can be recommended; measure again when the host is quiet"
        return Advice(words, reference=reference, plateau_w=plateau_w, notes=notes)
    kept = [one for one in whole if all(keeps(one, whole, phase, wish.floor_percent) for phase in wish.phases)]
    if not kept:
        words = f"no step keeps {wish.floor_percent:g} % of the best {' and '.join(wish.phases)} speed at once"
        return Advice(words, reference=reference, plateau_w=plateau_w, notes=notes)
    chosen = _least(kept, reference, wish)
    saving, sure = 1.0 - _energy(chosen, reference, wish), _noise(chosen, reference, wish)
    if chosen is reference or saving <= sure:
        words = (
            f"no step below {reference.shown} that keeps {wish.floor_percent:g} % of the speed saves more than the measurement's own "
            f"spread ({max(sure, 0.001) * 100:.1f} %)"
        )
        return Advice(words, reference=reference, plateau_w=plateau_w, notes=notes, nothing_saves=True)
    return Advice(
        f"the least energy per token that keeps {wish.floor_percent:g} % of the best {' and '.join(wish.phases)} speed",
        chosen,
        reference,
        saving,
        _mean_watts(chosen, reference, wish),
        _mean_watts(reference, reference, wish),
        tuple((phase, 100.0 * _figure(chosen, phase).tok_s / best(whole, phase)) for phase in wish.phases),
        plateau_w,
        notes,
    )


def best(steps: Sequence[Step], phase: str) -> float:
    """The best tok/s of a phase: the mean of all steps that are equal to the fastest one, whose single figure is the luckiest of them."""
    figures = [one for one in (step.figure(phase) for step in steps) if one is not None]
    fastest = max(figures, key=lambda one: one.tok_s)
    equal = [one.tok_s for one in figures if one.tok_s >= fastest.tok_s * (1.0 - min(_EQUAL, _both(one.spread, fastest.spread)))]
    return sum(equal) / len(equal)


def keeps(step: Step, steps: Sequence[Step], phase: str, floor_percent: float) -> bool:
    """Whether the step is at least as fast as the floor. The floor is a promise: spread does not bend it."""
    figure = step.figure(phase)
    return figure is not None and figure.tok_s >= best(steps, phase) * floor_percent / 100.0 * (1.0 - 1e-9)


def binds(step: Step) -> bool:
    """Whether a power limit holds the card back in any phase: it was throttled by it, or drew what it allows."""
    if step.kind != "limit_w":
        return True
    for figure in (step.prefill, step.decode):
        if figure is not None and (
            figure.watts >= _NEAR_CAP * step.value * step.cards or (figure.throttled_percent or 0.0) > _THROTTLED_PERCENT
        ):
            return True
    return False


def plateau(steps: Sequence[Step]) -> Optional[float]:
    """Watts that one card draws at most where no limit binds it; None when the highest limit bound already, or none was in watts."""
    free = [one for one in steps if one.kind == "limit_w" and not binds(one)]
    drawn = [figure.watts / one.cards for one in free for figure in (one.prefill, one.decode) if figure is not None]
    return max(drawn) if drawn else None


def _ordered(steps: Sequence[Step]) -> List[Step]:
    """The least limited first. A mode's place says nothing of its speed: there the fastest comes first."""
    if any(one.kind == "mode" for one in steps):
        return sorted(steps, key=lambda one: -sum(figure.tok_s for figure in (one.prefill, one.decode) if figure is not None))
    return sorted(steps, key=lambda one: -one.value)


def _least(kept: Sequence[Step], reference: Step, wish: Wish) -> Step:
    """The least energy; of the steps that are equal to it within the spread the least limited, which is as cheap and no slower."""
    least = min(kept, key=lambda one: _energy(one, reference, wish))
    return next(one for one in kept if _energy(one, reference, wish) <= _energy(least, reference, wish) + _noise(one, least, wish))


def _energy(step: Step, reference: Step, wish: Wish) -> float:
    """Energy for the same tokens, as a share of what the reference takes."""
    shares = _shares(reference, wish)
    return sum(share * _per_token(step, phase) / _per_token(reference, phase) for phase, share in shares)


def _shares(reference: Step, wish: Wish) -> Tuple[Tuple[str, float], ...]:
    """How much of the reference's energy each phase takes: by the observed tokens, in equal parts where none were."""
    if len(wish.phases) == 1:
        return ((wish.phases[0], 1.0),)
    joules = [wish.prefill_tokens * _per_token(reference, PREFILL), wish.decode_tokens * _per_token(reference, DECODE)]
    whole = sum(joules)
    return ((PREFILL, joules[0] / whole), (DECODE, joules[1] / whole)) if whole > 0 else ((PREFILL, 0.5), (DECODE, 0.5))


def _mean_watts(step: Step, reference: Step, wish: Wish) -> float:
    """Energy over time for the same tokens: each phase's energy share, and the time that it takes at this step."""
    energy_j = [(share / _per_token(reference, phase) * _per_token(step, phase), phase) for phase, share in _shares(reference, wish)]
    time_s = sum(joules / _figure(step, phase).watts for joules, phase in energy_j if joules > 0)
    return sum(joules for joules, _ in energy_j) / time_s if time_s > 0 else 0.0


def _per_token(step: Step, phase: str) -> float:
    """Joules per token; a phase that never moved costs without end."""
    figure = _figure(step, phase)
    return figure.watts / figure.tok_s if figure.tok_s > 0 and figure.watts > 0 else math.inf


def _noise(one: Step, other: Step, wish: Wish) -> float:
    """The share within which two steps are equal."""
    return max(_both(_figure(one, phase).spread, _figure(other, phase).spread) for phase in wish.phases)


def _widest(steps: Sequence[Step], wish: Wish) -> float:
    return max(_figure(one, phase).spread for one in steps for phase in wish.phases)


def _both(one: float, other: float) -> float:
    """Independent errors add as squares do."""
    return math.sqrt(one * one + other * other)


def _figure(step: Step, phase: str) -> Figure:
    figure = step.figure(phase)
    if figure is None:
        raise ValueError(f"{step.shown} has no {phase}")
    return figure


def _notes(steps: Sequence[Step], wish: Wish) -> Tuple[str, ...]:
    found: List[str] = []
    idle = [one for one in steps if one.kind == "limit_w" and not binds(one)]
    drawn = plateau(steps)
    if idle and drawn is not None:
        each = " on each card" if idle[0].cards > 1 else ""
        found.append(f"limits of {min(one.value for one in idle):g} W and more do nothing: this load draws {drawn:.0f} W{each} by itself")
    slow = [one.shown for one in steps for phase in wish.phases if not _figure(one, phase).settled]
    if slow:
        found.append(f"the watts had not come to rest when these were measured: {', '.join(dict.fromkeys(slow))}")
    widest = _widest(steps, wish)
    if widest > _RESTLESS:
        words = "something else works on this host, or --seconds-per-step is too short"
        found.append(f"the speed of equal runs differs by up to {widest * 100:.0f} %: {words}")
    return tuple(found)
