"""What a controller asks of a sweep, checked like any other input: nothing in it may become a word of a command or a path by accident."""

from __future__ import annotations

import re
from typing import Tuple

from wattherd import errors
from wattherd.records import dataclass
from wattherd.resources import place
from wattherd.wire import fields

_LEAST_SECONDS_S, _MOST_SECONDS_S = 1.0, 600.0
_FEWEST_STEPS, _MOST_STEPS = 2, 40
WORD = re.compile(r"[\w.:/+@-]{1,128}\Z", re.ASCII)
_PROXY = re.compile(r"http://127\.0\.0\.1:\d{1,5}\Z", re.ASCII)


@dataclass(frozen=True)
class Wanted:
    """One served instance, as the controller's inventory has it. `preset` names the model of a router; what it loads its files tell."""

    name: str
    unit: str
    url: str
    flags_file: str
    preset: str = ""
    key_file: str = ""
    proxy_url: str = ""
    chat: bool = True


@dataclass(frozen=True)
class Job:
    """`most_w` 0 begins at the card's own default. `seconds_s` is how long one measurement should take."""

    check: bool
    card: str
    steps: int
    seconds_s: float
    most_w: float
    program: str
    account: str
    servers: Tuple[Wanted, ...]


def job_of(order: fields.Document) -> Job:
    steps, seconds_s = fields.integer(order, "steps", 8), fields.number(order, "seconds_per_step", 10.0)
    if not (_FEWEST_STEPS <= steps <= _MOST_STEPS and _LEAST_SECONDS_S <= seconds_s <= _MOST_SECONDS_S):
        raise errors.Problem("protocol-mismatch", f"a sweep of {steps} steps of {seconds_s:g} s was refused")
    return Job(
        fields.flag(order, "check", default=False),
        fields.text(order, "card", ""),
        steps,
        seconds_s,
        fields.number(order, "most_w", 0.0),
        place.plain_path("power-tune", fields.text(order, "program")),
        fields.text(order, "account", ""),
        tuple(_wanted(one) for one in fields.objects(order, "servers")),
    )


def _wanted(row: fields.Document) -> Wanted:
    found = fields.build(Wanted, row, "servers")
    for path in (found.flags_file, *([found.key_file] if found.key_file else [])):
        place.plain_path("power-tune", path)
    words = [found.name, found.unit, *([found.preset] if found.preset else [])]
    wrong = [one for one in words if not WORD.match(one)]
    if wrong or (found.proxy_url and not _PROXY.match(found.proxy_url)):
        raise errors.Problem("protocol-mismatch", f"the controller said {(wrong or [found.proxy_url])[0]!r}, which is no word of a server")
    return found
