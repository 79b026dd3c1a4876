"""Emptying one server of the front proxy before its process goes: nothing new gets to it, and what is in flight comes to its end.

While it is drained the proxy holds new requests; they go on when it is ready again. Whoever drains puts it back, also when it fails;
a run that was killed in between leaves a server that is not admitted, which the next run sees as a difference and mends.
"""

from __future__ import annotations

import contextlib
import re
from typing import Callable, Iterator, List, Mapping, Optional, Set

from wattherd import errors, units
from wattherd import machine as machines
from wattherd.records import dataclass
from wattherd.resources import base, readiness, runtime

_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 1.0
_PAUSE_GROWTH = 1.5
_SERVED_LIMIT_S = 5.0
_KEYS = frozenset(("socket", "server", "limit_s", "metrics", "key_file"))
_COUNTED = r"(?m)^llamacpp:requests_(?:processing|deferred) ([0-9.e+]+)"
#: The row of a whole backend.
_WHOLE = "/BACKEND"


@dataclass(frozen=True)
class Drain:
    """`server` is the proxy's BACKEND/SERVER of this process; requests of BACKEND:… are its own too, and follow its state.

    `metrics` (a readiness URL) is asked as well where it is given, with the API key that stands in `key_file`.
    """

    socket: str
    server: str
    limit_s: int
    metrics: str = ""
    key_file: str = ""

    @property
    def backend(self) -> str:
        return self.server.partition("/")[0]

    def counts(self, row: runtime.Server) -> bool:
        return row.name.partition("/")[0].partition(":")[0] == self.backend


