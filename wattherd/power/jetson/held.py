"""A Jetson held to its policy: what differs of it, that put right, and that taken back. The board's half of what the keeper does."""

from __future__ import annotations

from typing import Callable, Dict, List, Mapping, Optional, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.power import drift, memory, reading, wanted
from wattherd.power.jetson import change, conf, nvpmodel, tools, verdict

MODE, PINNED, FAN = "mode", "pinned", "fan"
NAMES: Mapping[str, str] = {MODE: "power mode", PINNED: "clocks", FAN: "fan profile"}


def differences(machine: machines.Machine, policy: wanted.BoardPolicy, board: reading.Board) -> Tuple[drift.Difference, ...]:
    """What is not as wanted and could be. A mode that waits for a reboot is no drift: it was said, and asking again helps nobody."""
    shown = board.name or "this board"
    found: List[Tuple[str, str, str]] = []
    modes = conf.read(machine)
    mode = modes.named(policy.mode) if policy.mode else None
    if mode is not None and board.mode_id is not None and board.pending_mode != mode.name:
        loose = nvpmodel.loose(machine, modes, mode) if board.mode_id == mode.number else ""
        if board.mode_id != mode.number or loose:
            found.append((MODE, mode.name, f"{mode.name}, but its clocks are not capped" if loose else board.mode))
    if policy.pinned is not None and board.pinned is not None and board.pinned != policy.pinned:
        found.append((PINNED, _pinned(policy.pinned), _pinned(board.pinned)))
    if policy.fan and board.fan and board.fan != policy.fan:
        found.append((FAN, policy.fan, board.fan))
    can = [one for one in found if not memory.unsupported(machine, memory.BOARD, one[0], release(machine))]
    return tuple(drift.Difference(drift.BOARD, setting, wished, now, shown) for setting, wished, now in can)


def apply(machine: machines.Machine, policy: wanted.BoardPolicy, chosen: Tuple[str, ...]) -> Dict[str, verdict.Verdict]:
    """Put the `chosen` settings right, the mode first: it decides what pinned clocks are. What the board cannot have is remembered."""
    made: Dict[str, verdict.Verdict] = {}
    with memory.alone(machine):
        for setting in (one for one in (MODE, PINNED, FAN) if one in chosen):
            made[setting] = _guarded(lambda s=setting: _set(machine, policy, s))  # type: ignore[misc]
            if made[setting].kind == "unsupported":
                memory.keep_unsupported(machine, memory.BOARD, setting, release(machine), made[setting].words)
    return made


def put_back(machine: machines.Machine, policy: Optional[wanted.BoardPolicy], say: Callable[[str], None]) -> bool:
    """The settings that `policy` does not name, as they were before the first change. False where one did not go, and may later.

    A mode that takes a reboot is left to the next boot.
    """
    kept = policy or wanted.BoardPolicy()
    named = {MODE: bool(kept.mode), PINNED: kept.pinned is not None, FAN: bool(kept.fan)}
    whole = True
    with memory.alone(machine):
        for setting in [one for one in memory.before(machine).get(memory.BOARD, {}) if not named.get(one, False)]:
            done = _guarded(lambda s=setting: change.back(machine, s) or verdict.DONE)  # type: ignore[misc]
            if setting == MODE and done.kind in change.WAITS:
                say(f"{change.at_next_boot(machine)} comes back with the next boot of this board")
            elif not done.done and done.kind != "unsupported":
                say(f"its {setting} is not back yet: {done.words}")
                whole = False
    return whole


def release(machine: machines.Machine) -> str:
    """The board's software: what was found impossible with one is tried again with the next."""
    return (tools.text(machine, tools.RELEASE).splitlines() or [""])[0][:200]


def _set(machine: machines.Machine, policy: wanted.BoardPolicy, setting: str) -> verdict.Verdict:
    if setting == MODE:
        return change.mode(machine, policy.mode)
    if setting == PINNED:
        return change.pinned(machine, bool(policy.pinned))
    return change.profile(machine, policy.fan)


def _guarded(work: Callable[[], verdict.Verdict]) -> verdict.Verdict:
    """A name that the board does not have, a file that cannot be written: words, and the other settings go on."""
    try:
        return work()
    except errors.Problem as problem:
        return verdict.Verdict("failed", problem.message)
    except OSError as error:
        return verdict.Verdict("failed", f"{error.strerror}: {error.filename}")


def _pinned(value: bool) -> str:
    return "pinned" if value else "free"
