"""All cards through nvidia-smi, for a node where NVML does not load: by columns, else by its XML report, else by its text report."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from wattherd import errors, records
from wattherd import machine as machines
from wattherd.power import cell, described, query, reading, report, tool

_COLUMNS = tuple(query.CELLS)
#: Why nvidia-smi gives no card at all: by its exit status (NVML's code), or by its words.
_REFUSALS: Tuple[Tuple[int, str, str], ...] = (
    (18, r"version mismatch", "mismatch"),
    (9, r"couldn't communicate with the NVIDIA driver|Driver Not Loaded", "no-driver"),
    (12, r"couldn't find (?:the )?libnvidia-ml|NVML Shared Library Not Found", "no-library"),
    (4, r"Insufficient Permissions", "no-permission"),
)
_NO_DEVICE = re.compile(r"No devices (?:were )?found", re.IGNORECASE)


def look(machine: machines.Machine, known: Mapping[str, str], *, driver: str, limit_s: float, each: bool = False) -> reading.Look:
    """`known` are the cards to ask, bus -> UUID. Where one of them is lost, or `each` says so, every one is asked for itself.

    Raises `driver-silent`.
    """
    if each:
        return _one_by_one(machine, known, (), driver=driver, limit_s=limit_s)
    rows, done = query.rows(machine, _COLUMNS, driver=driver, limit_s=limit_s)
    if rows:
        return _look([described.card(query.cells(row)) for row in rows], driver or _version(rows), _holders(machine, limit_s))
    lost = described.lost(done.words)
    if lost:
        return _one_by_one(machine, known, lost, driver=driver, limit_s=limit_s)
    refused = refusal(done)
    if refused is not None:
        return refused
    for form, read in ((["-q", "-x"], report.from_xml), (["-q"], report.from_text)):
        done = tool.smi(machine, form, limit_s=limit_s)
        told, found = read(done.text)
        if found:
            return _look([described.card(cells) for cells in found], driver or told, _holders(machine, limit_s))
    return refusal(done) or reading.Look(source=described.SOURCE, fault=_last(done), fault_kind="failed")


def _look(cards: Sequence[reading.Card], driver: str, holders: Mapping[str, List[reading.Holder]]) -> reading.Look:
    held = [records.replace(card, holders=tuple(holders.get(card.uuid, ()))) for card in cards]
    numbered = [records.replace(card, index=at) if card.index < 0 else card for at, card in enumerate(held)]
    return reading.Look(tuple(numbered), driver=driver, source=described.SOURCE)


def refusal(done: machines.Result) -> Optional[reading.Look]:
    """Why there is no card to see, in its own words; None for an answer that is no refusal of everything."""
    if _NO_DEVICE.search(done.words) or done.code == 127:
        kind = "no-library" if done.code == 127 else ""
        return reading.Look(source=described.SOURCE, fault="nvidia-smi is not here" if kind else "", fault_kind=kind)
    for code, words, kind in _REFUSALS:
        if done.code == code or (done.code != 0 and re.search(words, done.words)):
            return reading.Look(source=described.SOURCE, fault=_last(done), fault_kind=kind)
    return None


def _one_by_one(
    machine: machines.Machine, known: Mapping[str, str], lost: Sequence[reading.Card], *, driver: str, limit_s: float
) -> reading.Look:
    """A lost card ends the answer for all of them: the others are asked each by its own name."""
    gone: Dict[str, reading.Card] = {card.bus: card for card in lost}
    found: List[reading.Card] = []
    for bus in sorted({*known, *gone}):
        if bus not in gone:
            rows, done = query.rows(machine, _COLUMNS, driver=driver, card=known.get(bus) or bus, limit_s=limit_s)
            if rows:
                found.append(described.card(query.cells(rows[0])))
                continue
            gone[bus] = next(iter(described.lost(done.words)), reading.Card("", bus, fault=_last(done)))
        found.append(records.replace(gone[bus], uuid=known.get(bus, "")))
    return _look(found, driver, _holders(machine, limit_s))


def _holders(machine: machines.Machine, limit_s: float) -> Dict[str, List[reading.Holder]]:
    """By UUID. What this cannot tell (a driver that does not say) is no reason to give up the cards."""
    try:
        done = tool.smi(machine, ["--query-compute-apps=gpu_uuid,pid,used_gpu_memory", "--format=csv,noheader"], limit_s=limit_s)
    except errors.Problem:
        return {}
    found: Dict[str, List[reading.Holder]] = {}
    for line in done.text.splitlines():
        words = [one.strip() for one in line.split(",")]
        if len(words) == 3 and words[1].isdigit():
            found.setdefault(words[0], []).append(reading.Holder(int(words[1]), memory_mib=cell.whole(words[2])))
    return found


def _version(rows: Sequence[Mapping[str, str]]) -> str:
    return cell.version(rows[0].get("driver_version", ""))


def _last(done: machines.Result) -> str:
    lines = [line.strip() for line in done.words.splitlines() if line.strip()]
    return cell.printable(" / ".join(lines[:2]), 300) or f"nvidia-smi ended with exit status {done.code}"