def read(label: str, fields: Mapping[str, str]) -> Drain:
    """From a unit's field: `socket`, `server`, `limit_s`, and, where there are any, `metrics` and `key_file`."""
    unknown = sorted(set(fields) - _KEYS)
    if unknown or not fields.get("socket", "").startswith("/") or not fields.get("limit_s", "").isdigit():
        raise errors.Problem(
            "manifest-invalid", f"{label}: drain wants socket, server and limit_s{f', not {unknown[0]}' if unknown else ''}"
        )
    if not re.match(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+\Z", fields.get("server", "")):
        raise errors.Problem("manifest-invalid", f"{label}: drain wants its server as BACKEND/SERVER")
    if fields.get("metrics"):
        readiness.check_url(label, fields["metrics"])
    return Drain(fields["socket"], fields["server"], int(fields["limit_s"]), fields.get("metrics", ""), fields.get("key_file", ""))


def admitted(machine: machines.Machine, spec: Drain) -> bool:
    """Whether nobody holds the server back in the proxy. Without a proxy nobody does."""
    found = runtime.workers(machine, spec.socket)
    if found is None:
        return True
    return not any(runtime.standing(machine, spec.socket, pid, spec.server) == runtime.HELD_BACK for pid in found.new)


@contextlib.contextmanager
def held(machine: machines.Machine, spec: Drain, tell: base.Tell) -> Iterator[Callable[[], None]]:
    """Gives what empties the server. However the block ends, the server is admitted again: its health then decides what it gets."""
    try:
        yield lambda: _empty(machine, spec, tell)
    finally:
        _admit(machine, spec)


def await_served(machine: machines.Machine, spec: Drain) -> None:
    """Requests get to a server that is ready only when the proxy's next check has seen it, a third of a second later.

    Whoever looks right after a deploy must not be told 503. Never a failure: what the check thinks of it is the proxy's to say.
    """
    ends_s = machine.monotonic_s() + _SERVED_LIMIT_S
    while machine.monotonic_s() < ends_s:
        new = (runtime.workers(machine, spec.socket) or runtime.Workers()).new
        if not any(runtime.standing(machine, spec.socket, pid, spec.server) in {runtime.AWAY, ""} for pid in new):
            return
        machine.wait(_PAUSE_S)


def _empty(machine: machines.Machine, spec: Drain, tell: base.Tell) -> None:
    """`drain-timeout` when something is still in flight after the limit, or nobody can say what is: nothing was stopped then."""
    begun_s, pause_s = machine.monotonic_s(), _PAUSE_S
    said = False
    done: Set[int] = set()
    while True:
        found = _workers(machine, spec)
        if found is None:
            return
        number = _in_flight(machine, spec, found) if _hold_back(machine, spec, found, done) else None
        if number == 0:
            return
        waited_s = machine.monotonic_s() - begun_s
        words = "how much is in flight is not known yet" if number is None else f"{units.plural(number, 'request')} in flight"
        if waited_s >= spec.limit_s:
            raise errors.Problem(
                "drain-timeout",
                f"{spec.backend}: still {words} after {spec.limit_s} s, so nothing was stopped or restarted"
                if number is not None
                else f"{spec.backend}: the front proxy did not say within {spec.limit_s} s what is in flight, so nothing was stopped",
                hint="run again when it is quieter, or give it longer (drain_s); the server takes requests again"
                if number is not None
                else f"systemctl status wattherd-proxy; its master listens on {spec.socket}",
                in_flight=number,
            )
        if not said:
            tell(f"draining: {words}")
            said = True
        else:
            tell(f"draining: {words}", waited_s, spec.limit_s, "s")
        machine.wait(min(pause_s, spec.limit_s - waited_s))
        pause_s = min(pause_s * _PAUSE_GROWTH, _LONGEST_PAUSE_S)


def _workers(machine: machines.Machine, spec: Drain) -> Optional[runtime.Workers]:
    """None without a proxy. One that is there and says nothing may be serving anybody: then nothing may be stopped."""
    found = runtime.workers(machine, spec.socket)
    if found is None and runtime.listens(machine, spec.socket):
        raise errors.Problem(
            "drain-timeout",
            f"{spec.backend}: the front proxy does not answer, so nobody knows what is in flight, and nothing was stopped",
            hint=f"systemctl status wattherd-proxy; its master listens on {spec.socket}",
        )
    return found


def _hold_back(machine: machines.Machine, spec: Drain, found: runtime.Workers, done: Set[int]) -> bool:
    """Tell every new worker that was not told yet (`done`): one that was reloaded meanwhile knows nothing. True when all say so themselves.

    Old workers are left alone: they take nothing new, and what waits in them is served before they end.
    """
    for pid in set(found.new) - done:
        runtime.tell_worker(machine, spec.socket, pid, f"set server {spec.server} state drain")
        if runtime.standing(machine, spec.socket, pid, spec.server) in {runtime.HELD_BACK, runtime.ABSENT}:
            done.add(pid)
    return done.issuperset(found.new)


def _admit(machine: machines.Machine, spec: Drain) -> None:
    """Out of the drain, then "down", from which its next health check (a third of a second) takes it up.

    Only a server that comes up looks into the queue: one that merely leaves a drain, with nothing in flight, would let it wait for ever.
    (Setting its maxconn makes it look too, and makes HAProxy 2.2.9 abort.)
    """
    for pid in (runtime.workers(machine, spec.socket) or runtime.Workers()).new:
        if runtime.standing(machine, spec.socket, pid, spec.server) == runtime.HELD_BACK:
            for change in ("state ready", "health down"):
                runtime.tell_worker(machine, spec.socket, pid, f"set server {spec.server} {change}")


def _in_flight(machine: machines.Machine, spec: Drain, found: runtime.Workers) -> Optional[int]:
    """None as long as one of the workers does not say."""
    number = 0
    for pid in found.every:
        rows = runtime.stats(machine, spec.socket, pid)
        if rows is None:
            return None
        for row in rows:
            if spec.counts(row) and not row.name.endswith(_WHOLE):
                number += row.current
            elif spec.counts(row) and pid in found.old:  # what waits in an old worker has nowhere else to go
                number += row.queued
    return number or _counted_by_server(machine, spec)


def _counted_by_server(machine: machines.Machine, spec: Drain) -> int:
    """What the process itself says that it works on; 0 where it says nothing (a router, metrics off, a wrong key)."""
    if not spec.metrics:
        return 0
    status, text = readiness.fetch(spec.metrics, root=machine.root, headers=_authorisation(machine, spec))
    numbers: List[str] = re.findall(_COUNTED, text) if status == readiness.READY else []
    with contextlib.suppress(ValueError, OverflowError):
        return int(sum(float(number) for number in numbers))
    return 0


def _authorisation(machine: machines.Machine, spec: Drain) -> str:
    from wattherd.resources import secret

    key = secret.api_key(machine.text(spec.key_file)) if spec.key_file else ""
    return f"Authorization: Bearer {key}\r\n" if key else ""
