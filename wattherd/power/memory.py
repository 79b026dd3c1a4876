"""What the node remembers about its cards and its board, so that it can go back, and so that it does not try twice what cannot be.

Three small files in `wanted.STATE`, each written whole. What they say was written by this program; what is damaged of one counts as not
there, since nothing can be made up, and a copy of it is kept beside it. Whoever writes holds the power lock (`alone`).
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Dict, Iterator, Mapping, Optional, Tuple

from wattherd import errors, store
from wattherd import machine as machines
from wattherd.power import settings, wanted
from wattherd.wire import fields

#: Whose before is the board's, beside the cards' by their UUIDs.
BOARD = "board"
BEFORE = wanted.STATE + "/before.json"
APPLIED = wanted.STATE + "/applied.json"
UNSUPPORTED = wanted.STATE + "/unsupported.json"
DAMAGED = ".damaged"
LOCK = "/run/wattherd-power.lock"
_LOCK_WAIT_S = 60.0

Rows = Dict[str, Dict[str, object]]
Value = Tuple[float, ...]


@contextlib.contextmanager
def alone(machine: machines.Machine) -> Iterator[None]:
    """One at a time changes power on this node: a run, a restore, the keeper. Not for looking. `node-busy` after a minute."""
    words = "something else has been changing the cards of this node for a minute"
    hint = f"the keeper, or another run, waits for the driver: fuser -v {LOCK}"
    machine.make_dirs(os.path.dirname(LOCK))
    with store.locked(machine, LOCK, errors.Problem("node-busy", words, hint=hint), _LOCK_WAIT_S):
        yield


# -- what was there before the first change, and what we set


def before(machine: machines.Machine) -> Rows:
    """UUID (or BOARD) -> setting -> the value before our first change: empty for clocks that were free, None where it could not be read."""
    return _rows(machine, BEFORE)


def lost(machine: machines.Machine) -> str:
    """Where a copy lies of what was remembered and could not be read any more; empty where nothing was lost."""
    return BEFORE + DAMAGED if machine.exists(BEFORE + DAMAGED) else ""


def value_before(machine: machines.Machine, uuid: str, setting: str) -> Optional[Value]:
    """Of a card; None where nothing is remembered, or nothing could be read then."""
    return _value(setting, before(machine).get(uuid, {}).get(setting))


def changed(machine: machines.Machine) -> Mapping[str, Tuple[str, ...]]:
    """UUID -> the settings that were changed here and not returned to what they were, of those that this version knows."""
    found: Dict[str, Dict[str, None]] = {}
    for path in (BEFORE, APPLIED):
        for owner, row in _rows(machine, path).items():
            if owner != BOARD:
                found.setdefault(owner, {}).update(dict.fromkeys(one for one in row if one in settings.COUNTS))
    return {uuid: tuple(row) for uuid, row in found.items() if row}


def remember(machine: machines.Machine, owner: str, setting: str, value: object) -> bool:
    """Before the first change, and never again: what is remembered stays. True where this was the first."""
    rows = before(machine)
    if setting in rows.get(owner, {}):
        return False
    rows.setdefault(owner, {})[setting] = value
    _put(machine, BEFORE, rows)
    return True


def forget(machine: machines.Machine, owner: str, setting: str) -> None:
    """After it was returned to: the next change is a first change again."""
    _drop(machine, APPLIED, owner, setting)
    _drop(machine, BEFORE, owner, setting)


def keep_set(machine: machines.Machine, uuid: str, setting: str, value: Value, epoch: str) -> None:
    """What was set, in which epoch (`Look.epoch`) of the driver. For a clock lock this is all that anybody knows of it."""
    rows = _rows(machine, APPLIED)
    rows.setdefault(uuid, {})[setting] = {"value": list(value), "epoch": epoch, "at_s": round(machine.now_s())}
    _put(machine, APPLIED, rows)


def last_set(machine: machines.Machine, uuid: str, setting: str, epoch: Optional[str] = None) -> Optional[Value]:
    """The value that we last set, in this epoch if one is named; None where we did not."""
    row = _rows(machine, APPLIED).get(uuid, {}).get(setting)
    if not isinstance(row, dict) or (epoch is not None and (not epoch or row.get("epoch") != epoch)):
        return None
    return _value(setting, row.get("value"))


def drop_lock(machine: machines.Machine, uuid: str, setting: str) -> None:
    """Where the clock of the card has shown that the lock is not there any more: the next settling sets it again."""
    value = last_set(machine, uuid, setting)
    if value is not None:
        keep_set(machine, uuid, setting, value, "")


# -- what this card and this driver cannot do


def unsupported(machine: machines.Machine, uuid: str, setting: str, driver: str) -> str:
    """Why not, as found with this very driver; empty where nobody has tried."""
    row = _rows(machine, UNSUPPORTED).get(uuid, {}).get(setting)
    if isinstance(row, dict) and row.get("driver") == driver and isinstance(row.get("reason"), str):
        return str(row["reason"])
    return ""


def keep_unsupported(machine: machines.Machine, uuid: str, setting: str, driver: str, reason: str) -> None:
    rows = _rows(machine, UNSUPPORTED)
    row: Mapping[str, object] = {"driver": driver, "reason": reason}
    if rows.get(uuid, {}).get(setting) != row:
        rows.setdefault(uuid, {})[setting] = row
        _put(machine, UNSUPPORTED, rows)


def seen(machine: machines.Machine, uuid: str) -> bool:
    """Some earlier run set or tried something on this card: it has been in this node."""
    return any(uuid in _rows(machine, path) for path in (BEFORE, APPLIED, UNSUPPORTED))


# -- the files


def _rows(machine: machines.Machine, path: str) -> Rows:
    return _whole_and_rest(wanted.small(machine, path))[0]


def _whole_and_rest(body: Optional[bytes]) -> Tuple[Rows, bool]:
    """The rows that can be used, and whether there is more: one damaged row costs none of the others."""
    if body is None:
        return {}, False
    with contextlib.suppress(ValueError, errors.Problem):
        told = fields.document(fields.parsed(body), "")
        rows = {key: dict(row) for key, row in told.items() if key and isinstance(row, dict)}
        return rows, len(rows) < len(told)
    return {}, True


def _put(machine: machines.Machine, path: str, rows: Rows) -> None:
    rows = {key: row for key, row in rows.items() if row}
    if not rows:
        machine.unlink(path)
        return
    machine.make_dirs(wanted.STATE)
    _put_aside(machine, path)
    machine.write(path, json.dumps(rows, indent=1, sort_keys=True).encode(), mode=0o600)


def _value(setting: str, told: object) -> Optional[Value]:
    """A value of that setting, or free clocks; None for whatever else stands there."""
    if not isinstance(told, list) or not all(isinstance(one, (int, float)) for one in told):
        return None
    if len(told) != settings.COUNTS.get(setting) and not (setting in settings.LOCKS and not told):
        return None
    with contextlib.suppress(errors.Problem):
        return tuple(fields.finite(one, setting) for one in told)
    return None


def _put_aside(machine: machines.Machine, path: str) -> None:
    """A copy, since a power cut between a rename and the new file would leave neither."""
    body = wanted.small(machine, path)
    if body and _whole_and_rest(body)[1]:
        machine.write(path + DAMAGED, body, mode=0o600)


def _drop(machine: machines.Machine, path: str, owner: str, setting: str) -> None:
    rows = _rows(machine, path)
    if setting in rows.get(owner, {}):
        del rows[owner][setting]
        _put(machine, path, rows)
