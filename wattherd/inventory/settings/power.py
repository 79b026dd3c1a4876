"""Settings of the role `power`: what each card and board may draw, the budgets, what power-tune measured, and the price of a kWh.

Watts, MHz and money as they were written; which of it concerns which card is for `wattherd.powering`.
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator

from wattherd.inventory.settings.kinds import GpuUuid, Line, matching, wrong

_LIMIT = "watts (250), per cent of the card's own default ('80%') or 'efficient' (what power-tune found)"
_RANGE = "'LEAST,MOST' in MHz, such as '0,1400' (a least of 0 lets an idle card sleep)"
_MODE = "a power mode's name, such as '25W' or 'MAXN' (not its number: that is another mode on another board)"
_PRICE = "the price of one kWh with a point, such as 0.31"
_CARD = "a card's UUID or at least its first 8 characters after 'GPU-', its bus ('0000:01:00.0'), or its product name ('RTX 3090')"
#: Above any clock a card has had, and so surely a slip.
_MOST_MHZ = 10_000


@dataclass(frozen=True)
class Limit:
    """A power limit as it was written: watts, per cent of the card's default, or (neither) what power-tune found."""

    watts: float | None = None
    percent: float | None = None

    @property
    def is_efficient(self) -> bool:
        return self.watts is None and self.percent is None

    @property
    def shown(self) -> str:
        if self.watts is not None:
            return f"{self.watts:g} W"
        return f"{self.percent:g} %" if self.percent is not None else "efficient"


def _limit(given: object) -> object:
    """A share must say so by its sign: 80 is eighty watts, and 0.8 is nothing."""
    if isinstance(given, Limit) or given is None:
        return given
    if given == "efficient":
        return Limit()
    found = re.fullmatch(r"(\d{1,4}(?:\.\d{1,3})?) ?(%|W)?", str(given)) if _is_number(given) or isinstance(given, str) else None
    if found is None or not (1 <= float(found[1]) <= (200 if found[2] == "%" else 9999)):
        raise wrong(_LIMIT)
    return Limit(percent=float(found[1])) if found[2] == "%" else Limit(watts=float(found[1]))


def _mhz(given: object) -> object:
    """Two numbers in one word, as nvidia-smi takes them, or a list of two."""
    if given is None:
        return given
    parts = re.split(r"\s*,\s*", given.strip()) if isinstance(given, str) else list(given) if isinstance(given, list | tuple) else []
    if len(parts) != 2 or not all(str(part).isascii() and str(part).isdigit() for part in parts):
        raise wrong(_RANGE)
    least, most = (int(str(part)[:9]) for part in parts)
    if not least <= most <= _MOST_MHZ or not most:
        raise wrong(f"{_RANGE}, the least first and the most at most {_MOST_MHZ}")
    return least, most


def _mode(given: object) -> object:
    if given is not None and (not isinstance(given, str) or not re.fullmatch(r"(?!\d+\Z)\w[\w .+-]{0,39}", given)):
        raise wrong(_MODE)
    return given


def _moment(given: object) -> object:
    """YAML reads a bare date and time as one; it is kept as text."""
    return given.isoformat() if isinstance(given, dt.date) else given


def _price(given: object) -> object:
    """The decimal as it was written. A float's shortest text is what stood in the file, so nothing is lost on the way."""
    if isinstance(given, decimal.Decimal) or given is None:
        return given
    text = str(given).strip() if _is_number(given) or isinstance(given, str) else ""
    # A small number that was written in plain digits is 1e-05 by then.
    if not re.fullmatch(r"\d{1,6}(?:\.\d{1,20})?" + (r"|\d(?:\.\d+)?e-\d\d" if isinstance(given, float) else ""), text):
        raise wrong(_PRICE)
    return decimal.Decimal(text)


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


def _card(name: str) -> str:
    """Whatever begins like a UUID is meant as one: a shorter beginning would match by luck."""
    text = name.strip()
    if not text or not text.isprintable() or len(text) > 100 or (text.upper().startswith(("GPU-", "MIG-")) and len(text) < 12):
        raise wrong(_CARD)
    if text.upper().startswith("MIG-"):
        raise wrong(f"{_CARD}: a MIG slice has no power limit of its own")
    return text


Mhz = Annotated[tuple[int, int], BeforeValidator(_mhz)]
Watts = Annotated[float, Field(gt=0, le=1_000_000, strict=False, allow_inf_nan=False)]
Speed = Annotated[float, Field(gt=0, strict=False, allow_inf_nan=False)]
CardName = Annotated[str, AfterValidator(_card)]


class CardPower(BaseModel, extra="forbid", frozen=True, strict=True):
    """What one card is to be. None leaves that alone; in an entry under `cards:` it also undoes what the host says for all."""

    limit: Annotated[Limit | None, BeforeValidator(_limit)] = None
    clocks: Mhz | None = None
    memory_clocks: Mhz | None = None
    persistence: bool | None = None
    temperature_c: Annotated[int, Field(ge=30, le=110)] | None = None


class Power(CardPower):
    """What every card of the host is to be, its exceptions, a Jetson's own settings, and what the host may draw.

    `budget_w` is what its power supply gives for cards and the rest together; `base_load_w` is that rest, and all of a Jetson.
    """

    mode: Annotated[str | None, BeforeValidator(_mode)] = None
    pin_clocks: bool | None = None
    fan: Annotated[str, matching(r"[A-Za-z][\w-]{0,39}", "a fan profile's name, such as 'quiet' or 'cool'")] | None = None
    confirm_s: Annotated[int, Field(ge=30, le=3600)] = 180
    base_load_w: Annotated[float, Field(ge=0, le=1_000_000, strict=False, allow_inf_nan=False)] | None = None
    budget_w: Watts | None = None
    cards: dict[CardName, CardPower] = {}


class Tuned(BaseModel, extra="forbid", frozen=True, strict=True):
    """What `invoke power-tune --write` found on one card: the setting of the least energy a token that keeps `floor_percent` of the speed.

    `tok_s` are tokens a second, `tok_j` tokens a joule, both at that setting.
    """

    limit_w: Watts | None = None
    clocks_mhz: Mhz | None = None
    tok_s: Speed | None = None
    tok_j: Speed | None = None
    floor_percent: Annotated[float, Field(gt=0, le=100, strict=False)] | None = None
    measured_at: Annotated[str, BeforeValidator(_moment), matching(r"[^\n\r]{0,40}", "a date and time")] = ""
    model: Line = ""

    @model_validator(mode="after")
    def _something_found(self) -> Tuned:
        if self.limit_w is None and self.clocks_mhz is None:
            raise wrong("given limit_w or clocks_mhz")
        return self


Price = Annotated[decimal.Decimal, BeforeValidator(_price)]
Currency = Annotated[str, matching(r"[A-Z]{3}", "a currency's three letters, such as 'EUR'")]
TunedCards = dict[GpuUuid, Tuned]

__all__ = ["CardPower", "Currency", "Limit", "Power", "Price", "Tuned", "TunedCards"]
