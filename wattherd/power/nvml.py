"""The reading child: loads NVML through pynvml, reads every card, prints one line of JSON, and ends.

A process of its own, because a driver that hangs takes its reader with it, and because pynvml is needed by no session that only looks at
files. One card that is lost never costs its neighbours.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import TYPE_CHECKING, Callable, List, Mapping, Optional, Sequence

from wattherd.power import cell, nvml_card, reading
from wattherd.wire import fields

if TYPE_CHECKING:
    import types

#: Why no card can be read at all, by NVML's code (nvml.h, nvmlReturn_t); the parent has the words for people.
_KINDS: Mapping[int, str] = {4: "no-permission", 9: "no-driver", 12: "no-library", 18: "mismatch"}


def main(arguments: Sequence[str]) -> int:
    """`arguments` is one JSON object: {"buses": […]} reads those cards only, so that a sleeping neighbour is not woken."""
    orders = json.loads(arguments[0]) if arguments else {}
    line = json.dumps(fields.plain(_look(orders.get("buses"))), separators=(",", ":"))
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    return 0


def _look(buses: Optional[List[str]]) -> reading.Look:
    try:
        pynvml = importlib.import_module("pynvml")  # which has no types of its own
    except ImportError as error:  # an interpreter without ctypes
        return reading.Look(fault=str(error), fault_kind="no-library")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _refused(error)
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        if buses is None:
            cards = [_card(pynvml, pynvml.nvmlDeviceGetHandleByIndex, at, index=at) for at in range(pynvml.nvmlDeviceGetCount())]
        else:
            cards = [_card(pynvml, pynvml.nvmlDeviceGetHandleByPciBusId, bus.encode(), bus=bus) for bus in buses]
        return reading.Look(tuple(cards), driver=driver, source="nvml")
    except pynvml.NVMLError as error:
        return _refused(error)
    finally:
        pynvml.nvmlShutdown()


def _refused(error: Exception) -> reading.Look:
    return reading.Look(source="nvml", fault=str(error), fault_kind=_KINDS.get(getattr(error, "value", 0), "failed"))


def _card(nvml: types.ModuleType, opened: Callable[[object], object], which: object, *, index: int = -1, bus: str = "") -> reading.Card:
    try:
        asked = nvml_card.Asked(nvml, opened(which))
    except nvml.NVMLError as error:
        return reading.Card("", bus, index, fault=nvml_card.words_of(error))
    try:
        return nvml_card.read(asked, index)
    except nvml_card.Gone as reason:
        return reading.Card(
            asked.last_text("nvmlDeviceGetUUID"), bus or asked.last_bus(), index, asked.last_text("nvmlDeviceGetName"), fault=str(reason)
        )


def _text(value: object) -> str:
    return cell.version(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))
