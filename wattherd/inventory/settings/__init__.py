"""Wattherd's own variables as frozen models: what each key may hold, and nothing else.

Validates data whose expressions are already worked out. Where a value stood in which file is added by `validation`; what a role
makes of a setting is the role's business. This room imports pydantic, so whoever needs it imports it late.
"""

from __future__ import annotations

from pydantic import BaseModel

from wattherd.inventory.settings.base import Base, Directory, File, Link, Unit, User
from wattherd.inventory.settings.catalogue import Adapter, Catalogue, Model, Models, Part
from wattherd.inventory.settings.kinds import Many, Name, Path, wrong
from wattherd.inventory.settings.llama import Cuda, LlamaCpp
from wattherd.inventory.settings.power import CardPower, Currency, Limit, Power, Price, Tuned, TunedCards
from wattherd.inventory.settings.secret import Secret, Vault
from wattherd.inventory.settings.serving import Draft, Limits, Options, Preset, Proxy, Queue, Router, Serve, Tls, UsedAdapter, Watchdog
from wattherd.inventory.settings.sites import Circuit, Sites

__all__ = [
    "Adapter",
    "Base",
    "CardPower",
    "Catalogue",
    "Circuit",
    "Cuda",
    "Directory",
    "Draft",
    "File",
    "Limit",
    "Limits",
    "Link",
    "LlamaCpp",
    "Model",
    "Models",
    "Options",
    "Part",
    "Power",
    "Preset",
    "Proxy",
    "Queue",
    "Router",
    "Secret",
    "Serve",
    "Settings",
    "Sites",
    "Tls",
    "Tuned",
    "Unit",
    "UsedAdapter",
    "User",
    "Vault",
    "Watchdog",
    "wrong",
]


class Settings(BaseModel, extra="forbid", frozen=True, strict=True):
    roles: Many[Name] = ("base",)
    base: Base = Base()
    llama_cpp: LlamaCpp | None = None
    cuda: Cuda = Cuda()
    models: Many[Name] = ()
    model_folders: Many[Path] = ()
    serve: Many[Serve] = ()
    proxy: Proxy = Proxy()
    power: Power = Power()
    power_tuned: TunedCards = {}
    price_per_kwh: Price | None = None
    currency: Currency = "EUR"

    @property
    def model_names(self) -> tuple[str, ...]:
        """Every model that the host holds or serves, once, in first-seen order."""
        return tuple(dict.fromkeys([*self.models, *(name for one in self.serve for name in one.model_names)]))
