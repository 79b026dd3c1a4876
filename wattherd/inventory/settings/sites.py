"""sites.yaml: what the place of a host decides. So far its circuits: which hosts hang on one fuse, and what that bears."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, model_validator

from wattherd.inventory.settings.kinds import Name, matching, wrong
from wattherd.inventory.settings.power import Watts

Pattern = Annotated[str, matching(r"\S.*", "a pattern of hosts, such as 'rack1' or 'gpu-fleet:!orin'")]


class Circuit(BaseModel, extra="forbid", frozen=True, strict=True):
    """One fuse: `budget_w`, or `volts` and `amps` of which it is the product, and who hangs on it.

    `usable_percent` is the share that may be drawn for hours: 80 is the usual rule for continuous loads, and it is yours to choose.
    """

    hosts: Pattern
    budget_w: Watts | None = None
    volts: Watts | None = None
    amps: Watts | None = None
    usable_percent: Annotated[float, Field(gt=0, le=100, strict=False)] = 100.0

    @model_validator(mode="after")
    def _one_way_to_say_it(self) -> Circuit:
        if (self.budget_w is None) == (self.volts is None and self.amps is None) or (self.volts is None) != (self.amps is None):
            raise wrong("given budget_w, or volts and amps")
        return self

    @property
    def usable_w(self) -> float:
        """Watts that may be drawn here for hours."""
        whole_w = self.budget_w if self.budget_w is not None else (self.volts or 0.0) * (self.amps or 0.0)
        return whole_w * self.usable_percent / 100


class Sites(BaseModel, extra="forbid", frozen=True, strict=True):
    circuits: dict[Name, Circuit] = {}
