"""Which processes hold the cards: the driver gives their numbers, /proc says who they are.

Everything that a process says of itself is data: it may hold control characters, it may lie, it may be gone while we look. A process of
another container is not in this /proc at all: it is named as unknown, never left out, since it keeps the card awake all the same.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Dict, List, Optional, Sequence, Tuple

from wattherd import machine as machines
from wattherd import records
from wattherd.power import cell, reading

UNKNOWN = "unknown process"
#: serving/instance.py names the units of a served instance so.
_INSTANCE = re.compile(r"llama@(.+)\.service\Z")
_UNIT = re.compile(r".+\.(?:service|scope)\Z")


def completed(machine: machines.Machine, found: Sequence[reading.Holder]) -> Tuple[reading.Holder, ...]:
    """Each process once, with its name, user, unit and model; the one that holds most memory first."""
    merged: Dict[int, reading.Holder] = {}
    for one in found:
        before = merged.get(one.pid)
        if before is None or (one.memory_mib or 0) > (before.memory_mib or 0):
            merged[one.pid] = one
    known = [_known(machine, one) for one in merged.values()]
    return tuple(sorted(known, key=lambda one: (-(one.memory_mib or 0), one.pid)))


def _known(machine: machines.Machine, holder: reading.Holder) -> reading.Holder:
    folder = f"/proc/{holder.pid}"
    name = cell.printable(_read(machine, f"{folder}/comm").rstrip("\n"), 64)
    seen = machine.lstat(folder)
    if not name or seen is None:
        return records.replace(holder, name=holder.name or UNKNOWN)
    unit = _unit(_read(machine, f"{folder}/cgroup"))
    words = _read(machine, f"{folder}/cmdline").split("\0")
    return records.replace(holder, name=name, user=machine.owner_name(seen.st_uid), unit=unit, model=_model(unit, words))


def _read(machine: machines.Machine, path: str) -> str:
    with contextlib.suppress(OSError):
        return machine.text(path)
    return ""


def service_of(cgroup: str) -> str:
    """The service that a process belongs to, from /proc/PID/cgroup of either generation; empty for one that was started by hand."""
    for path in _paths(cgroup):
        services = [part for part in path.split("/") if part.endswith(".service")]
        if services:
            # A login's own manager is a service too; what runs under it is not one of the system's.
            return "" if services[0].startswith("user@") else services[-1]
    return ""


def _unit(cgroup: str) -> str:
    """The deepest service or scope: of a process that was started by hand the session that it belongs to."""
    parts = [part for path in _paths(cgroup) for part in path.split("/") if _UNIT.match(part)]
    return cell.printable(parts[-1], 128) if parts else ""


def _paths(cgroup: str) -> List[str]:
    """Where systemd has the process: in the one hierarchy of version 2, or in the one of version 1 that is named by it."""
    found: List[str] = []
    for line in cgroup.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if (number, controllers) == ("0", "") or controllers == "name=systemd":
            found.append(path)
    return found


def _model(unit: str, words: Sequence[str]) -> str:
    """What a llama-server serves: its file, or the name that it gives out; without either the name of its instance."""
    instance = _INSTANCE.match(unit)
    if not instance and not os.path.basename(words[0] if words else "").startswith("llama-"):
        return ""
    told = os.path.basename(_option(words, "-m", "--model") or "") or _option(words, "-a", "--alias") or ""
    return cell.printable(re.sub(r"\.gguf\Z", "", told), 128) or (instance.group(1) if instance else "")


def _option(words: Sequence[str], *names: str) -> Optional[str]:
    for at, word in enumerate(words):
        head, mark, tail = word.partition("=")
        if head in names:
            return tail if mark else (words[at + 1] if at + 1 < len(words) else None)
    return None
