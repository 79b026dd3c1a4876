"""Starting and stopping a unit, and waiting until it really runs, is ready, or has failed.

Starts without blocking and looks, so that an operator sees progress and a failed start ends the wait at once. Knows
systemd's states, not which one is wanted.
"""

from __future__ import annotations

from typing import Optional

from wattherd import errors, records
from wattherd import machine as machines
from wattherd.resources import base, readiness, systemd

_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 2.0
_PAUSE_GROWTH = 1.5
#: systemd kills by itself after the unit's TimeoutStopSec (90 s unless it says otherwise).
STOP_LIMIT_S = 120
_KILL_LIMIT_S = 15.0
#: A process that has stood this long without a readiness check is taken as started.
_SETTLE_S = 1.0
#: Between fork and exec the new process still shows systemd's own environment.
_INPUTS_LIMIT_S = 5.0
_UP, _DOWN, _WAIT = "up", "down", "wait"


def start(
    machine: machines.Machine, before: systemd.Seen, *, again: bool, limit_s: float, tell: base.Tell, stop_limit_s: float = STOP_LIMIT_S
) -> systemd.Seen:
    """Start, or restart, and wait until it is active. `unit-failed` with the first telling line when it does not come up."""
    if before.active == "failed" or before.restarts or before.sub.startswith("auto-restart"):
        machine.run(["systemctl", "reset-failed", before.name])  # forgets the start limit, and counts restarts from 0
    since_s = machine.now_s()
    tell(f"{'restarting' if again else 'starting'} {before.name}")
    done = machine.run(["systemctl", "restart" if again else "start", "--no-block", before.name])
    if done.code != 0:
        raise errors.Problem("unit-failed", f"unit:{before.name} could not be started: {done.words[:400]}", hint=_hint(before.name))
    return _await_active(machine, records.replace(before, restarts=0), since_s, limit_s, tell, stop_limit_s)


def wait(machine: machines.Machine, seen: systemd.Seen, *, limit_s: float, tell: base.Tell) -> systemd.Seen:
    """Wait for a start that somebody else has begun."""
    return _await_active(machine, records.replace(seen, invocation=""), machine.now_s(), limit_s, tell)


def settle(machine: machines.Machine, started: systemd.Seen) -> None:
    """For a process without a readiness check: wrong flags and missing libraries end it within moments of its start."""
    since_s = machine.now_s()
    machine.wait(_SETTLE_S)
    now = systemd.look_one(machine, started.name)
    if not now.running or now.invocation != started.invocation:
        raise _failed(machine, now, started.invocation, since_s)


def await_inputs(machine: machines.Machine, started: systemd.Seen, digest: str) -> None:
    """The new process must show the inputs that it was started from, or every later run would restart it again."""
    begun_s, now = machine.monotonic_s(), started
    while systemd.started_with(machine, now.pid) != digest:
        now = systemd.look_one(machine, started.name)
        if not now.running or now.invocation != started.invocation:
            raise _failed(machine, now, started.invocation, machine.now_s())
        if machine.monotonic_s() - begun_s > _INPUTS_LIMIT_S:
            raise errors.Problem(
                "unit-invalid",
                f"unit:{started.name}: its main process (pid {now.pid}) does not carry {systemd.INPUTS} in its environment",
                hint="a wrapper that clears the environment (env -i, sudo) hides what it was started from: start the program itself",
            )
        machine.wait(_FIRST_PAUSE_S)


def await_ready(machine: machines.Machine, started: systemd.Seen, url: str, limit_s: float, tell: base.Tell) -> None:
    """Ask until it answers 200. Ends at once when the unit failed or was restarted meanwhile."""
    begun_s, since_s, pause_s = machine.monotonic_s(), machine.now_s(), _FIRST_PAUSE_S
    while True:
        now = systemd.look_one(machine, started.name)
        if not now.running or now.invocation != started.invocation or now.restarts > started.restarts:
            raise _failed(machine, now, started.invocation, since_s)
        status, words = readiness.ask(url, root=machine.root)
        if status == readiness.READY:
            return
        waited_s = machine.monotonic_s() - begun_s
        if waited_s >= limit_s:
            raise _not_ready(now, limit_s, f"{url} said last: {words}")
        tell(f"{started.name}: {words}", waited_s, limit_s, "s")
        machine.wait(min(pause_s, limit_s - waited_s))
        pause_s = min(pause_s * _PAUSE_GROWTH, _LONGEST_PAUSE_S)


