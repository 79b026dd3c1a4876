"""A transient systemd unit for work that outlives the connection: its command, and what systemd says of it later.

Knows systemd's words and nothing of what runs inside.
"""

from __future__ import annotations

from typing import List, Mapping, Sequence

from wattherd import machine as machines
from wattherd import store, units
from wattherd.records import dataclass

#: A build of every CUDA architecture on two slow cores takes hours; one that takes longer hangs.
LONGEST_S = 12 * 3600
#: It takes what nothing else wants and dies before a server does when memory runs out. A source's own build scripts run here,
#: as root: they get no network, and nothing to write to but Wattherd's places.
_PROPERTIES = (
    "Type=exec",
    "Nice=10",
    "CPUWeight=20",
    "IOSchedulingClass=idle",
    "OOMScoreAdjust=800",
    "OOMPolicy=continue",
    "KillMode=control-group",
    f"RuntimeMaxSec={LONGEST_S}",
    "PrivateNetwork=yes",
    "PrivateTmp=yes",
    "ProtectSystem=strict",
    f"ReadWritePaths=/var/cache/wattherd {store.HOME}",
    "ProtectHome=yes",
    "NoNewPrivileges=yes",
    "UMask=0022",
)
_ENDINGS: Mapping[str, str] = {
    "oom-kill": "the kernel ended it for want of memory",
    "timeout": f"it had not ended after {units.duration(LONGEST_S)}",
    "signal": "somebody killed it",
    "success": "it was stopped, or the machine went down",
    "core-dump": "it crashed",
    "exit-code": "its program failed",
}


@dataclass(frozen=True)
class Unit:
    """What systemd says of a unit. One that it does not know is not running."""

    running: bool = False
    result: str = ""
    since: str = ""

    @property
    def ending(self) -> str:
        """Why it is not running any more, in words."""
        return _ENDINGS.get(self.result, f"its unit ended ({self.result or 'unknown'})")


def start_argv(unit: str, description: str, log: str, program: Sequence[str]) -> List[str]:
    """The command that starts `program` apart from this session: no network, no terminal, no pipe of ours."""
    properties = [*_PROPERTIES, f"StandardOutput=append:{log}", "StandardError=inherit"]
    named = [f"--unit={unit}", f"--description={description}"]
    return ["systemd-run", "--quiet", *named, *(f"--property={one}" for one in properties), "--", *program]


def look(machine: machines.Machine, unit: str) -> Unit:
    done = machine.run(["systemctl", "show", unit, "--property=ActiveState,Result,ActiveEnterTimestamp"])
    return parse(done.text) if done.code == 0 else Unit()


def parse(text: str) -> Unit:
    pairs = dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)
    running = pairs.get("ActiveState", "") in ("active", "activating", "reloading", "deactivating")
    return Unit(running, pairs.get("Result", ""), pairs.get("ActiveEnterTimestamp", "") or "just now")
