"""Taking this node's servers out of service before it goes down: the proxy's doors close, what is in flight ends, the servers stop.

Servers alone would not do: requests that the proxy holds for a drained server would be cut with the proxy. Whatever fails, everything is
put back: the doors open and what was stopped is started again. Only units that Wattherd manages are touched.
"""

from __future__ import annotations

import contextlib
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from wattherd import errors, resources, units
from wattherd import machine as machines
from wattherd.node import generations
from wattherd.records import dataclass
from wattherd.resources import activation, base, drain, runtime, systemd, unit

_PAUSE_S = 1.0
_WHOLE = "/BACKEND"


@dataclass(frozen=True)
class Served:
    """A unit of ours that serves and runs; `spec` says how its proxy is told, where one stands before it."""

    unit: unit.Unit
    spec: Optional[drain.Drain] = None


def served(machine: machines.Machine) -> Tuple[Served, ...]:
    """The running units of ours that clients talk to, in the order in which they were made."""
    owned = generations.Owned.load(machine)
    found = [resources.decode(owned.entry(name)) for name in owned.rows if name.startswith("unit:")]
    doors = [one for one in found if isinstance(one, unit.Unit) and (one.drain or (one.ready_url and one.ports))]
    running = systemd.look(machine, [one.name for one in doors]) if doors else {}
    return tuple(Served(one, drain.read(one.id, one.drain) if one.drain else None) for one in doors if running[one.name].running)


@contextlib.contextmanager
def emptied(machine: machines.Machine, servers: Sequence[Served], tell: base.Tell) -> Iterator[None]:
    """In the block nothing is served here. When it raises, all is as before; `drain-timeout` when something stays in flight too long."""
    specs = [one.spec for one in servers if one.spec is not None]
    stopped: List[str] = []
    try:
        _doors(machine, specs, "disable")
        _await_quiet(machine, specs, tell)
        with contextlib.ExitStack() as held:
            for spec in specs:
                held.enter_context(drain.held(machine, spec, tell))()
            for one in servers:
                stopped.append(one.unit.name)
                activation.stop(machine, one.unit.name, tell, one.unit.stop_limit_s)
            yield
    except BaseException:
        _put_back(machine, specs, stopped)
        raise


def _await_quiet(machine: machines.Machine, specs: Sequence[drain.Drain], tell: base.Tell) -> None:
    """Until no backend has a request, at a server or waiting for one. A connection that was open before may still bring some."""
    limit_s = max((spec.limit_s for spec in specs), default=0)
    begun_s = machine.monotonic_s()
    while True:
        counts = {spec.backend: _at_backend(machine, spec) for spec in specs}
        number = sum(counts.values())
        waited_s = machine.monotonic_s() - begun_s
        if not number:
            return
        if waited_s >= limit_s:
            busiest = max(counts, key=lambda name: counts[name])
            raise errors.Problem(
                "drain-timeout",
                f"{busiest}: still {units.plural(number, 'request')} in flight after {limit_s} s, so this host was not rebooted",
                hint="run again when it is quieter, or give it longer (drain_s); the host takes requests again",
                in_flight=number,
            )
        tell(f"draining: {units.plural(number, 'request')} in flight", waited_s, limit_s, "s")
        machine.wait(_PAUSE_S)


def _at_backend(machine: machines.Machine, spec: drain.Drain) -> int:
    """Requests in the proxy for this server, the waiting ones too. A worker that does not say is taken up by the drain that follows."""
    number = 0
    for pid in (runtime.workers(machine, spec.socket) or runtime.Workers()).every:
        rows = runtime.stats(machine, spec.socket, pid) or ()
        number += sum(max(row.current, row.queued) for row in rows if spec.counts(row) and row.name.endswith(_WHOLE))
    return number


def _doors(machine: machines.Machine, specs: Sequence[drain.Drain], word: str) -> None:
    """The frontend of a server bears its name: a closed one refuses new connections, and whoever balances goes elsewhere."""
    sockets: Dict[str, runtime.Workers] = {}
    for spec in specs:
        if spec.socket not in sockets:
            sockets[spec.socket] = runtime.workers(machine, spec.socket) or runtime.Workers()
        for pid in sockets[spec.socket].new:
            runtime.tell_worker(machine, spec.socket, pid, f"{word} frontend {spec.backend}")


def _put_back(machine: machines.Machine, specs: Sequence[drain.Drain], stopped: Sequence[str]) -> None:
    for name in stopped:
        machine.run(["systemctl", "start", "--no-block", name])
    with contextlib.suppress(errors.Problem, OSError):
        _doors(machine, specs, "enable")
