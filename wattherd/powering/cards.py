"""Which of a host's power keys concern which of its cards: by UUID or bus, by product name, or as the host says for all of them. Pure.

Owns the names of cards as people write them. What a value comes to is for `limits`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wattherd import errors
from wattherd.inventory import names
from wattherd.wire import facts

if TYPE_CHECKING:
    from wattherd.inventory import settings

_BUS = re.compile(r"(?:[0-9a-f]{4}){0,2}:?[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?\Z")
_WHOLE = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.IGNORECASE)
#: Words of a product's name that no two products differ by.
_MAKERS = ("nvidia", "geforce", "tesla", "quadro")
#: Words that make another product of the one before them: a 3090 Ti is no 3090.
_OTHERS = ("ti", "super", "d", "laptop", "mobile", "max", "ada")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One card, and what is wanted of it: the host's keys with those of its entries under `cards:` over them."""

    card: facts.Gpu
    keys: settings.CardPower

    @property
    def shown(self) -> str:
        return shown(self.card)


def shown(card: facts.Gpu) -> str:
    """What to call it in a sentence: its name without its maker's, and the part of its UUID that tells it from its neighbours."""
    name = card.name.removeprefix("NVIDIA ").removeprefix("GeForce ")
    return f"{name or 'card'} {card.uuid[:12] or card.bus}".strip()


def kind(card: facts.Gpu) -> str:
    """Its product's name, for what is true of every card of its kind."""
    return card.name.removeprefix("NVIDIA ").removeprefix("GeForce ") or "card"


def wishes(host: str, setting: settings.Power, found: Sequence[facts.Gpu]) -> tuple[Wish, ...]:
    """Raises `card-unknown` for what can only be a slip: a UUID or bus of no card here, a beginning that two share, one card twice.

    A whole UUID that resembles none of the host's may be a card that fell off its bus: the node remembers those, and judges.
    """
    from wattherd.inventory import settings

    away = [facts.Gpu(bus=name, vendor="nvidia", uuid=name) for name in setting.cards if _may_be_away(name, found)]
    by_card: dict[str, list[tuple[int, str]]] = {}
    for name in setting.cards:
        for card, weight in _meant(host, name, [*found, *away]):
            by_card.setdefault(card.bus, []).append((weight, name))
    made = []
    for card in [*found, *away]:
        layers: list[settings.CardPower] = [setting, *(setting.cards[name] for name in _in_order(host, card, by_card.get(card.bus, [])))]
        keys = {key: getattr(one, key) for one in layers for key in one.model_fields_set if key in settings.CardPower.model_fields}
        made.append(Wish(card=card, keys=settings.CardPower.model_construct(_fields_set=set(keys), **keys)))
    return tuple(made)


def refuse_all(host: str, setting: settings.Power) -> None:
    """Raises `card-unknown` for a UUID or bus on a Jetson, whole or not: it never had such a card, so none of its own can be away."""
    for name in setting.cards:
        if _is_uuid(name) or _is_bus(name):
            words = f"{host}: power.cards: no card here is '{name}': this host is a Jetson"
            raise errors.Problem("card-unknown", words, hint="a card of one host belongs into that host's own host_vars/", card=name)


def unmatched(setting: settings.Power, found: Sequence[facts.Gpu]) -> tuple[str, ...]:
    """Product names under `cards:` that no card here has. Alone that is no mistake: a group has many kinds of boxes."""
    return tuple(name for name in setting.cards if not _is_uuid(name) and not _is_bus(name) and not any(fits(name, one) for one in found))


def fits(name: str, card: facts.Gpu) -> bool:
    """`RTX 3090` is every GeForce RTX 3090, and no 3090 Ti; `A100` is an A100-SXM4-80GB too."""
    wanted, has = _words(name), _words(card.name)
    starts = range(len(has) - len(wanted) + 1)
    return bool(wanted) and any(
        has[at : at + len(wanted)] == wanted and (has[at + len(wanted)] if at + len(wanted) < len(has) else "") not in _OTHERS
        for at in starts
    )


def names_one(name: str, card: facts.Gpu) -> bool:
    """An entry by UUID or bus that is this card's."""
    if _is_uuid(name):
        return card.uuid.lower().startswith(name.lower())
    return _is_bus(name) and _bus(card.bus) == _bus(name)


def _meant(host: str, name: str, found: Sequence[facts.Gpu]) -> Iterator[tuple[facts.Gpu, int]]:
    """The cards of an entry, each with how much the entry counts there: a UUID or bus above every name, a longer name above a shorter."""
    if _is_uuid(name) or _is_bus(name):
        yield _one(host, name, [card for card in found if names_one(name, card)], found), 1000
    else:
        yield from ((card, len(_words(name))) for card in found if fits(name, card))


def _may_be_away(name: str, found: Sequence[facts.Gpu]) -> bool:
    known = [card.uuid for card in found if card.uuid]
    return _WHOLE.match(name) is not None and not any(names_one(name, card) for card in found) and not nearest(name, known)


def _one(host: str, name: str, hits: Sequence[facts.Gpu], found: Sequence[facts.Gpu]) -> facts.Gpu:
    if len(hits) == 1:
        return hits[0]
    if hits:
        words = f"{host}: power.cards: '{name}' is the beginning of {len(hits)} cards: {', '.join(shown(card) for card in hits)}"
        raise errors.Problem("card-unknown", words, hint="write more of the UUID (nvidia-smi -L on that host lists them)", card=name)
    known = [card.uuid for card in found if card.uuid] if _is_uuid(name) else [card.bus for card in found]
    words = f"{host}: power.cards: no card here is '{name}'"
    raise errors.Problem("card-unknown", words, hint=_hint(name, known), card=name)


def _hint(name: str, known: Sequence[str]) -> str:
    if not known:
        return "this host shows no card: is its driver loaded (nvidia-smi -L)?"
    near = nearest(name, known)
    if near:
        return f"did you mean '{near}'?"
    return f"its cards are {', '.join(known[:8])}; a card of one host belongs into host_vars/, a product's name fits a whole group"


def nearest(name: str, known: Iterable[str]) -> str:
    """The UUID or bus that a mistyped one is nearest to: compared at the length that was written, so that a beginning counts too."""
    rows = sorted((names.distance(name.lower(), one[: len(name)].lower()), one) for one in known)
    return rows[0][1] if rows and rows[0][0] <= max(2, len(name) // 6) else ""


def _in_order(host: str, card: facts.Gpu, entries: Sequence[tuple[int, str]]) -> list[str]:
    """Weakest first. Two of one weight would be decided by luck."""
    ordered = sorted(entries)
    for before, after in itertools.pairwise(ordered):
        if before[0] == after[0]:
            words = f"{host}: power.cards: '{before[1]}' and '{after[1]}' are both {shown(card)}"
            raise errors.Problem("card-unknown", words, hint="put them together into one entry", card=after[1])
    return [name for _, name in ordered]


def _is_uuid(name: str) -> bool:
    return name.upper().startswith("GPU-")


def _is_bus(name: str) -> bool:
    return _BUS.match(name.lower()) is not None


def _bus(text: str) -> str:
    """nvidia-smi writes a domain of eight digits, the kernel one of four, lspci none."""
    short = text.lower().removesuffix(".0")
    domain, _, rest = short.rpartition(":")[0].rpartition(":")
    return f"{int(domain or '0', 16):x}:{rest}:{short.rpartition(':')[2]}"


def _words(name: str) -> list[str]:
    return [word for word in re.findall(r"[a-z0-9]+", name.lower()) if word not in _MAKERS]