def stop(machine: machines.Machine, name: str, tell: base.Tell, limit_s: float = STOP_LIMIT_S) -> None:
    """Ask, wait, and kill what does not end."""
    machine.run(["systemctl", "stop", "--no-block", name])  # a unit that is gone already is what was asked for
    if _await_end(machine, name, limit_s, tell):
        return
    tell(f"{name} did not stop within {limit_s:.0f} s: killing it")
    machine.run(["systemctl", "kill", "--signal=SIGKILL", name])
    if not _await_end(machine, name, _KILL_LIMIT_S, tell):
        raise errors.Problem(
            "unit-failed",
            f"unit:{name} does not stop, not even when killed",
            hint="a process in state D waits for a device or driver: dmesg tells which",
        )


def _await_active(
    machine: machines.Machine, before: systemd.Seen, since_s: float, limit_s: float, tell: base.Tell, stop_limit_s: float = STOP_LIMIT_S
) -> systemd.Seen:
    asked_s, pause_s = machine.monotonic_s(), _FIRST_PAUSE_S
    begun_s: Optional[float] = None
    invocation = ""
    while True:
        now, clock_s = systemd.look_one(machine, before.name), machine.monotonic_s()
        if _fresh(before, now) and begun_s is None:
            begun_s, invocation = clock_s, now.invocation
        verdict = _verdict(before, now)
        if verdict == _UP:
            return now
        if verdict == _DOWN:
            raise _failed(machine, now, invocation, since_s)
        waited_s, bound_s = (clock_s - asked_s, stop_limit_s + limit_s) if begun_s is None else (clock_s - begun_s, limit_s)
        if waited_s >= bound_s:
            raise _not_ready(now, bound_s, f"systemd still says {now.active} ({now.sub})")
        tell(f"{before.name}: {'waiting for the old process to end' if begun_s is None else 'starting'}", waited_s, bound_s, "s")
        machine.wait(pause_s)
        pause_s = min(pause_s * _PAUSE_GROWTH, _LONGEST_PAUSE_S)


def _fresh(before: systemd.Seen, now: systemd.Seen) -> bool:
    """Each activation has an id of its own: until it changes, what we see is the old process."""
    return now.invocation not in {"", before.invocation}


def _verdict(before: systemd.Seen, now: systemd.Seen) -> str:
    if now.runs_once and now.ended and not now.waiting:
        return _DOWN if now.active == "failed" else _UP
    if not _fresh(before, now):
        return _WAIT if now.waiting else _DOWN
    if now.restarts > before.restarts or now.ended or now.sub.startswith("auto-restart"):
        return _DOWN
    return _UP if now.running else _WAIT


def _await_end(machine: machines.Machine, name: str, limit_s: float, tell: base.Tell) -> bool:
    begun_s, pause_s = machine.monotonic_s(), _FIRST_PAUSE_S
    while True:
        now = systemd.look_one(machine, name)
        if now.ended and not now.waiting:
            return True
        waited_s = machine.monotonic_s() - begun_s
        if waited_s >= limit_s:
            return False
        tell(f"stopping {name}", waited_s, limit_s, "s")
        machine.wait(pause_s)
        pause_s = min(pause_s * _PAUSE_GROWTH, _LONGEST_PAUSE_S)


def _failed(machine: machines.Machine, now: systemd.Seen, invocation: str, since_s: float) -> errors.Problem:
    from wattherd.wire import finding  # only who fails needs it

    line = finding.plain_line(systemd.why_it_failed(machine, now.name, invocation, since_s), systemd.LINE_LIMIT)
    if not invocation:
        return errors.Problem("unit-failed", f"unit:{now.name} was not started: {line or 'systemd named no reason'}", hint=_hint(now.name))
    from wattherd.resources import complaints  # only who fails needs it

    ended = "systemd restarted it after it failed" if now.restarts and now.running else now.exit_words
    known = complaints.explain([line], now.name) if line else None
    told = known if known is not None and known.code != "server-error" else None
    return errors.Problem(
        "unit-failed",
        f"unit:{now.name} {'failed' if now.runs_once else 'does not stay up'} ({ended}){': ' if line else ''}{line}",
        hint=f"{told.do}; {_hint(now.name)}" if told is not None and told.do else _hint(now.name),
        finding=None if told is None else told.code,
        ended=ended,
        restarts=now.restarts or None,
    )


def _not_ready(now: systemd.Seen, limit_s: float, words: str) -> errors.Problem:
    alive = f"its process {now.pid} is alive and was left running" if now.pid else "it was left as it is"
    return errors.Problem(
        "unit-not-ready",
        f"unit:{now.name} was not ready within {limit_s:.0f} s; {words}",
        hint=f"{alive}: journalctl -u {now.name} -f shows how far it is; run again, or give it more time (ready_timeout_s)",
        pid=now.pid or None,
    )


def _hint(name: str) -> str:
    return f"journalctl -u {name} -n 50 shows the rest"
