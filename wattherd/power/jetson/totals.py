"""What a Jetson's rails come to: one of them is the whole, or certain of them together are. Never all of them, and never a part.

Pure. The rules are those of the boards that were seen: each says what its figure covers, since the module is not the wall (29.0 W of one
Orin NX module were 37.0 W at the board's input).
"""

from __future__ import annotations

from typing import Mapping, Optional, Tuple

from wattherd.records import dataclass

MODULE = "module, not board input"
BOARD = "board input"


@dataclass(frozen=True)
class Total:
    """Watts, the rails that were counted, and what they cover."""

    watts: float
    rails: Tuple[str, ...]
    basis: str


#: The first whose rails are all there is the board's. VDDQ_VDD2_1V8AO of an AGX Orin is fed by VIN_SYS_5V0, so it is in there already;
#: VIN of a Thor feeds all the others. Sources: facts on power, section e; jetson_stats#900.
_RULES: Tuple[Tuple[Tuple[str, ...], str], ...] = (
    (("VIN",), BOARD),
    (("VDD_IN",), MODULE),
    (("POM_5V_IN",), MODULE),
    (("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"), MODULE),
    (("VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0"), MODULE),
    (("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"), MODULE),
)


def total(rails_w: Mapping[str, float]) -> Optional[Total]:
    """None where no rule fits (a rail could not be read, nobody has said how this board's rails add up), or where it comes to 0 W.

    No board that answers draws nothing: its chip is not awake yet. A gated rail may read a little below zero (-0.392 W on a Thor); in a sum
    it counts as nothing.
    """
    for rails, basis in _RULES:
        if all(name in rails_w for name in rails):
            watts = round(sum(max(0.0, rails_w[name]) for name in rails), 6)
            return Total(watts, rails, basis) if watts > 0 else None
    return None
