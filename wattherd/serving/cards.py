"""The cards of a host as a CUDA build asks for them: architecture numbers, each with words for people. Pure.

From the inventory where it names them, from a Jetson's chip, else from the compute capability of each card.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from wattherd import errors
from wattherd.serving import toolkits
from wattherd.wire import facts

if TYPE_CHECKING:
    from wattherd.inventory import settings

ON_PURPOSE = "llama_cpp: {backend: cpu} builds for its CPU on purpose"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One host's question: who, which cards, and what the inventory allows."""

    name: str
    cards: Mapping[int, str]
    suffixed: Mapping[int, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        return " and ".join(self.cards.values())


def has_gpu(told: facts.Facts) -> bool:
    return bool(told.soc or told.jetson or any(card.vendor == "nvidia" for card in told.gpus))


def asked_of(name: str, setting: settings.Cuda, told: facts.Facts) -> Asked:
    if setting.architectures:
        numbers = {int(one.rstrip("af")): one for one in setting.architectures}
        return Asked(name=name, cards={number: f"sm_{one}" for number, one in numbers.items()}, suffixed=numbers)
    if is_tegra(told):
        if told.soc not in toolkits.SOCS:
            raise unfit(
                f"{name} is a Jetson whose GPU is not known here ({told.soc or 'no system on a chip that its facts show'})",
                "name it: cuda: {architectures: ['87']}",
            )
        words, number = toolkits.SOCS[told.soc]
        return Asked(name=name, cards={number: f"a {words} (sm_{number})"})
    cards: dict[int, str] = {}
    for card in told.gpus:
        if card.vendor != "nvidia":
            continue
        found = re.fullmatch(r"(\d{1,2})\.(\d)", card.compute_capability)
        if found is None:
            raise unfit(
                f"{name} has {card.name or 'an NVIDIA card'}, whose compute capability is not known",
                "nvidia-smi --query-gpu=compute_cap --format=csv tells it; write it as cuda: {architectures: ['86']}",
            )
        number = int(found[1] + found[2])
        cards.setdefault(number, f"{card.name or 'a card'} (sm_{number})")
    if not cards:
        raise unfit(f"{name} has no NVIDIA GPU that its facts show", "is the driver loaded there (nvidia-smi)? or " + ON_PURPOSE)
    return Asked(name=name, cards=dict(sorted(cards.items())))


def is_tegra(told: facts.Facts) -> bool:
    return bool(told.soc or told.jetson)


def l4t(told: facts.Facts) -> int:
    found = re.match(r"# R(\d+) ", told.jetson)
    return int(found[1]) if found else 0


def unfit(message: str, hint: str) -> errors.Problem:
    return errors.Problem("cuda-unfit", message, hint=hint)
