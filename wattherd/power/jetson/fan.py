"""The fan's profile: nvfancontrol on JetPack 5 and later, a fan mode of nvpmodel on 4. Boards with neither have no profiles.

nvfancontrol keeps the profile that it last had in a status file, which wins over its configuration until it is deleted (NVIDIA's Developer
Guide, "Fan Profile Control"). The service is started again whatever happens: a board must not be left without a fan.
"""

from __future__ import annotations

import re
from typing import List, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.power.jetson import nvpmodel, tools, verdict

CONF = "/etc/nvfancontrol.conf"
STATUS = "/var/lib/nvfancontrol/status"
_SERVICE = "nvfancontrol"
_SERVICE_LIMIT_S = 30.0
_READBACK_S = 10.0
NONE = "this board has no fan profiles: neither nvfancontrol nor a fan mode of nvpmodel"
#: What `nvpmodel -d` takes on JetPack 4.
_OLD_PROFILES = ("cool", "quiet")
_DEFAULT = re.compile(r"^([ \t]*FAN_DEFAULT_PROFILE[ \t]+)(\S+)", re.MULTILINE)
_PROFILE = re.compile(r"^[ \t]*FAN_PROFILE[ \t]+(\w+)", re.MULTILINE)
_QUERIED = re.compile(r"^\s*FAN\d*:FAN_PROFILE:(\S+)", re.MULTILINE)


def profiles(machine: machines.Machine, current: nvpmodel.Current) -> Tuple[str, ...]:
    """What this board can be asked for; empty where it has no profiles."""
    if _by_service(machine):
        return tuple(dict.fromkeys(_PROFILE.findall(tools.text(machine, CONF))))
    return _OLD_PROFILES if current.fans else ()


def profile(machine: machines.Machine, current: nvpmodel.Current) -> str:
    """The profile in use, all of them where two fans differ; empty where it is unknown, or there is none."""
    if not _by_service(machine):
        return current.fan
    return ", ".join(dict.fromkeys(_QUERIED.findall(tools.run(machine, ["nvfancontrol", "-q"]).text)))


def put(machine: machines.Machine, wanted: str) -> verdict.Verdict:
    """Set the profile on every fan and read it back. `mode-unknown` names those that there are."""
    current = nvpmodel.query(machine)
    known = profiles(machine, current)
    if not known:
        return verdict.Verdict("unsupported", NONE)
    check(known, wanted)
    if profile(machine, current) == wanted:
        return verdict.DONE
    if not _by_service(machine):
        done = tools.run(machine, ["nvpmodel", "-d", wanted])
        return _read_back(machine, wanted, done.words)
    return _by_conf(machine, wanted)


def check(known: Tuple[str, ...], wanted: str) -> None:
    if wanted not in known:
        raise errors.Problem("mode-unknown", f"this board has no fan profile '{wanted}'", hint=f"it has: {', '.join(known)}")


def _by_service(machine: machines.Machine) -> bool:
    return machine.exists(CONF) and tools.has(machine, "nvfancontrol")


def _by_conf(machine: machines.Machine, wanted: str) -> verdict.Verdict:
    """The file behind the link is changed (the link leads to the board's own), and put back when the profile does not take."""
    path = _target(machine)
    before = machine.read(path) or b""
    body = _DEFAULT.sub(lambda found: found.group(1) + wanted, before.decode("utf-8", "surrogateescape"))
    found = machine.lstat(path)
    mode = found.st_mode & 0o777 if found is not None else 0o644
    machine.must(["systemctl", "stop", _SERVICE], timeout_s=_SERVICE_LIMIT_S)
    try:
        machine.write(path, body.encode("utf-8", "surrogateescape"), mode=mode)
        machine.unlink(STATUS)
    finally:
        started = machine.run(["systemctl", "start", _SERVICE], timeout_s=_SERVICE_LIMIT_S)
    outcome = _read_back(machine, wanted, started.words)
    if not outcome.done:
        machine.write(path, before, mode=mode)
        machine.unlink(STATUS)
        machine.run(["systemctl", "restart", _SERVICE], timeout_s=_SERVICE_LIMIT_S)
    return outcome


def _target(machine: machines.Machine) -> str:
    link = machine.readlink(CONF)
    if link is None:
        return CONF
    return link if link.startswith("/") else f"{CONF.rpartition('/')[0]}/{link}"


def _read_back(machine: machines.Machine, wanted: str, words: str) -> verdict.Verdict:
    """The service needs a moment before it answers."""
    ends_s = machine.monotonic_s() + _READBACK_S
    found: List[str] = []
    while True:
        found = [profile(machine, nvpmodel.query(machine))]
        if found == [wanted]:
            return verdict.DONE
        if machine.monotonic_s() >= ends_s:
            said = f": {words.splitlines()[-1][:200]}" if words.strip() else ""
            return verdict.Verdict("failed", f"the fan's profile is still {found[0] or 'unknown'}{said}")
        machine.wait(0.5)
