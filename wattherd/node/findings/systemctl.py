"""Reads what `systemctl show` prints beyond a unit's state: times, the command, variables and their files. Pure."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Tuple

PROPERTIES = (
    "Id,RestartUSec,StartLimitIntervalUSec,StartLimitBurst,Environment,EnvironmentFiles,ExecStart,InaccessiblePaths,"
    "ExecMainStartTimestampMonotonic"
)
#: systemd's `infinity`, as a number that can still be added up and printed.
FOREVER_S = 1e9
_SECONDS = {
    "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "day": 86400.0, "w": 604800.0, "week": 604800.0,
    "month": 2629800.0, "y": 31557600.0, "year": 31557600.0,
}  # fmt: skip


def blocks(text: str) -> List[Dict[str, List[str]]]:
    """One for each unit, in order; a property can stand on several lines."""
    found: List[Dict[str, List[str]]] = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        rows: Dict[str, List[str]] = {}
        for line in block.splitlines():
            key, mark, value = line.partition("=")
            if mark:
                rows.setdefault(key, []).append(value)
        found.append(rows)
    return found


def seconds_of(span: str) -> float:
    """`6min 30s`, `100ms`, `1w 2d`; `infinity` is longer than any; what cannot be read is 0."""
    if span.strip() == "infinity":
        return FOREVER_S
    parts = re.findall(r"(\d+(?:\.\d+)?)([a-z]+)", span)
    return sum(float(count) * _SECONDS.get(unit, _SECONDS.get(unit.rstrip("s"), 0.0)) for count, unit in parts)


def seconds(shown: Mapping[str, List[str]], key: str) -> float:
    return seconds_of("".join(shown.get(key, [])))


def number(shown: Mapping[str, List[str]], key: str) -> int:
    value = "".join(shown.get(key, []))
    return int(value) if re.match(r"\d{1,18}$", value) else 0


def command(shown: Mapping[str, List[str]]) -> Tuple[str, Tuple[str, ...]]:
    """The program's path and its words of the first ExecStart. Words with blanks come apart: they are looked at, never run."""
    for value in shown.get("ExecStart", []):
        met = re.search(r"path=(\S+) ; argv\[\]=(.*?) ; ", value)
        if met:
            return met.group(1), tuple(met.group(2).split())
    return "", ()


def environment_files(shown: Mapping[str, List[str]]) -> List[str]:
    found = [re.match(r"(/\S+)(?: \(ignore_errors=\w+\))?$", value) for value in shown.get("EnvironmentFiles", [])]
    return [met.group(1) for met in found if met]


def hides(shown: Mapping[str, List[str]], path: str) -> bool:
    """Whether the unit's InaccessiblePaths cover the path from its next start on: a folder made since this one is still seen now."""
    hidden = [word.lstrip("-+") for value in shown.get("InaccessiblePaths", []) for word in value.split()]
    return any(path == one or path.startswith(one.rstrip("/") + "/") for one in hidden)
