"""How a sweep looks: a line as each step is measured, then the table, the knee, what it saves, and how to use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wattherd import errors, fleet, units
from wattherd.console import money, reports
from wattherd.console.screen import Screen, safe
from wattherd.policy import knee
from wattherd.wire import fields

if TYPE_CHECKING:
    from wattherd.verbs import power_tune, saving

_TITLES = ("", "prefill tok/s", "W", "tok/J", "capped", "decode tok/s", "W", "tok/J", "capped", "MHz", "°C", "")
_RIGHT = tuple(range(11))


class Watching:
    """A Watch that shows steps as they are measured, and all else as the screen does."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def phase(self, words: str, hosts: Sequence[str]) -> None:
        self._screen.phase(words, hosts)

    def event(self, host: str, message: Mapping[str, Any]) -> None:
        if message.get("event") != "step":
            self._screen.event(host, message)
            return
        try:
            step = fields.build(knee.Step, fields.document(message.get("step"), "step"))
            done, total, left_s = (fields.number(message, name) for name in ("done", "total", "left_s"))
        except errors.Problem as problem:
            self._screen.warn(f"{host}: a step that cannot be read: {problem.message}")
            return
        left = f", about {units.duration(left_s)} left" if done < total else ""
        self._screen.say(safe(f"{host}  {_line(step)}  [{done:.0f} of {total:.0f}{left}]"))

    def moved(self, host: str, what: str, done_bytes: int, total_bytes: int) -> None:
        self._screen.moved(host, what, done_bytes, total_bytes)

    def tell(self, words: str) -> None:
        self._screen.tell(words)

    def warn(self, words: str) -> None:
        self._screen.warn(words)

    def done(self, host: str, outcome: fleet.Outcome) -> None:
        self._screen.done(host, outcome)


def _line(step: knee.Step) -> str:
    for phase in knee.PHASES:
        figure = step.figure(phase)
        if figure is not None:
            drawn = f"{figure.watts:.1f} W, {figure.tok_s:.1f} tok/s, {figure.tok_j:.3f} tok/J"
            return f"{step.shown:>8}  {phase:<7}  {drawn}{'' if figure.settled else '  (its watts did not come to rest)'}"
    return step.shown


def tuned(screen: Screen, done: Mapping[str, fleet.Done[power_tune.Tuned]], options: power_tune.Options) -> int:
    from wattherd.verbs import power_tune

    if screen.as_json:
        screen.document({"hosts": {name: _document(one, options) for name, one in done.items()}})
    for name, one in done.items():
        if one.problem is not None and power_tune.status_of(one) == power_tune.SKIPPED:
            screen.say(safe(f"{name}  skipped: {one.problem.message}"), "cyan")
            screen.say(safe(f"  -> {one.problem.hint}"), "bold")
        elif one.problem is not None:
            screen.problem(one.problem, name)
        elif one.value is not None and options.check:
            _planned(screen, name, one.value)
        elif one.value is not None:
            _told(screen, name, one.value, options)
    if options.check:
        screen.say("check: nothing was set and nothing was loaded", "dim")
    return fleet.exit_code([power_tune.status_of(one) for one in done.values()])


def _planned(screen: Screen, name: str, one: power_tune.Tuned) -> None:
    plan = one.plan
    what = "power limits" if plan.kind == "limit_w" else "clock ceilings"
    unit = "W" if plan.kind == "limit_w" else "MHz"
    span = f"{len(plan.values)} {what} from {max(plan.values, default=0):g} down to {min(plan.values, default=0):g} {unit}"
    screen.say(safe(f"{name}  {_cards(one)}"), "bold")
    screen.say(safe(f"  {span}, prefill and decode, with {plan.load} and {plan.model}: about {units.duration(plan.seconds)}"))
    if plan.before_w is not None:
        screen.say(f"  its limit is {plan.before_w:g} W now, and is again afterwards")
    for note in plan.notes:
        screen.say(safe(f"  {note}"))


def _cards(one: power_tune.Tuned) -> str:
    named = ", ".join(f"{name or 'card'} {uuid}" for uuid, name in one.plan.cards)
    return f"{named}{'  (simulated card: these are no real watts)' if one.simulated else ''}"


def _told(screen: Screen, name: str, one: power_tune.Tuned, options: power_tune.Options) -> None:
    screen.say(safe(f"{name}  {_cards(one)}"), "bold")
    if one.steps:
        screen.table(_TITLES, [_row(step, one, options) for step in one.steps], right=_RIGHT)
        method = next((figure.method for step in one.steps for figure in (step.prefill, step.decode) if figure is not None), "")
        by = "the card's energy counter" if method == "energy counter" else "power samples, integrated (no energy counter on this card)"
        if len(one.plan.cards) > 1:
            screen.say(
                f"  {len(one.plan.cards)} cards work as one: each had its row's limit or ceiling; W is what they draw together", "dim"
            )
        screen.say(safe(f"  watts from {by}; load: {one.plan.load}, {one.plan.model}, {one.plan.build or 'unknown build'}"), "dim")
    for note in one.notes:
        screen.say(safe(f"  {note}"))
    if one.stopped:
        screen.say(safe(f"  stopped early: {one.stopped}; run it again in a quieter hour"), "yellow")
    for words in one.not_restored:
        screen.say(safe(f"  not set back yet: {words}; the node goes on trying"), "red")
    _advised(screen, name, one, options)


