"""What a Jetson is to be: its power mode by name, pinned clocks, its fan; and which keys are for the other kind of box. Pure.

Modes are chosen by name from the board's own list: numbers mean another mode on the next board, and a name's watts are clocks, no cap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wattherd import errors
from wattherd.inventory import names
from wattherd.power.jetson import conf
from wattherd.wire import facts

if TYPE_CHECKING:
    from wattherd.inventory import settings

_PREFIX = "mode_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """A key that is not for this kind of box, and why. `setting` is its name as a resource, `key` its name in the inventory."""

    setting: str
    key: str
    why: str
    value: str = ""


#: What concerns cards, as their resource and the inventory call it, and why a Jetson has none of it.
_OF_CARDS = (
    ("persistence", "persistence", "a Jetson's driver is always there"),
    ("limit_w", "limit", "a Jetson's GPU has no power limit; its power modes do that: power.mode"),
    ("clocks_mhz", "clocks", "a Jetson's clocks follow its power mode: power.mode"),
    ("memory_clocks_mhz", "memory_clocks", "a Jetson's clocks follow its power mode: power.mode"),
    ("temperature_c", "temperature_c", "a Jetson has no temperature target"),
)
_OF_BOARDS = (
    ("mode", "mode", "only a Jetson has power modes; a card has power.limit"),
    ("pinned", "pin_clocks", "jetson_clocks is a Jetson's; a card has power.clocks"),
    ("fan", "fan", "nvidia-smi cannot set a fan; only a Jetson's has profiles"),
)


def apart(setting: settings.Power, *, jetson: bool) -> tuple[Apart, ...]:
    rows = _OF_CARDS if jetson else _OF_BOARDS
    given = [(name, key, why, getattr(setting, key)) for name, key, why in rows]
    return tuple(Apart(setting=name, key=key, why=why, value=_word(value)) for name, key, why, value in given if value is not None)


def mode(host: str, asked: str, told: facts.Facts) -> str:
    """The board's own spelling of the mode that is meant. Raises `mode-unknown` for one that it does not have, naming those that it has.

    Releases differ in a prefix (MODE_30W, 30W) and people in capitals. A board that tells no modes gets the name as it was written: the
    node itself looks it up, as it does the number.
    """
    known = told.power_modes
    if not known:
        return asked
    found = conf.Conf(tuple(conf.Mode(number, name) for number, name in enumerate(known))).named(asked)
    if found is not None:
        return found.name
    alike = [one for one in known if _plain(one) == _plain(asked)]
    if len(alike) == 1:
        return alike[0]
    hint = names.meant(asked, known) or "name one of them: a mode of one kind of board belongs into that kind's group"
    raise errors.Problem("mode-unknown", f"{host} has no power mode '{asked}'; it has {', '.join(known)}", hint=hint)


def _word(value: object) -> str:
    """As resources/jetson.py takes it."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _plain(name: str) -> str:
    return name.lower().removeprefix(_PREFIX)
