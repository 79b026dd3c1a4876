"""Warnings about what was written: names that look like a slip, and values that Wattherd does not follow.

Looks at every variable of every file once, whichever hosts are selected later. Evaluates nothing and refuses nothing.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Collection, Iterator, Mapping

from wattherd.inventory import connection, document, names, tree, varfiles

#: Where a kWh costs less than this many units of money; elsewhere (yen, krone, forint) no figure tells cents from coins.
_SMALL_COINS = ("EUR", "USD", "GBP", "CHF", "AUD", "CAD", "NZD")
_DEAR = 3


def about(
    grown: tree.Tree, files: varfiles.Files, extra: Mapping[str, document.Value], own: Collection[str], magic: Collection[str]
) -> tuple[str, ...]:
    near: dict[str, str | None] = {}
    found: dict[str, None] = {}
    written = list(_written(grown, files, extra))
    currencies = {str(value.data) for name, value in written if name == "currency"} or {"EUR"}
    for name, value in written:
        if name == "price_per_kwh" and currencies <= set(_SMALL_COINS):
            found.update(dict.fromkeys(_cents(value, currencies)))
        if name not in near:
            near[name] = None if name in own else names.slip(name, own)
        sentence = _doubt(name, value, near[name], magic)
        if sentence is not None:
            found[sentence] = None
    return tuple(found)


def _doubt(name: str, value: document.Value, near: str | None, magic: Collection[str]) -> str | None:
    if name in magic:
        return f"{value.place}: '{name}' is set by Wattherd itself; this value is not used"
    if near is not None:
        return f"{value.place}: '{name}' is none of Wattherd's variables; did you mean '{near}'?"
    return connection.warnings(name, value)


def _cents(value: document.Value, currencies: set[str]) -> Iterator[str]:
    """Thirty-one euros for a kWh are thirty-one cents more often than not. A question: nothing is changed and nothing refused."""
    text = str(value.data)
    if re.fullmatch(r"\d{1,6}(\.\d+)?", text) and decimal.Decimal(text) > _DEAR:
        money = next(iter(currencies)) if len(currencies) == 1 else "units of money"
        fewer = decimal.Decimal(text) / 100
        yield f"{value.place}: price_per_kwh is {text}: that is {text} {money} for one kWh; were cents meant ({fewer})?"


def _written(grown: tree.Tree, files: varfiles.Files, extra: Mapping[str, document.Value]) -> Iterator[tuple[str, document.Value]]:
    layers: list[tree.Variables] = [group.variables for group in grown.groups.values()]
    layers += [host.variables for host in grown.hosts.values()]
    layers += [*files.groups.values(), *files.hosts.values()]
    for variables in layers:
        for name, values in variables.items():
            yield from ((name, value) for value in values)
    yield from extra.items()
