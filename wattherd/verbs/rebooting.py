"""Rebooting one host and waiting for it: drained first, then down, then up again with another boot, and its mode read again.

One host at a time is the caller's business.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from wattherd import errors, fleet, inventory, units
from wattherd.link import session
from wattherd.verbs import access, watch
from wattherd.wire import fields

#: A Jetson is back in about a minute, one that resizes its disk later; a server with much memory and many cards after ten.
LIMIT_S = 900.0
_PAUSE_S = 1.0
#: These do not come right by waiting.
_FINAL = frozenset(("host-key-unknown", "host-key-changed", "host-key-revoked", "ssh-config"))
#: And these may, while a host still boots.
_EARLY = fleet.UNREACHABLE - _FINAL | {"login-noise", "sudo-missing", "program-rejected"}


@dataclass(frozen=True, kw_only=True)
class Rebooted:
    """`mode` is what the board is in now, `asked` the mode that waited for the reboot; both empty on what is no Jetson."""

    seconds: float
    mode: str = ""
    asked: str = ""

    @property
    def took(self) -> bool:
        return not self.asked or self.mode == self.asked

    @property
    def words(self) -> str:
        back = f"rebooted, back after {units.duration(self.seconds)}"
        if not self.asked:
            return back
        if self.took:
            return f"{back}, in mode {self.mode}"
        return f"{back}, but in mode {self.mode or 'unknown'} and not {self.asked}: journalctl -b -u nvpmodel there tells why"


def reboot_and_wait(reach: access.Access, host: inventory.Host, seen: watch.Watch, limit_s: float = LIMIT_S) -> Rebooted:
    """Raises what the link raises, `drain-timeout` (nothing was stopped), and `reboot-timeout` when it is not back in time."""
    if host.connection.local:
        raise errors.Problem(
            "not-confirmed",
            f"{host.name} is the machine that this command runs on, so it was not rebooted",
            hint="reboot it yourself; whatever waits for that is set while it boots",
        )

    def on_event(message: dict[str, object] | fields.Document) -> None:
        seen.event(host.name, message)

    opened = reach.open(host)
    try:
        before = opened.facts.system.boot_id
        told = opened.call({"verb": "reboot"}, None, on_event)
    finally:
        opened.close()
    begun_s = time.monotonic()
    opened = _back(reach, host, before, seen, begun_s, limit_s)
    try:
        now = opened.call({"verb": "reboot", "check": True})
    finally:
        opened.close()
    asked = fields.text(told, "pending", "")
    done = Rebooted(seconds=time.monotonic() - begun_s, mode=fields.text(now, "mode", ""), asked=asked)
    (seen.tell if done.took else seen.warn)(f"{host.name}: {done.words}")
    return done


def _back(reach: access.Access, host: inventory.Host, before: str, seen: watch.Watch, begun_s: float, limit_s: float) -> session.Session:
    """A session of the next boot. Nobody tells when a host is up again, so it is tried; the last answer says what was wrong."""
    words = "it still answers with the boot that it had before"
    while True:
        waited_s = time.monotonic() - begun_s
        if waited_s > limit_s:
            raise errors.Problem(
                "reboot-timeout",
                f"{host.name} is not back {units.duration(waited_s)} after it was rebooted: {words}",
                hint="look at its console or its power; run this again when it is back",
            )
        told = {
            "event": "progress",
            "id": "reboot:node",
            "words": "waiting for it to come back",
            "done": waited_s,
            "total": limit_s,
            "unit": "s",
        }
        seen.event(host.name, told)
        try:
            opened = reach.open(host)
        except errors.Problem as problem:
            if problem.code not in _EARLY:
                raise
            words = problem.message
        else:
            if opened.facts.system.boot_id != before:
                return opened
            opened.close()
        time.sleep(_PAUSE_S)
