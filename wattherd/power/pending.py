"""A power policy that nobody has said yes to: what it replaced, and when that comes back by itself.

Written before the new policy, so that a power cut at any instant leaves either the old policy alone or the new one with its way back. Time
is counted by the boot's own clock, which no jump of the wall clock moves; across a reboot the wall clock must do.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import Optional

from wattherd import errors, records
from wattherd import machine as machines
from wattherd.power import wanted
from wattherd.power.health import Vitals
from wattherd.records import dataclass, field
from wattherd.wire import fields

PLACE = wanted.STATE + "/pending.json"


@dataclass(frozen=True)
class Pending:
    """`digest` is of the policy that waits, `previous` the text of the last one that was confirmed; None: there was none.

    It began at `began_s` (wall clock) and `ticks_s` (seconds since the boot `boot_id`) and may stand `confirm_s` seconds. `vitals` is how
    the node was before it. `why` is there once it is being put back.
    """

    digest: str
    confirm_s: int
    boot_id: str
    ticks_s: float
    began_s: float
    previous: Optional[str] = None
    vitals: Vitals = field(default_factory=Vitals)
    why: str = ""


def begin(machine: machines.Machine, text: str, vitals: Vitals) -> None:
    """Before `text` becomes the policy: remember what it replaces. Going back to the last confirmed one needs nobody's yes.

    A policy that replaces one which still waits keeps that one's way back: to the last that somebody has confirmed.
    """
    policy, standing = wanted.decode(text), waiting(machine)
    previous = standing.previous if standing is not None else current(machine)
    if text == previous or policy.confirm_s <= 0:
        return  # what waits speaks of another policy from then on, and so of none
    vitals = standing.vitals if standing is not None else vitals
    _write(machine, Pending(digest_of(text), policy.confirm_s, machine.boot_id(), machine.monotonic_s(), machine.now_s(), previous, vitals))


def waiting(machine: machines.Machine) -> Optional[Pending]:
    """The record of the policy that is in force and not confirmed, or that is being put back; None when nothing waits."""
    found = _read(machine)
    if found is None:
        return None
    text = current(machine)
    if found.why:
        # Half put back: the former one may be in force already. A third one ends it, and so does none in its stead (a restore).
        return found if text == found.previous or digest_of(text or "") == found.digest else None
    return found if text is not None and digest_of(text) == found.digest else None


def left_s(machine: machines.Machine, pending: Pending) -> float:
    """Seconds until it is put back; 0 when that time has come, never more than it was given."""
    same = pending.boot_id == machine.boot_id()
    passed_s = machine.monotonic_s() - pending.ticks_s if same else machine.now_s() - pending.began_s
    return min(max(0.0, pending.confirm_s - passed_s), float(pending.confirm_s))


def renew(machine: machines.Machine, pending: Pending) -> None:
    """Its whole time from now on: a run that took long (a model to load) is no lack of a yes."""
    _write(machine, records.replace(pending, boot_id=machine.boot_id(), ticks_s=machine.monotonic_s(), began_s=machine.now_s()))


def carry_over(machine: machines.Machine, pending: Pending) -> None:
    """After a reboot: from here on by this boot's clock, since the wall clock may yet be set right by hours."""
    if pending.boot_id != machine.boot_id():
        passed_s = pending.confirm_s - left_s(machine, pending)
        ticks_s, began_s = machine.monotonic_s() - passed_s, machine.now_s() - passed_s
        _write(machine, records.replace(pending, boot_id=machine.boot_id(), ticks_s=ticks_s, began_s=began_s))


def condemn(machine: machines.Machine, pending: Pending, why: str) -> Pending:
    """From now on it goes back, whoever is killed on the way."""
    condemned = records.replace(pending, why=why)
    _write(machine, condemned)
    return condemned


def settle(machine: machines.Machine) -> None:
    """It was confirmed, or has been put back: nothing waits any more."""
    machine.unlink(PLACE)
    if machine.is_dir(wanted.STATE):
        machine.sync_folder(wanted.STATE)


def current(machine: machines.Machine) -> Optional[str]:
    """The text of the policy that is in force; None without one."""
    body = wanted.small(machine, wanted.POLICY)
    return None if body is None else body.decode("utf-8", "replace")


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _read(machine: machines.Machine) -> Optional[Pending]:
    body = wanted.small(machine, PLACE)
    if body is not None:
        with contextlib.suppress(ValueError, errors.Problem):
            return fields.build(Pending, fields.document(fields.parsed(body), "pending"))
    return None


def _write(machine: machines.Machine, pending: Pending) -> None:
    machine.make_dirs(wanted.STATE, 0o700)
    machine.write(PLACE, json.dumps(fields.plain(pending), sort_keys=True).encode(), mode=0o600)