def _advised(screen: Screen, name: str, one: power_tune.Tuned, options: power_tune.Options) -> None:
    advice = one.advice
    if advice is None:
        return
    if advice.step is None:
        unwritten = "; nothing was written" if options.write else ""
        screen.say(safe(f"  no recommendation: {advice.reason}{unwritten}"), "yellow")
    else:
        kept = ", ".join(f"{percent:.1f} % of the best {phase}" for phase, percent in advice.kept_percent)
        screen.say(safe(f"  best: {advice.step.shown}  ({kept}; {advice.saving * 100:.1f} % less energy per token)"), "green")
        screen.say(f"  {advice.reason}", "dim")
    if one.saved is not None:
        screen.say(safe(f"  {_saved(one.saved, one.use)}"))
    if one.change is not None:
        screen.say(f"  written into {one.change.shown}:", "green")
        for line in one.change.diff.splitlines():
            style = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
            screen.say(f"    {safe(line)}", style)
        screen.say(f"  to use it: power: {{limit: efficient}} in the inventory, then invoke power-apply --hosts {name}")
    elif one.best is not None and one.status == "ok":
        screen.say("  nothing was written; --write puts it into the host's own variables", "dim")


def _saved(saved: saving.Saving, use: saving.Use | None) -> str:
    hours = money.plain(saved.hours_per_day)
    basis = {
        "observed": f"at the load seen here, {hours} h a day"
        + (f" over the last {units.duration(float(use.since_s))}" if use is not None else ""),
        "given": f"at {hours} h a day under load, as you said",
        "assumed": "if it were under load around the clock, the most that it can be (its own load is not known: --hours-per-day says it)",
    }[saved.basis]
    cost = f", {money.rounded(saved.cost, money.digits(saved.currency))} {saved.currency}" if saved.cost is not None else ""
    hint = "" if saved.cost is not None else " (price_per_kwh in the inventory tells it in money)"
    return f"saves {money.rounded(saved.kwh, 1)} kWh{cost} a year {basis}{hint}"


def _row(step: knee.Step, one: power_tune.Tuned, options: power_tune.Options) -> tuple[str, ...]:
    cells: list[str] = []
    for figure in (step.prefill, step.decode):
        cells += (
            ["?"] * 4
            if figure is None
            else [f"{figure.tok_s:.1f}", f"{figure.watts:.1f}", f"{figure.tok_j:.3f}", _percent(figure.throttled_percent)]
        )
    last = step.decode or step.prefill
    clock = "?" if last is None or last.clock_mhz is None else str(last.clock_mhz)
    warm = [figure.temperature_c for figure in (step.prefill, step.decode) if figure is not None and figure.temperature_c is not None]
    return (step.shown, *cells, clock, str(max(warm)) if warm else "?", _remark(step, one, options))


def _remark(step: knee.Step, one: power_tune.Tuned, options: power_tune.Options) -> str:
    if one.advice is not None and one.advice.step == step:
        return "<- best"
    wish = knee.Wish(options.floor_percent, options.weight)
    counted = [phase for phase in wish.phases if any(other.figure(phase) is not None for other in one.steps)]
    if any(not knee.keeps(step, one.steps, phase, options.floor_percent) for phase in counted):
        return f"below {options.floor_percent:g} %"
    return "" if knee.binds(step) else "does nothing"


def _percent(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f} %"


# -- --json


def _document(done: fleet.Done[power_tune.Tuned], options: power_tune.Options) -> dict[str, object]:
    from wattherd.verbs import power_tune

    one = done.value
    if one is None:
        return {"status": power_tune.status_of(done), "problem": reports.problem_document(done.problem)}
    plan = one.plan
    document: dict[str, object] = {
        "status": one.status,
        "cards": [{"uuid": uuid, "name": name} for uuid, name in plan.cards],
        "simulated": one.simulated,
        "kind": plan.kind,
        "load": plan.load,
        "model": plan.model,
        "build": plan.build or None,
        "driver": plan.driver or None,
        "before_w": plan.before_w,
        "problem": None,
    }
    if options.check:
        return {**document, "values": list(plan.values), "seconds": plan.seconds, "notes": list(plan.notes)}
    return {
        **document,
        "measured_at": one.at,
        "floor_percent": options.floor_percent,
        "weight": options.weight,
        "steps": [_step_document(step) for step in one.steps],
        "recommendation": _advice_document(one),
        "notes": list(one.notes),
        "stopped": one.stopped or None,
        "not_restored": list(one.not_restored),
        "written": one.change.shown if one.change is not None else None,
    }


def _step_document(step: knee.Step) -> dict[str, object]:
    row: dict[str, object] = {step.kind: step.value, "binds": knee.binds(step)}
    for phase in knee.PHASES:
        figure = step.figure(phase)
        row[phase] = (
            None
            if figure is None
            else {
                "tok_s": figure.tok_s,
                "watts": figure.watts,
                "tok_j": round(figure.tok_j, 6),
                "seconds": figure.seconds_s,
                "spread": figure.spread,
                "method": figure.method,
                "clock_mhz": figure.clock_mhz,
                "throttled_percent": figure.throttled_percent,
                "temperature_c": figure.temperature_c,
                "settled": figure.settled,
            }
        )
    return row


def _advice_document(one: power_tune.Tuned) -> dict[str, object] | None:
    """Energy and money are exact decimals as text."""
    advice = one.advice
    if advice is None:
        return None
    saved = one.saved
    return {
        "value": advice.step.value if advice.step is not None else None,
        "kind": advice.step.kind if advice.step is not None else None,
        "reason": advice.reason,
        "reference": advice.reference.value if advice.reference is not None else None,
        "saving_percent": round(advice.saving * 100, 2),
        "kept_percent": {phase: round(percent, 2) for phase, percent in advice.kept_percent},
        "plateau_w": advice.plateau_w,
        "year": None
        if saved is None
        else {
            "energy_kwh": money.plain(saved.kwh),
            "cost": None if saved.cost is None else money.plain(saved.cost),
            "currency": saved.currency or None,
            "hours_per_day": money.plain(saved.hours_per_day),
            "basis": saved.basis,
        },
    }
