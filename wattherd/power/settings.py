"""The settings of a card: their names, what a value of each looks like, what the card says of them, and which values it takes.

A value is a tuple of numbers: (watts,), (least, most) in MHz, (1,) or (0,) for persistence, (degrees Celsius,). An empty one is clocks that
are free. Pure: reads records, touches nothing.
"""

from __future__ import annotations

from typing import Dict, Mapping, Optional, Tuple

from wattherd import errors
from wattherd.power import reading, wanted

Value = Tuple[float, ...]

LIMIT, CLOCKS, MEMORY_CLOCKS = "limit_w", "clocks_mhz", "memory_clocks_mhz"
PERSISTENCE, TEMPERATURE = "persistence", "temperature_c"
#: Setting -> how many numbers its value has, in the order in which they are set: without persistence the driver may forget the others.
COUNTS: Mapping[str, int] = {PERSISTENCE: 1, LIMIT: 1, TEMPERATURE: 1, CLOCKS: 2, MEMORY_CLOCKS: 2}
#: These can be read back nowhere: our own record is what is known of them.
LOCKS = (CLOCKS, MEMORY_CLOCKS)
#: What the driver forgets when it lets a card go, which it does after the last client where persistence is off.
VOLATILE = (LIMIT, *LOCKS)
NAMES: Mapping[str, str] = {
    LIMIT: "power limit",
    CLOCKS: "clock range",
    MEMORY_CLOCKS: "memory clock range",
    PERSISTENCE: "persistence",
    TEMPERATURE: "temperature target",
}
#: The compute capability since which a card's clocks can be locked: Volta, and for its memory Ampere (nvml.h, nvmlDeviceSet…LockedClocks).
_LOCKED_SINCE: Mapping[str, Tuple[int, ...]] = {CLOCKS: (7, 0), MEMORY_CLOCKS: (8, 0)}
#: A limit reads back in hundredths of a watt, and some cards keep whole ones only.
SLACK_W = 0.5
_REFUSED = ("not supported", "deprecated", "n/a", "not available")
HINT = "correct it under `power:` of this host, its group or this card; the range differs by board vendor, for the same chip too"


def of(policy: wanted.CardPolicy) -> Dict[str, Value]:
    """The settings that a policy names, in the order in which they are set."""
    found: Dict[str, Optional[Value]] = {
        PERSISTENCE: None if policy.persistence is None else (float(policy.persistence),),
        LIMIT: None if policy.limit_w is None else (policy.limit_w,),
        TEMPERATURE: None if policy.temperature_c is None else (float(policy.temperature_c),),
        CLOCKS: tuple(float(one) for one in policy.clocks_mhz) or None,
        MEMORY_CLOCKS: tuple(float(one) for one in policy.memory_clocks_mhz) or None,
    }
    return {setting: value for setting, value in found.items() if value is not None}


def read(card: reading.Card, setting: str) -> Optional[Value]:
    """What the card says that it has; None for what it does not say. A limit is what was asked for: something else may hold it lower."""
    if setting == LIMIT:
        limits = card.limits
        held = limits.requested_w if limits.requested_w is not None else limits.enforced_w
        return None if held is None else (held,)
    if setting == PERSISTENCE:
        return None if card.persistence is None else (float(card.persistence),)
    if setting == TEMPERATURE:
        return None if card.temperature_target_c is None else (float(card.temperature_target_c),)
    return None


def agrees(setting: str, value: Value, actual: Optional[Value]) -> bool:
    if actual is None or len(actual) != len(value):
        return False
    slack = SLACK_W if setting == LIMIT else 0.0
    return all(abs(one - other) <= slack for one, other in zip(value, actual))


def shown(setting: str, value: Optional[Value]) -> str:
    """'250 W', '0 to 1400 MHz', 'on', '83 °C', 'free'; 'unknown' for None."""
    if value is None:
        return "unknown"
    if setting == PERSISTENCE:
        return "on" if value[0] else "off"
    if setting in LOCKS:
        return f"{value[0]:.0f} to {value[1]:.0f} MHz" if value else "free"
    return f"{value[0]:.0f} °C" if setting == TEMPERATURE else watts(value[0])


