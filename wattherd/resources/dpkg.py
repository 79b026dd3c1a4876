"""Debian's package database, read in one pass of byte searches: /var/lib/dpkg/status of any size in a few milliseconds.

Knows dpkg's words for the states of a package, architectures and virtual packages; changes nothing.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional, Sequence, Set

from wattherd import machine as machines

STATUS = "/var/lib/dpkg/status"
#: dpkg's journal: files here are steps that a dpkg has taken and not yet folded into the status file.
UPDATES = "/var/lib/dpkg/updates"
INSTALLED = "installed"
#: States in which nothing of the package can run: its files are gone, or never came.
_ABSENT = frozenset(("config-files", "not-installed"))
_PROVIDES = rb"\nProvides: ([^\n]*)"


def states(machine: machines.Machine, names: Sequence[str]) -> Mapping[str, Optional[str]]:
    """Name -> dpkg's word for its state, None when absent. A name that an installed package provides is installed."""
    return parse(machine.read(STATUS) or b"", names)


def parse(body: bytes, names: Sequence[str]) -> Mapping[str, Optional[str]]:
    body = b"\n" + body
    stanzas = _stanzas(body, {name.partition(":")[0] for name in names} | {"dpkg"})
    native = next((_field(stanza, b"Architecture") for stanza in stanzas.get("dpkg", [])), "")
    found = {name: _state(stanzas.get(name.partition(":")[0], []), name.partition(":")[2], native) for name in names}
    open_names = [name for name, state in found.items() if state is None]
    return {**found, **_provided(body, open_names)} if open_names else found


def interrupted(machine: machines.Machine) -> bool:
    return any(name.isdigit() for name in machine.names(UPDATES))


def _state(stanzas: Sequence[bytes], asked: str, native: str) -> Optional[str]:
    """`name:arch` asks for that architecture, a bare name for the node's own. `all` is every architecture."""
    fitting = {asked or native, "all"} if (asked or native) and asked != "any" else None
    fits = [stanza for stanza in stanzas if fitting is None or _field(stanza, b"Architecture") in fitting]
    words = [_field(stanza, b"Status").rpartition(" ")[2] for stanza in fits]
    there = [word for word in words if word and word not in _ABSENT]
    return INSTALLED if INSTALLED in there else there[0] if there else None


def _stanzas(body: bytes, names: Set[str]) -> Dict[str, List[bytes]]:
    """Name -> its stanzas, one for every architecture. One search for all names: the file is megabytes, the names are few."""
    found: Dict[str, List[bytes]] = {}
    for match in re.finditer(b"\nPackage: (" + b"|".join(re.escape(name.encode()) for name in sorted(names)) + b")\n", body):
        end = body.find(b"\n\n", match.start() + 1)
        found.setdefault(match.group(1).decode(), []).append(body[match.start() : end if end >= 0 else len(body)])
    return found


def _field(stanza: bytes, key: bytes) -> str:
    start = stanza.find(b"\n" + key + b": ")
    if start < 0:
        return ""
    end = stanza.find(b"\n", start + 1)
    return stanza[start + len(key) + 3 : end if end >= 0 else len(stanza)].decode("utf-8", "replace").strip()


def _provided(body: bytes, names: Sequence[str]) -> Dict[str, str]:
    """Virtual names: those that stand in the Provides of a package that is installed."""
    wanted = {name.partition(":")[0]: name for name in names}
    found: Dict[str, str] = {}
    for match in re.finditer(_PROVIDES, body):
        for name in _provisions(match.group(1)):
            if name in wanted and _owner_is_installed(body, match.start()):
                found[wanted[name]] = INSTALLED
    return found


def _provisions(line: bytes) -> List[str]:
    """`mail-transport-agent, awk (= 1.0), libx:any` -> the bare names."""
    return [part.split()[0].partition(":")[0] for part in line.decode("utf-8", "replace").split(",") if part.split()]


def _owner_is_installed(body: bytes, inside: int) -> bool:
    start = max(0, body.rfind(b"\n\n", 0, inside))
    end = body.find(b"\n\n", inside)
    return _field(body[start : end if end >= 0 else len(body)], b"Status").endswith(f" {INSTALLED}")
