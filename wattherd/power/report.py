"""`nvidia-smi -q`, as XML and as text, of every generation of drivers: its tree of sections as paths, and the paths under one set of names.

Sections repeat the labels of others (the memory's and the module's power beside the card's own), so that a value is known by its whole
path. Pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, List, Mapping, Tuple

from wattherd.power import cell, described, throttle

if TYPE_CHECKING:
    from xml.etree import ElementTree as ET

#: Path -> the name of its cell. Paths of the text and tags of the XML are brought to one spelling first (`_label`).
_CELLS: Tuple[Tuple[str, str], ...] = (
    (r"product_name", "name"),
    (r"product_architecture", described.FAMILY),
    (r"(?:gpu_)?uuid", "uuid"),
    (r"pci/(?:pci_)?bus_id", "bus"),
    (r"persistence_mode", "persistence"),
    (r"mig_mode/current(?:_mig)?", "mig"),
    (r"fan_speed", "fan_percent"),
    (r"performance_state", "pstate"),
    (r"fb_memory_usage/total", "memory_total_mib"),
    (r"fb_memory_usage/used", "memory_used_mib"),
    (r"utilization/gpu(?:_util)?", "utilization_percent"),
    (r"temperature/gpu_(?:current_)?temp", "temperature_c"),
    (r"temperature/gpu_target_temperature", "temperature_target_c"),
    (r"supported_gpu_target_temp/gpu_target_temp_min", "temperature_target_min_c"),
    (r"supported_gpu_target_temp/gpu_target_temp_max", "temperature_target_max_c"),
    (r"(?:gpu_)?power_readings/power_draw", described.PLAIN),
    (r"(?:gpu_)?power_readings/average_power_draw", described.AVERAGE),
    (r"(?:gpu_)?power_readings/instant(?:aneous)?_power_draw", described.INSTANT),
    # Up to 530 "Power Limit" is the one that software asked for, and the other one says that it is enforced; then it is the "current" one.
    (r"power_readings/power_limit", "limits.requested_w"),
    (r"power_readings/enforced_power_limit", "limits.enforced_w"),
    # 610 puts three of them one level deeper, beside a base power of the same labels, which is another thing.
    (r"gpu_power_readings/(?:gpu_ceiling_power_limit/)?current(?:_power_limit)?", "limits.enforced_w"),
    (r"gpu_power_readings/(?:gpu_ceiling_power_limit/)?requested(?:_power_limit)?", "limits.requested_w"),
    (r"(?:gpu_)?power_readings/(?:gpu_ceiling_power_limit/)?default(?:_power_limit)?", "limits.default_w"),
    (r"(?:gpu_)?power_readings/(?:gpu_ceiling_power_limit/)?min(?:_power_limit)?", "limits.min_w"),
    (r"(?:gpu_)?power_readings/(?:gpu_ceiling_power_limit/)?max(?:_power_limit)?", "limits.max_w"),
    (r"clocks/sm(?:_clock)?", "clocks.sm_mhz"),
    (r"clocks/mem(?:ory)?(?:_clock)?", "clocks.memory_mhz"),
    (r"max_clocks/sm(?:_clock)?", "clocks.sm_max_mhz"),
    (r"max_clocks/mem(?:ory)?(?:_clock)?", "clocks.memory_max_mhz"),
)
_PATTERNS = tuple((re.compile(pattern + r"\Z"), name) for pattern, name in _CELLS)
_REASON = re.compile(r"clocks_(?:throttle|event)_reasons/(?:.*/)?([^/]+)\Z")
_COUNTER = re.compile(r"clocks_event_reasons_counters/([^/]+)\Z")
_CARD = re.compile(r"GPU ([0-9A-Fa-f:.]+)\s*\Z")
_LINE = re.compile(r"( *)(\S[^:]*?)\s*(?::\s?(.*))?\Z")


def from_text(text: str) -> Tuple[str, List[Dict[str, str]]]:
    """The driver's version and each card's cells, from the words of `nvidia-smi -q`. A text without a card in it has none."""
    head: Dict[str, str] = {}
    found: List[Dict[str, str]] = []
    values = head
    path: List[Tuple[int, str]] = []
    for line in text.expandtabs(8).splitlines():
        card = _CARD.match(line.strip())
        if card:
            values = {"pci/bus_id": card.group(1)}
            found.append(values)
            path = []
            continue
        match = _LINE.match(line)
        if match is None or not line.strip():
            continue
        indent, label, value = len(match.group(1)), _label(match.group(2)), match.group(3)
        while path and path[-1][0] >= indent:
            path.pop()
        if value is not None:
            values.setdefault("/".join([*(name for _, name in path), label]), value.strip())
        path.append((indent, label))
    return _driver(head), [cells(one) for one in found]


def from_xml(text: str) -> Tuple[str, List[Dict[str, str]]]:
    """The same from `nvidia-smi -q -x`. What is no XML gives nothing."""
    from xml.etree import ElementTree as ET

    try:
        root = ET.fromstring(text[max(0, text.find("<")) :])  # noqa: S314 - of the node's own nvidia-smi, which runs as we do
    except ET.ParseError:
        return "", []
    found: List[Dict[str, str]] = []
    for card in root.iter("gpu"):
        values = {"pci/bus_id": card.get("id", "")}
        _flatten(card, "", values)
        found.append(cells(values))
    return _driver({_label(one.tag): (one.text or "").strip() for one in root}), found


def _flatten(node: ET.Element, above: str, values: Dict[str, str]) -> None:
    for one in node:
        path = f"{above}/{_label(one.tag)}" if above else _label(one.tag)
        if len(one):
            _flatten(one, path, values)
        else:
            values.setdefault(path, (one.text or "").strip())


def cells(values: Mapping[str, str]) -> Dict[str, str]:
    """The values of one card by path, under the names of `described`."""
    found: Dict[str, str] = {}
    for path, value in values.items():
        reason, counter = _REASON.match(path), _COUNTER.match(path)
        if reason:
            found[described.REASON + throttle.spelled(reason.group(1))] = value
        elif counter:
            found[described.COUNTER + throttle.spelled(counter.group(1))] = value
        else:
            name = next((name for pattern, name in _PATTERNS if pattern.match(path)), "")
            if name:
                found.setdefault(name, value)
    return found


def _label(text: str) -> str:
    """One spelling for a label of the text and a tag of the XML."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def _driver(head: Mapping[str, str]) -> str:
    return cell.version(head.get("kmd_version", "") or head.get("driver_version", ""))
