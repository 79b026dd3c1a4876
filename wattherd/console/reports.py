"""How each verb's value looks: words for people, plain documents for --json. The shapes of DESIGN's contract live here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wattherd import errors, fleet, units
from wattherd.console import screen
from wattherd.wire import fields

if TYPE_CHECKING:
    from wattherd.verbs import ask, generations, running, starting, survey


def problem_document(problem: errors.Problem | None) -> dict[str, object] | None:
    if problem is None:
        return None
    return {key: value for key, value in problem.to_dict().items() if key in ("code", "message", "hint", "context")}


def outcome_document(outcome: fleet.Outcome) -> dict[str, object]:
    return {
        "status": outcome.status,
        "ok": outcome.ok,
        "changed": outcome.changed,
        "failed": outcome.failed,
        "skipped": outcome.skipped,
        "changes": list(outcome.changes),
        "problem": problem_document(outcome.problem),
    }


def deployed(out: screen.Screen, report: running.Report, *, goes_back: bool = False) -> int:
    """`goes_back`: after this command a rollback leads to what a host was before it failed halfway."""
    if out.as_json:
        out.document({"hosts": {name: outcome_document(one) for name, one in report.hosts.items()}, "seconds": report.seconds})
    recap(out, report.hosts)
    if report.check:
        out.say("check: nothing was changed; `changed` counts what a run would change")
    half = [name for name, one in report.hosts.items() if one.status == "failed" and one.changed]
    if half and goes_back and not report.check:
        words = f"{units.plural(len(half), 'host')} stopped halfway: mend it and deploy again, or go back to what was there before:"
        out.say(f"{words} invoke rollback --hosts {':'.join(half)}", "yellow")
    out.say(f"{units.plural(len(report.hosts), 'host')} in {units.duration(report.seconds)}", "dim")
    return fleet.exit_code([one.status for one in report.hosts.values()])


def recap(out: screen.Screen, hosts: Mapping[str, fleet.Outcome]) -> None:
    width = max((len(name) for name in hosts), default=0)
    for name, one in hosts.items():
        style = {"ok": "green", "changed": "yellow"}.get(one.status, "red")
        lost = int(one.status == "unreachable")
        out.say(f"{name:<{width}}  ok={one.ok} changed={one.changed} failed={one.failed} skipped={one.skipped} unreachable={lost}", style)


def pinged(out: screen.Screen, seen: Mapping[str, survey.Seen]) -> int:
    if out.as_json:
        out.document({"hosts": {name: _ping_document(one) for name, one in seen.items()}})
    width = max((len(name) for name in seen), default=0)
    for name, one in seen.items():
        if one.facts is not None:
            told = one.facts
            system = f"{told.system.os_name or told.system.os_id}, python {told.python.version}"
            size = f"{told.cpu.threads} threads, {units.size(told.memory_bytes)}"
            out.say(f"{name:<{width}}  ok  {system}, {size}, as {told.user}  ({one.seconds:.2f} s)", "green")
        elif one.problem is not None:
            out.problem(one.problem, name)
    return fleet.exit_code([one.status for one in seen.values()])


def _ping_document(one: survey.Seen) -> dict[str, object]:
    python = None if one.facts is None else fields.plain(one.facts.python)
    return {
        "status": one.status,
        "seconds": one.seconds,
        "python": python,
        "problem": None if one.no_python else problem_document(one.problem),
    }


def told(out: screen.Screen, seen: Mapping[str, survey.Seen]) -> int:
    """`invoke facts`: every fact, by host."""
    if out.as_json:
        out.document(
            {
                "hosts": {
                    name: {"facts": fields.plain(one.facts) if one.facts else None, "problem": problem_document(one.problem)}
                    for name, one in seen.items()
                }
            }
        )
    for name, one in seen.items():
        if one.facts is not None:
            out.say(name, "bold")
            for key, value in _flat(fields.plain(one.facts)):
                out.say(f"  {key:<28} {value}")
        elif one.problem is not None:
            out.problem(one.problem, name)
    return fleet.exit_code([one.status for one in seen.values()])


def _flat(value: Any, prefix: str = "") -> list[tuple[str, str]]:  # JSON of any shape
    if isinstance(value, dict):
        return [pair for key, held in value.items() for pair in _flat(held, f"{prefix}.{key}" if prefix else key)]
    if isinstance(value, list):
        return [pair for index, held in enumerate(value) for pair in _flat(held, f"{prefix}[{index}]")]
    shown = units.size(value) if prefix.endswith("_bytes") and isinstance(value, int) else str(value)
    return [(prefix, shown)]


def answered(out: screen.Screen, answers: Mapping[str, fleet.Done[ask.Answer]]) -> int:
    if out.as_json:
        out.document({"hosts": {name: _answer_document(done) for name, done in answers.items()}})
    for name, done in answers.items():
        if done.value is not None:
            one = done.value
            size = f"{one.prompt_tokens} + {one.completion_tokens} tokens in {units.duration(one.seconds)}"
            out.say(screen.safe(f"{name}  {one.model}  {size}{f'  {one.build}' if one.build else ''}"), "green")
            for line in one.text.strip().splitlines() or ["(an empty answer)"]:
                out.say(f"  {screen.safe(line)}")
        elif done.problem is not None:
            out.problem(done.problem, name)
    return fleet.exit_code([fleet.status_of(done.problem) for done in answers.values()])


def _answer_document(done: fleet.Done[ask.Answer]) -> dict[str, object]:
    if done.value is None:
        return {"problem": problem_document(done.problem)}
    one = done.value
    return {
        "text": one.text,
        "model": one.model,
        "prompt_tokens": one.prompt_tokens,
        "completion_tokens": one.completion_tokens,
        "seconds": one.seconds,
        "build": one.build,
    }


def host_list(out: screen.Screen, names: Sequence[str]) -> int:
    if out.as_json:
        out.document({"hosts": list(names)})
        return 0
    out.say(f"{units.plural(len(names), 'host')}:")
    for name in names:
        out.say(f"  {name}")
    return 0


def histories(out: screen.Screen, found: Mapping[str, fleet.Done[list[generations.Generation]]]) -> int:
    if out.as_json:
        out.document({"hosts": {name: _history_document(done) for name, done in found.items()}})
    for name, done in found.items():
        if done.problem is not None:
            out.problem(done.problem, name)
            continue
        out.say(name, "bold")
        rows = [
            (str(one.number), one.applied_at, str(one.resources), _release(one), " ".join(one.units), one.digest[:12])
            for one in done.value or []
        ]
        out.table(("generation", "applied", "resources", "release", "units", "manifest"), rows, right=(0, 2))
    return fleet.exit_code([fleet.status_of(done.problem) for done in found.values()])


def _release(one: generations.Generation) -> str:
    if not one.release:
        return "none"
    return one.release if one.release_present else f"{one.release} (no longer on the node)"


def _history_document(done: fleet.Done[list[generations.Generation]]) -> dict[str, object]:
    if done.value is None:
        return {"problem": problem_document(done.problem)}
    return {
        "generations": [
            {
                "number": one.number,
                "applied_at": one.applied_at,
                "resources": one.resources,
                "digest": one.digest,
                "release": one.release,
                "release_present": one.release_present,
                "units": list(one.units),
            }
            for one in done.value
        ]
    }


def made(out: screen.Screen, project: starting.Made) -> int:
    if out.as_json:
        out.document({"root": str(project.root), "files": [str(path) for path in project.files]})
    for path in project.files:
        out.say(f"  {path}")
    out.say(f"made in {project.root}. Next: your hosts into inventory/hosts.yaml, then")
    out.say("  invoke trust --hosts all\n  invoke deploy --hosts all --check --diff")
    return 0