def watts(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") + " W"


def cannot(card: reading.Card, setting: str) -> str:
    """Why this card has no such setting, as far as it says so itself; empty where it may."""
    if card.suspended:
        return "it sleeps, and is not woken for this"
    if setting in LOCKS and card.capability and card.capability < _LOCKED_SINCE[setting]:
        return refused(setting)
    if setting == LIMIT and read(card, LIMIT) is None and not _is_odd(card, "limit"):
        return refused(LIMIT)
    if setting == TEMPERATURE and card.temperature_target_c is None:
        return "this card has no temperature target"
    if setting == PERSISTENCE and card.persistence is None and _refuses(card, "persistence"):
        return "this driver has no persistence mode"
    return ""


def _refuses(card: reading.Card, word: str) -> bool:
    """A field of this name is unknown because the card or the driver has no such thing."""
    return any(word in name and any(refusal in reason.lower() for refusal in _REFUSED) for name, reason in card.unknown.items())


def _is_odd(card: reading.Card, word: str) -> bool:
    """A field of this name is unknown by an error of the moment, which says nothing of what the card can do."""
    return any(word in name and "error" in reason.lower() for name, reason in card.unknown.items()) and not _refuses(card, word)


def refused(setting: str) -> str:
    """What to say of a setting that the driver would not make: `skipped`, with this reason."""
    if setting == LIMIT:
        return "this card's limit cannot be set (laptop, vGPU, GB10): use clocks instead"
    if setting == CLOCKS:
        return "this card's clocks cannot be locked (that takes Volta or newer): use a power limit instead"
    if setting == MEMORY_CLOCKS:
        return "this card's memory clocks cannot be locked (that takes Ampere or newer)"
    return f"this card does not let its {NAMES[setting]} be set"


def check(card: reading.Card, setting: str, value: Value) -> None:
    """Raise `power-range` for a value that this card does not take, with the range that it does. An unknown bound bounds nothing."""
    if setting == LIMIT:
        _within(card, value[0], card.limits.min_w, card.limits.max_w, "W")
    elif setting == TEMPERATURE:
        _within(card, value[0], card.temperature_target_min_c, card.temperature_target_max_c, "°C")
    elif setting in LOCKS and value:
        most_mhz = card.clocks.sm_max_mhz if setting == CLOCKS else card.clocks.memory_max_mhz
        if value[0] > value[1]:
            message = f"{card.shown}: a {NAMES[setting]} from {value[0]:.0f} to {value[1]:.0f} MHz ends before it begins"
            raise errors.Problem("power-range", message, hint="the least comes first: 0,1400", uuid=card.uuid)
        if most_mhz is not None and value[0] > most_mhz:
            _within(card, value[0], None, most_mhz, "MHz")


def _within(card: reading.Card, value: float, least: Optional[float], most: Optional[float], unit: str) -> None:
    low, high = (least is not None and value < least), (most is not None and value > most)
    if not low and not high:
        return
    span = f"{_plain(least)} to {_plain(most)} {unit}"
    if least is None or most is None:
        span = f"at least {_plain(least)} {unit}" if most is None else f"up to {_plain(most)} {unit}"
    message = f"{card.shown}: {_plain(value)} {unit} is {'less' if low else 'more'} than this card takes: {span}"
    raise errors.Problem("power-range", message, hint=HINT, uuid=card.uuid, value=value, least=least, most=most)


def _plain(value: Optional[float]) -> str:
    return "" if value is None else f"{value:.2f}".rstrip("0").rstrip(".")


def doubts(card: reading.Card, setting: str, value: Value) -> Tuple[str, ...]:
    """What only the card itself shows and a person should hear although the value is taken.

    That a raised least clock costs idle watts is the controller's to say (powering/limits.py): once for all cards of a kind.
    """
    if setting not in LOCKS or not value:
        return ()
    most_mhz, highest_mhz = value[1], card.clocks.sm_max_mhz if setting == CLOCKS else card.clocks.memory_max_mhz
    if not highest_mhz or most_mhz <= highest_mhz:
        return ()
    return (f"{card.shown}: it never runs faster than {highest_mhz} MHz, so a {NAMES[setting]} up to {most_mhz:.0f} changes nothing",)


def forgetful(card: reading.Card, setting: str) -> Tuple[str, ...]:
    """Persistence is off: what the driver forgets with the last client of the card. Nothing where it is on, or not known."""
    if card.persistence is not False or setting not in VOLATILE:
        return ()
    words = f"persistence is off, so its {NAMES[setting]} is lost whenever the driver lets the card go"
    return (f"{card.shown}: {words}; `persistence: true` under `power:` keeps it",)


def default(card: reading.Card, setting: str) -> Optional[Value]:
    """What the card calls its default; only its limit has one."""
    return (card.limits.default_w,) if setting == LIMIT and card.limits.default_w else None


def policy(setting: str, value: Value) -> wanted.CardPolicy:
    """The policy that names this one setting."""
    if setting == LIMIT:
        return wanted.CardPolicy(limit_w=value[0])
    if setting == CLOCKS:
        return wanted.CardPolicy(clocks_mhz=(int(value[0]), int(value[1])))
    if setting == MEMORY_CLOCKS:
        return wanted.CardPolicy(memory_clocks_mhz=(int(value[0]), int(value[1])))
    return wanted.CardPolicy(persistence=bool(value[0])) if setting == PERSISTENCE else wanted.CardPolicy(temperature_c=int(value[0]))


def held_lower(card: reading.Card) -> str:
    """Something else keeps the card below what software asked for (a BMC, a power brake, an out-of-band tool); empty where nothing does."""
    asked_w, kept_w = card.limits.requested_w, card.limits.enforced_w
    if asked_w is None or kept_w is None or kept_w >= asked_w - SLACK_W:
        return ""
    return f"{card.shown}: something else holds the card at {watts(kept_w)} (a BMC or another limiter); {watts(asked_w)} was asked for"
