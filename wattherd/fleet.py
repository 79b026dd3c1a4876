"""One piece of work on many hosts: forks, order, and a value for every host, whatever happens to it.

Knows hosts by name only; what the work is, and what a host's result means, belongs to the verb.
"""

from __future__ import annotations

import concurrent.futures
import math
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from wattherd import errors

T = TypeVar("T")

#: Problems that mean "we could not talk to it", as opposed to "it did not work there" (exit codes 4 and 2).
UNREACHABLE = frozenset(
    {
        "unreachable",
        "connect-timeout",
        "auth-failed",
        "host-key-unknown",
        "host-key-changed",
        "host-key-revoked",
        "jump-failed",
        "ssh-config",
        "host-silent",
        "stream-cut",
    }
)


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """What one host gave: a value or a problem, never both."""

    value: T | None = None
    problem: errors.Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One host's end of a verb that changes things. `status`: ok, changed, failed or unreachable."""

    status: str
    ok: int = 0
    changed: int = 0
    failed: int = 0
    skipped: int = 0
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    problem: errors.Problem | None = None


#: When one resource is met twice in a run (built early, looked at again later) the stronger word counts.
_STRENGTH = ("ok", "skipped", "changed", "failed")
_KINDS = {"ok": "ok", "skipped": "skipped", "changed": "changed", "would_change": "changed", "failed": "failed"}


@dataclass(slots=True)
class Count:
    """Gathers one host's events while its verb runs. `unreached` are resources that the node passed over after a failure."""

    resources: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problem: errors.Problem | None = None
    passed_over: int = 0

    def ended(self, answer: Mapping[str, object]) -> None:
        """A verb's end: what the node counts as skipped beyond its events was passed over after a failure."""
        skipped = answer.get("skipped")
        if isinstance(skipped, int):
            self.passed_over = max(0, skipped - len(self.of("skipped")))

    def see(self, message: Mapping[str, object]) -> None:
        kind = _KINDS.get(str(message.get("event")))
        if kind is not None:
            name = str(message.get("id"))
            self.resources[name] = max(kind, self.resources.get(name, kind), key=_STRENGTH.index)
        if kind == "failed" and self.problem is None:
            problem = message.get("problem")
            self.problem = errors.Problem.from_dict(problem if isinstance(problem, dict) else {})
            self.problem.context.setdefault("resource", str(message.get("id")))
        if message.get("event") == "note":
            self.notes.append(str(message.get("words")))

    def of(self, kind: str) -> list[str]:
        return [name for name, seen in self.resources.items() if seen == kind]

    def outcome(self, problem: errors.Problem | None = None) -> Outcome:
        """`problem` is what ended the host's run from outside (link, barrier); a resource's own failure is already here."""
        first = self.problem or problem
        outside = problem is not None and self.problem is None and problem.code not in UNREACHABLE
        return Outcome(
            status=status_of(first, changed=bool(self.of("changed"))),
            ok=len(self.of("ok")),
            changed=len(self.of("changed")),
            failed=len(self.of("failed")) + int(outside),
            skipped=len(self.of("skipped")) + self.passed_over,
            changes=tuple(self.of("changed")),
            notes=tuple(self.notes),
            problem=first,
        )


def status_of(problem: errors.Problem | None, *, changed: bool = False) -> str:
    if problem is None:
        return "changed" if changed else "ok"
    return "unreachable" if problem.code in UNREACHABLE else "failed"


def each(
    names: Sequence[str], work: Callable[[str], T], *, forks: int, on_done: Callable[[str, Done[T]], None] = lambda *_: None
) -> dict[str, Done[T]]:
    """Run `work` for every name, at most `forks` at once, started in order. A dead, slow or broken one never stops the others."""
    results: dict[str, Done[T]] = {}
    pool = concurrent.futures.ThreadPoolExecutor(max_workers=max(1, min(forks, len(names) or 1)), thread_name_prefix="host")
    try:
        waiting = {pool.submit(_guard, work, name): name for name in names}
        for finished in concurrent.futures.as_completed(waiting):
            name = waiting[finished]
            results[name] = finished.result()
            on_done(name, results[name])
    finally:
        # After Ctrl-C nobody waits for hosts that may take an hour: whoever called ends their links, and so their work here.
        pool.shutdown(wait=len(results) == len(names), cancel_futures=True)
    return {name: results[name] for name in names}


def _guard(work: Callable[[str], T], name: str) -> Done[T]:
    try:
        return Done(value=work(name))
    except errors.Problem as problem:
        return Done(problem=problem)
    except Exception as error:  # noqa: BLE001 - one host's surprise is that host's value
        trace = traceback.format_exc(limit=6)
        return Done(problem=errors.Problem("internal", f"{type(error).__name__}: {error}", hint="please report this", trace=trace[-1500:]))


def batches(names: Sequence[str], serial: str) -> list[list[str]]:
    """`1,25%,100%` as Ansible's serial: sizes in turn, the last one repeated; a percentage is of all hosts, at least one."""
    sizes = [_size(part.strip(), len(names)) for part in serial.split(",") if part.strip()]
    if not sizes:
        raise errors.Problem("bad-flag", f"--serial {serial!r} names no size", hint="for example --serial 1,25%,100%")
    rest = list(names)
    cut: list[list[str]] = []
    while rest:
        size = sizes[min(len(cut), len(sizes) - 1)]
        cut.append(rest[:size])
        rest = rest[size:]
    return cut


def _size(part: str, total: int) -> int:
    found = re.fullmatch(r"(\d+)(%?)", part)
    if not found or int(found.group(1)) < 1 or (found.group(2) and int(found.group(1)) > 100):
        raise errors.Problem("bad-flag", f"--serial: {part!r} is neither a count nor a percentage", hint="for example --serial 1,25%,100%")
    count = int(found.group(1))
    return max(1, math.floor(total * count / 100)) if found.group(2) else count


def exit_code(statuses: Sequence[str]) -> int:
    """As Ansible: 0 ok, 2 a host failed, 4 a host was unreachable, 6 both."""
    return (2 if "failed" in statuses else 0) | (4 if "unreachable" in statuses else 0)
