"""Host keys as people compare them: fingerprints beside names, and one question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from wattherd import fleet, units
from wattherd.console import reports, screen
from wattherd.link import trust as keys
from wattherd.verbs import trust


def show(out: screen.Screen, new: Mapping[str, Sequence[keys.Found]]) -> None:
    rows = [(name, key.name, key.key_type, key.fingerprint, key.state) for name, found in new.items() for key in found]
    out.table(("host", "address", "key", "fingerprint", "so far"), rows)


def show_only(out: screen.Screen) -> trust.Confirm:
    def confirm(new: Mapping[str, Sequence[keys.Found]]) -> bool:
        show(out, new)
        out.say("check: nothing was recorded")
        return False

    return confirm


def asker(out: screen.Screen, confirmed: Callable[[str], bool]) -> trust.Confirm:
    def confirm(new: Mapping[str, Sequence[keys.Found]]) -> bool:
        show(out, new)
        return confirmed(f"Record these keys of {units.plural(len(new), 'host')}?")

    return confirm


def report(out: screen.Screen, done: trust.Trusted) -> int:
    if out.as_json:
        out.document({"hosts": {name: _document(one, done.recorded.get(name, 0)) for name, one in done.found.items()}})
    for name, one in done.found.items():
        if one.problem is not None:
            out.problem(one.problem, name)
        else:
            count = done.recorded.get(name, 0)
            out.say(f"{name}  {units.plural(count, 'key')} recorded" if count else f"{name}  known")
    return fleet.exit_code([fleet.status_of(one.problem) for one in done.found.values()])


def _document(one: fleet.Done[Sequence[keys.Found]], recorded: int) -> dict[str, object]:
    found = [{"name": key.name, "type": key.key_type, "fingerprint": key.fingerprint, "state": key.state} for key in one.value or ()]
    return {"keys": found, "recorded": recorded, "problem": reports.problem_document(one.problem)}
