"""NVIDIA's Xid errors in the kernel log: four spellings, one table, and cards that fall off the bus without a number. Pure."""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, Mapping, Sequence, Tuple

from wattherd.records import dataclass
from wattherd.wire import finding

#: `(PCI:0000:06:00)`, `(0000:01:00)`, with or without a function; the number and the rest follow.
_XID = re.compile(r"\bXid \((?:PCI:)?(?P<bus>[0-9a-fA-F:.]{4,20})\): (?P<number>\d{1,4})(?:,\s*(?P<rest>.*))?")
_PROCESS = re.compile(r"^pid='?(?P<pid>[^',]{1,40})'?,\s*(?:name=(?P<name>[^,]{1,80}),\s*)?")
_NVRM = re.compile(r"NVRM:\s*(?P<text>.*)")
_CARD = re.compile(r"(?:GPU|PCI)[: ](?:at )?(?P<bus>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?)")
_LOST = re.compile(r"fallen off the bus", re.IGNORECASE)
#: A message that spans lines is taken as one when its parts follow within so many of the driver's own lines.
_SPAN = 4

_RESTART = "restart the server on this card; if it comes back, look at model and build"
_RESET = "drain the node, stop what uses the card, nvidia-smi --gpu-reset -i BUS (or restart the node)"
_REBOOT = "drain the node and restart it (power off, when it comes back); check power cables, slot and temperature"
_IGNORE = "nothing now"
#: number -> what it is, what to do, and how bad it is. From NVIDIA's catalogue, "immediate action".
_TABLE: Mapping[int, Tuple[str, str, str]] = {
    13: ("engine exception", _RESTART, finding.WARNING),
    31: ("page fault of a program on the card", _RESTART, finding.WARNING),
    43: ("a program's own fault; the card is well", _IGNORE, finding.NOTE),
    45: ("clean-up after another error", "follow the other Xid beside it", finding.NOTE),
    48: ("memory error that could not be corrected", f"read 63, 64, 94 and 95 with it; {_RESET}", finding.ERROR),
    61: ("not in use any more (older lists: micro-controller breakpoint)", "report it to the card's maker", finding.WARNING),
    62: ("micro-controller halted", _RESET, finding.ERROR),
    63: ("memory row is marked for remapping", "nothing now: it takes effect at the next reset of the card", finding.NOTE),
    64: ("memory row could not be remapped", f"{_RESET}, and report it to the card's maker", finding.ERROR),
    74: ("NVLink error", "nvidia-smi nvlink -s and -e; reseat the bridge; then reset the cards", finding.ERROR),
    79: ("card has fallen off the bus", _REBOOT, finding.ERROR),
    94: ("contained memory error", _RESTART, finding.WARNING),
    95: ("uncontained memory error", _RESET, finding.ERROR),
    109: ("context switch timed out", f"{_RESET}; check the driver's version", finding.ERROR),
    119: ("GSP firmware did not answer", f"{_RESET}; check the driver's version", finding.ERROR),
    120: ("GSP firmware error", f"{_RESET}; check the driver's version", finding.ERROR),
    154: ("recovery action that another Xid asks for", "follow the other Xid beside it", finding.NOTE),
}  # fmt: skip
#: 154 says in words what is needed: `… changed from 0x0 (None) to 0x2 (Node Reboot Required)`.
_CHANGED = re.compile(r"\bto 0x\w+ \((?P<action>[^)]{1,60})\)", re.IGNORECASE)
_NEEDED = re.compile(r"(?P<action>(?:GPU|Node) (?:Reset|Reboot) Required|Drain (?:P2P|and Reset))", re.IGNORECASE)
_CATALOGUE = "look the number up in NVIDIA's Xid catalogue; nvidia-bug-report.sh gathers what its support asks for"


@dataclass(frozen=True)
class Event:
    """`number` 0: the driver's words for a lost card, without an Xid."""

    bus: str
    number: int
    text: str
    line: str


def bus_of(text: str) -> str:
    """`0000:06:00` in one spelling: lower case, domain of four digits, no function."""
    parts = text.lower().split(".")[0].split(":")
    if len(parts) == 2:
        parts = ["0000", *parts]
    return ":".join([parts[0][-4:].rjust(4, "0"), *parts[1:3]]) if len(parts) >= 3 else text.lower()


def read(lines: Iterable[str]) -> List[Event]:
    events: List[Event] = []
    open_parts: List[str] = []
    for line in lines:
        met = _XID.search(line[:2000])
        if met:
            rest = met.group("rest") or ""
            events.append(Event(bus_of(met.group("bus")), int(met.group("number")), _PROCESS.sub("", rest).strip(), line.strip()))
            open_parts = []
            continue
        said = _NVRM.search(line[:2000])
        if not said:
            continue
        open_parts = [*open_parts[-(_SPAN - 1) :], said.group("text").strip()]
        if _LOST.search(open_parts[-1]):
            whole = " ".join(open_parts)
            cards = _CARD.findall(whole)
            events.append(Event(bus_of(cards[-1]) if cards else "", 0, whole, f"NVRM: {whole}"))
            open_parts = []
    return events


def stops_a_roll(numbers: Sequence[int], number: int) -> bool:
    """Whether a deploy should not go on over this. A double-bit error that was contained (94) needs no more than a restart."""
    severity = _TABLE[number][2] if number in _TABLE else finding.WARNING
    return severity == finding.ERROR and not (number == 48 and 94 in numbers)


def judge(events: Sequence[Event]) -> List[finding.Finding]:
    """One finding for each card and number, with the count and the newest line."""
    by_card: Dict[Tuple[str, int], List[Event]] = {}
    for event in events:
        # "Fallen off the bus" is what 79 means, with the number or without.
        by_card.setdefault((event.bus, event.number or 79), []).append(event)
    found: List[finding.Finding] = []
    for (bus, number), met in by_card.items():
        numbers = [other for at, other in by_card if at == bus]
        found.append(_finding(bus, number, met, numbers))
    return found


def _finding(bus: str, number: int, met: Sequence[Event], numbers: Sequence[int]) -> finding.Finding:
    newest = met[-1]
    where = f"card {bus}" if bus else "a card"
    times = f", {len(met)} times" if len(met) > 1 else ""
    known = _TABLE.get(number)
    if known is None:
        return finding.found(
            "xid", finding.WARNING, where, f"Xid {number}{times}: {newest.text or 'without words'}", do=_CATALOGUE, evidence=newest.line
        )
    what, do, severity = known
    if number == 48 and not stops_a_roll(numbers, 48):
        severity, do = finding.WARNING, f"it was contained (Xid 94): {_RESTART}"
    if number == 154:
        severity, do = _recovery(newest.text)
    label = f"Xid {number}" if any(event.number for event in met) else "without an Xid"
    return finding.found(
        "card-lost" if number == 79 else "xid",
        severity,
        where,
        f"{what} ({label}{times})",
        do=do.replace("BUS", bus or "N"),
        evidence=newest.line,
    )


def _recovery(text: str) -> Tuple[str, str]:
    met = _CHANGED.search(text) or _NEEDED.search(text)
    action = met.group("action") if met else ""
    if not action or action.lower() == "none":
        return finding.NOTE, _TABLE[154][1]
    return finding.WARNING, f"the driver asks for: {action}; follow the other Xid beside it"
