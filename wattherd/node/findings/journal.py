"""A unit's journal as starts: what each said, when it began and how it ended. Pure; knows journalctl's JSON and systemd's words."""

from __future__ import annotations

import json
import re
from typing import Dict, Iterable, List, Optional, Tuple

from wattherd.records import dataclass

#: Fields that are asked for; the time comes by itself.
FIELDS = "MESSAGE,_PID,_SYSTEMD_INVOCATION_ID,INVOCATION_ID"
_BEGUN = re.compile(r"^Start(?:ed|ing) ")
_ENDED = re.compile(r"(?P<which>Main|Control) process exited, code=(?P<code>\w+), status=(?P<status>[\w/]+)")
_RESULT = re.compile(r"Failed with result '(?P<result>[\w-]+)'|: (?P<oom>A process of this unit has been killed by the OOM killer)")
_PEAK = re.compile(r"(?P<peak>[\d.]+[KMGT]?) (?:memory )?peak|(?P<after>[\d.]+[KMGT]?) memory peak")


@dataclass(frozen=True)
class Entry:
    """`manager` is systemd speaking of the unit; everything else is the program, or systemd's child before it."""

    at_s: float
    text: str
    manager: bool = False
    invocation: str = ""


@dataclass(frozen=True)
class Start:
    """One start of the unit. `ended_s` is None while it runs; `how` is the end in systemd's words (`exited, status 1/FAILURE`)."""

    begun_s: float
    ended_s: Optional[float] = None
    how: str = ""
    result: str = ""
    peak: str = ""
    lines: Tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return bool(self.result) and self.result != "success"

    @property
    def life_s(self) -> Optional[float]:
        return None if self.ended_s is None else max(0.0, self.ended_s - self.begun_s)


def parse(text: str) -> List[Entry]:
    """Lines of `journalctl -o json`, in order. A line that was cut is left out; a message that is no text comes as numbers."""
    entries: List[Entry] = []
    for line in text.splitlines():
        try:
            row = json.loads(line)
            stamp = int(row["__REALTIME_TIMESTAMP"]) / 1e6
        except (ValueError, KeyError, TypeError):
            continue
        message = row.get("MESSAGE")
        if isinstance(message, list):
            message = bytes(one for one in message if isinstance(one, int) and 0 <= one < 256).decode("utf-8", "replace")
        if isinstance(message, str):
            invocation = row.get("INVOCATION_ID") or row.get("_SYSTEMD_INVOCATION_ID") or ""
            entries.append(Entry(stamp, message, row.get("_PID") == "1", str(invocation)))
    return entries


def starts(entries: Iterable[Entry]) -> List[Start]:
    """Oldest first. A process that ended at once can lose its id: such a line belongs to the start that it follows."""
    groups: List[List[Entry]] = []
    known: Dict[str, List[Entry]] = {}
    for entry in entries:
        group = known.get(entry.invocation) if entry.invocation else None
        if group is None and (not groups or entry.invocation or (entry.manager and _BEGUN.match(entry.text))):
            group = []
            groups.append(group)
            if entry.invocation:
                known[entry.invocation] = group
        (groups[-1] if group is None else group).append(entry)
    return [_start(group) for group in groups if not _only_aftermath(group)]


def _only_aftermath(group: List[Entry]) -> bool:
    """What the manager says between two starts (a scheduled restart, "Stopped …") is none of its own."""
    return all(entry.manager and not _BEGUN.match(entry.text) and not _ENDED.search(entry.text) for entry in group)


def _start(group: List[Entry]) -> Start:
    begun = next((entry.at_s for entry in group if entry.manager and _BEGUN.match(entry.text)), group[0].at_s)
    ended: Optional[float] = None
    how = result = peak = ""
    for entry in group:
        if not entry.manager:
            continue
        end, failure, memory = _ENDED.search(entry.text), _RESULT.search(entry.text), _PEAK.search(entry.text)
        if end:
            which = "a command beside the server: " if end.group("which") == "Control" else ""
            ended, how = entry.at_s, f"{which}{end.group('code')}, status {end.group('status')}"
        if failure:
            ended = entry.at_s if ended is None else ended
            result = "oom-kill" if failure.group("oom") else failure.group("result")
        if memory:
            peak = memory.group("peak") or memory.group("after")
    return Start(begun, ended, how, result, peak, tuple(entry.text for entry in group if not entry.manager))
