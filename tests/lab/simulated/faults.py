"""What can be wrong with a simulated card, its driver or its tools; each is switched on by name and off by "clear"."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.lab import places
from tests.lab.simulated import cards, layout, operations, plugging
from wattherd.errors import Problem

_CARD: Mapping[str, str] = {
    "unsupported": "UNSUPPORTED",
    "no-permission": "NO_PERMISSION",
    "lost": "LOST",
    "requires-reset": "RESET",
    "na-cells": "NA",
    "stuck-high-idle": "STUCK",
    "unknown-error": "UNKNOWN_DEFAULT",
    "limit-resetting": "RESETTING",
}
_NODE: Mapping[str, str] = {"mismatch": "MISMATCH", "hang": "HANG", "no-driver": "NO_DRIVER", "forgets": "FORGETS"}
#: What each does, in the words of the help.
NAMES: Mapping[str, str] = {
    "unsupported": "no setting is supported (exit 0 all the same)",
    "no-permission": "no setting is permitted, not even to root",
    "lost": "fell off the bus (Xid 79)",
    "requires-reset": "wants a reset; reset or reboot mends it",
    "na-cells": "watts and limits read N/A",
    "stuck-high-idle": "draws its loaded idle although nobody holds it",
    "unknown-error": "the default limit alone reads Unknown Error",
    "limit-reset": "once: the limit is the default again",
    "limit-resetting": "somebody sets the limit to the default again and again",
    "bmc-cap": "a limit outside of the driver: enforced below requested; bmc-cap=WATTS",
    "mismatch": "driver and library are of two versions",
    "hang": "every call hangs and cannot be killed",
    "no-driver": "no driver is loaded",
    "forgets": "without persistence mode, settings go when nobody uses the card",
    "tool-missing": "nvidia-smi is not there",
    "library-missing": "libnvidia-ml.so.1 is not there",
}
_MISSING = {"tool-missing": cards.TOOL, "library-missing": cards.library()}


def set_fault(name: str, card: str, fault: str, *, lab: places.Places | None = None) -> None:
    """Break it; "clear" mends all that is broken of this card, and of the node's driver and tools."""
    where = lab or places.here()
    node = operations.disk_of(where, name)
    fault, _, value = fault.partition("=")
    if fault != "clear" and fault not in NAMES:
        raise Problem("lab-failed", f"{fault!r} is no fault of a simulated card", hint=f"one of: {', '.join(sorted(NAMES))}")
    indices = operations.cards(node, card)
    if fault in _MISSING:
        _rename(node.root / _MISSING[fault], aside(node.root, fault))
        return
    with layout.held(node.root / plugging.STATE) as state:
        if fault in _NODE:
            state.faults |= layout.NODE_FAULTS[_NODE[fault]]
        elif fault == "clear":
            state.faults = 0
        for index in indices:
            _of_card(state.card[index], fault, value)
    if fault == "clear":
        for missing, place in _MISSING.items():
            _rename(aside(node.root, missing), node.root / place)


def aside(root: Path, fault: str) -> Path:
    """Where a tool lies while it is missing."""
    return root / plugging.HOME / fault


def _rename(source: Path, target: Path) -> None:
    if source.exists():
        source.rename(target)


def _of_card(card: layout.Card, fault: str, value: str) -> None:
    if fault in _CARD:
        card.faults |= layout.CARD_FAULTS[_CARD[fault]]
    elif fault == "limit-reset":
        card.requested_mw = card.default_mw
    elif fault == "bmc-cap":
        card.bmc_mw = round(float(value) * 1000) if value else (card.min_mw + card.max_mw) // 2
    elif fault == "clear":
        card.faults &= layout.CARD_FAULTS["NVGPU"]
        card.bmc_mw = 0
