"""Which models may be unloaded at this instant, and whether unloading is worth anything: each with its reason, in words. Pure.

A model is unloaded when its process is gone. What llama-server calls sleep keeps the process and its context on the card, and so most
of the watts (facts/power.md, c): asleep is no saving, and a sleeping model may be unloaded like an idle one.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Mapping, Optional, Sequence, Tuple

from wattherd.policy import idle
from wattherd.records import dataclass

#: A router's own words for the state of a model (facts/llama-cpp.md, 2a); `failed` is its `unloaded` with an exit code.
LOADED, LOADING, SLEEPING, UNLOADED, FAILED = "loaded", "loading", "sleeping", "unloaded", "failed"


@dataclass(frozen=True)
class Model:
    """One model as it was seen without waking it. `requests` are those in flight; `idle_s` seconds since the last one ended.

    None is unknown, and what is not known to be idle is not unloaded. `pinned` is the owner's word.
    """

    name: str
    state: str
    requests: Optional[int] = None
    idle_s: Optional[float] = None
    pinned: bool = False


@dataclass(frozen=True)
class Decision:
    """`reason` is one word for a program: idle, asleep, busy, loading, pinned, active, unloaded, unknown; `words` say it to a person."""

    model: str
    unload: bool
    reason: str
    words: str


@dataclass(frozen=True)
class Worth:
    """`kwh` is what is saved, None where it cannot be told yet; `worthwhile`: worth proposing, as far as it was measured."""

    kwh: Optional[Decimal]
    worthwhile: bool
    words: str


def decide(models: Sequence[Model], *, idle_after_s: float) -> Tuple[Decision, ...]:
    """One decision for each model, in their order. `idle_after_s`: how long nobody must have asked before a model counts as idle."""
    return tuple(_decide(one, idle_after_s) for one in models)


def _decide(model: Model, idle_after_s: float) -> Decision:
    unload, reason, words = _verdict(model, idle_after_s)
    return Decision(model.name, unload, reason, words)


def _verdict(model: Model, idle_after_s: float) -> Tuple[bool, str, str]:
    """As a Decision has them. The owner's word comes before everything but the fact that nothing is there to unload."""
    if model.pinned and model.state not in {UNLOADED, FAILED}:
        return False, "pinned", "its owner pinned it"
    return _BY_STATE.get(model.state) or _of_loaded(model, idle_after_s)


_BY_STATE: Mapping[str, Tuple[bool, str, str]] = {
    UNLOADED: (False, "unloaded", "it is not loaded"),
    FAILED: (False, "unloaded", "it is not loaded"),
    LOADING: (False, "loading", "it is being loaded: ended now, it would count as failed"),
    SLEEPING: (True, "asleep", "it sleeps, but its process still holds the card: only its end saves anything"),
}


def _of_loaded(model: Model, idle_after_s: float) -> Tuple[bool, str, str]:
    if model.state != LOADED or model.requests is None:
        return False, "unknown", "whether it answers somebody right now is not known, and no request is ever cut"
    if model.requests:
        return False, "busy", f"it answers {model.requests} request{'' if model.requests == 1 else 's'}: when the last has ended, it may go"
    if model.idle_s is None:
        return False, "unknown", "when it was last asked is not known"
    if model.idle_s < idle_after_s:
        return False, "active", f"it was asked {model.idle_s:.0f} s ago; it counts as idle after {idle_after_s:.0f} s"
    return True, "idle", f"nobody has asked it for {model.idle_s:.0f} s"


def worth(
    loaded_w: Optional[float],
    empty_w: Optional[float],
    hours: Decimal,
    *,
    reloads: int = 0,
    reload_kwh: Optional[Decimal] = None,
) -> Worth:
    """What unloading for `hours` saves: the measured difference at rest, less the energy of the reloads.

    Both draws are of this card on this host, in watts; without both there is no figure, and nothing is proposed. `reload_kwh` is what one
    reload takes, None where it was never measured.
    """
    if loaded_w is None or empty_w is None:
        lacking = "loaded" if loaded_w is None else "empty"
        return Worth(None, worthwhile=False, words=f"what this card draws {lacking} has not been measured on this host yet")
    saved_w = idle.waste_w(loaded_w, empty_w)
    shown = f"{loaded_w:g} W loaded, {empty_w:g} W empty"
    if not saved_w:
        return Worth(Decimal(0), worthwhile=False, words=f"no saving: {shown}")
    gross = idle.kwh(saved_w, hours)
    if reloads and reload_kwh is None:
        words = f"{shown}: {_plain(saved_w)} W less for {_plain(hours)} h, before what {reloads} reloads take, which is not measured yet"
        return Worth(gross, worthwhile=True, words=words)
    net = gross - reloads * (reload_kwh or Decimal(0))
    words = f"{shown}: {_plain(gross)} kWh less in {_plain(hours)} h"
    if reloads:
        words += f", of which {reloads} reloads take {_plain(gross - net)} kWh"
    if net <= 0:
        return Worth(net, worthwhile=False, words=f"{words}: nothing is left")
    return Worth(net, worthwhile=True, words=words)


def left_by_sleep(asleep_w: Optional[float], empty_w: Optional[float]) -> str:
    """What a model that sleeps still costs on its card, in words; empty where sleep did bring the card to rest."""
    remedy = "the process must end (unload it in router mode, stop its unit)"
    if asleep_w is None or empty_w is None:
        return f"asleep, but its process still holds the card: {remedy}"
    wasted_w = idle.waste_w(asleep_w, empty_w)
    return f"asleep, but no saving: {_plain(wasted_w)} W still go into the card that it holds; {remedy}" if wasted_w else ""


def _plain(value: Decimal) -> str:
    """Without an exponent and without zeros at the end."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
