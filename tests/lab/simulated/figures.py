"""The cards of cards.yaml as values: what the tools print (None is unknown, and they print N/A) and what the model counts with."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from wattherd.errors import Problem

_FOLDER = Path(__file__).parent
#: Written in C where it is there: the other one takes a second for these files.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: NVML's numbers of the architectures, by compute capability.
_ARCHITECTURES = {"6": 4, "7.0": 5, "7.2": 5, "7.5": 6, "8.9": 8, "8": 7, "9": 9, "10": 10, "11": 10, "12": 10}


@dataclass(frozen=True)
class Card:
    """One card. None: no source gives it and no tool prints it. The fields from `full_w` on are the model's and never None."""

    id: str
    name: str
    compute_cap: str
    driver: str
    memory_mib: int | None
    min_w: float | None
    default_w: float | None
    max_w: float | None
    sm_max_mhz: int | None
    memory_max_mhz: int | None
    energy_counter: bool
    lock_gpu: bool
    lock_memory: bool
    reads_na: tuple[str, ...]
    subsystem: int
    device: int
    target_c: tuple[int, int, int] | None
    full_w: float
    empty_w: float
    loaded_w: float
    top_mhz: int
    memory_top_mhz: int
    memory_load_mhz: int
    idle_mhz: int
    memory_idle_mhz: int
    pstate_empty: int
    pstate_loaded: int
    pstate_load: int

    @property
    def architecture(self) -> int:
        return next(number for prefix, number in _ARCHITECTURES.items() if self.compute_cap.startswith(prefix))

    def reads(self, name: str) -> bool:
        """Does the tool print a value for this?"""
        return name not in self.reads_na


@functools.cache
def cards() -> Mapping[str, Card]:
    document = yaml.load((_FOLDER / "cards.yaml").read_text(), _LOADER)  # noqa: S506 - one of the two safe ones
    return {row["id"]: _card(row) for row in document["cards"]}


@functools.cache
def boards() -> Mapping[str, Mapping[str, Any]]:
    """The rows of boards.yaml by their id."""
    document = yaml.load((_FOLDER / "boards.yaml").read_text(), _LOADER)  # noqa: S506
    return {row["id"]: row for row in document["boards"]}


def kinds(text: str) -> tuple[str, ...]:
    """The ids that a person means by "2x3090+p40" or "orin-nx", one for each card. A board stands alone."""
    found: list[str] = []
    for part in text.split("+"):
        counted = re.fullmatch(r"(?:(\d+)x)?(.+)", part.strip())
        assert counted is not None, text
        found += [_id(counted[2])] * int(counted[1] or 1)
    if len(found) > 1 and any(one in boards() for one in found):
        raise Problem("lab-failed", f"{text}: a Jetson board has no other cards", hint="name the board alone")
    return tuple(found)


def _id(name: str) -> str:
    wanted = name.lower().replace("-", "_")
    known = [*cards(), *boards()]
    if wanted in known:
        return wanted
    close = [one for one in known if wanted in one]
    if len(close) == 1:
        return close[0]
    hint = f"the lab knows {', '.join(close or known)}"
    raise Problem("lab-failed", f"{name!r} is {'more than one' if close else 'no'} card or board of the lab", hint=hint)


def _card(row: Mapping[str, Any]) -> Card:
    def value(*path: str) -> Any:
        found: Any = row
        for part in path:
            found = found.get(part) or {}
        return found.get("v")

    def needed(known: Any, name: str) -> Any:
        return assumed[name] if known is None else known

    assumed: Mapping[str, Any] = row["assumed"]
    top, memory_top = needed(value("clock_max_mhz", "sm"), "sm_max_mhz"), value("clock_max_mhz", "memory")
    memory_top = assumed.get("memory_max_mhz", 0) if memory_top is None else memory_top
    target = assumed.get("target_c")
    memory_idle = value("clock_idle_mhz", "memory")
    return Card(
        id=row["id"],
        name=value("name"),
        compute_cap=needed(value("compute_cap"), "compute_cap"),
        driver=needed(value("driver"), "driver"),
        memory_mib=value("memory_total_mib"),
        min_w=value("power_w", "min"),
        default_w=value("power_w", "default"),
        max_w=value("power_w", "max"),
        sm_max_mhz=value("clock_max_mhz", "sm"),
        memory_max_mhz=value("clock_max_mhz", "memory"),
        energy_counter=bool(value("energy_counter")),
        lock_gpu=bool(value("lock_gpu_clocks")),
        lock_memory=bool(value("lock_memory_clocks")),
        reads_na=tuple(value("reads_na") or ()),
        subsystem=int(value("subsystem") or "0", 16),
        device=int(value("device") or "0", 16),
        target_c=(target[0], target[1], target[2]) if target else None,
        full_w=needed(value("draw_at_full_load_w"), "draw_at_full_load_w"),
        empty_w=needed(value("idle_w_empty"), "idle_w_empty"),
        loaded_w=needed(value("idle_w_loaded"), "idle_w_loaded"),
        top_mhz=top,
        memory_top_mhz=memory_top,
        memory_load_mhz=assumed.get("memory_load_mhz", memory_top),
        idle_mhz=needed(value("clock_idle_mhz", "sm"), "sm_idle_mhz"),
        memory_idle_mhz=assumed.get("memory_idle_mhz", 0) if memory_idle is None else memory_idle,
        pstate_empty=assumed["pstate_empty"],
        pstate_loaded=assumed["pstate_loaded"],
        pstate_load=assumed["pstate_load"],
    )
