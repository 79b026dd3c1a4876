"""What a reading of watts stands for: the average of a second or an instant, by the card's family. Pure."""

from __future__ import annotations

import re
from typing import Mapping, Optional, Tuple

from wattherd.power import reading

#: nvml.h, nvmlDeviceArchitecture_t.
FAMILIES: Mapping[str, int] = {
    "kepler": 2,
    "maxwell": 3,
    "pascal": 4,
    "volta": 5,
    "turing": 6,
    "ampere": 7,
    "ada lovelace": 8,
    "ada": 8,
    "hopper": 9,
    "blackwell": 10,
    "rubin": 13,
}
_AMPERE = 7
_GA100 = (8, 0)
AVERAGE_S = 1.0


def is_averaging(architecture: Optional[int], capability: Optional[Tuple[int, int]]) -> Optional[bool]:
    """Whether the plain reading averages over a second; None where the card does not say what it is.

    nvml.h, nvmlDeviceGetPowerUsage: it does on Ampere and newer; on GA100 (an Ampere of capability 8.0) and older it is an instant.
    """
    if capability is not None:
        return capability > _GA100
    if architecture is None or not 0 < architecture < 1000 or architecture == _AMPERE:
        return None
    return architecture > _AMPERE


def capability(text: str) -> Optional[Tuple[int, int]]:
    found = re.match(r"(\d{1,2})\.(\d)\Z", text.strip())
    return (int(found.group(1)), int(found.group(2))) if found else None


def draw(
    average_w: Optional[float], instant_w: Optional[float], plain_w: Optional[float], *, averages: Optional[bool], source: str
) -> Optional[reading.Draw]:
    """The steadiest of the figures that there are: the average, then the plain one if it averages, then the instant."""
    if average_w is not None:
        return reading.Draw(average_w, "average", source, AVERAGE_S)
    if plain_w is not None and averages:
        return reading.Draw(plain_w, "average", source, AVERAGE_S)
    if instant_w is not None:
        return reading.Draw(instant_w, "instant", source, 0.0)
    if plain_w is None:
        return None
    return reading.Draw(plain_w, "total", source) if averages is None else reading.Draw(plain_w, "instant", source, 0.0)
