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


def _unit(text: str) -> str:
    """From /proc/PID/cgroup: the deepest service or scope of the path that systemd owns (version 2, or the hierarchy named by it)."""
    paths: List[str] = []
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if (number, controllers) == ("0", "") or controllers == "name=systemd":
            paths.append(path)
    parts = [part for path in paths for part in path.split("/") if _UNIT.match(part)]
    return cell.printable(parts[-1], 128) if parts else ""


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
