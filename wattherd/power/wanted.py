"""What the owner chose for the cards and the board of one node: the power policy, as the node keeps it and its keeper re-applies it.

Watts and MHz, worked out by the controller: no per cent reaches a node. None is "leave that alone".
"""

from __future__ import annotations

import json
import os
import stat
from typing import Mapping, Optional, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.records import dataclass, field
from wattherd.wire import fields

#: The folder of the policy, and of what the node remembers about it.
FOLDER = "/etc/wattherd/power"
POLICY = FOLDER + "/policy.json"
STATE = "/var/lib/wattherd/power"
#: Nothing that is kept about power is longer: the policy of 16 cards has 4 KiB, a day of drift 200.
MOST_BYTES = 1024 * 1024


@dataclass(frozen=True)
class CardPolicy:
    """One card. A range of clocks is (least, most) in MHz; (0, n) is a ceiling that lets an idle card sleep."""

    limit_w: Optional[float] = None
    clocks_mhz: Tuple[int, ...] = ()
    memory_clocks_mhz: Tuple[int, ...] = ()
    persistence: Optional[bool] = None
    temperature_c: Optional[int] = None


@dataclass(frozen=True)
class BoardPolicy:
    """A Jetson: its mode by name, whether jetson_clocks pins the clocks, and the fan's profile."""

    mode: str = ""
    pinned: Optional[bool] = None
    fan: str = ""


@dataclass(frozen=True)
class Policy:
    """By UUID. `confirm_s` is how long a new policy may stand before somebody must have said that the host is well under it."""

    cards: Mapping[str, CardPolicy] = field(default_factory=dict)
    board: Optional[BoardPolicy] = None
    confirm_s: int = 180


def small(machine: machines.Machine, path: str) -> Optional[bytes]:
    """A file of ours about power; None where there is none, or none that this user may see, and empty for what we never wrote: a folder,
    a pipe, or more than MOST_BYTES.

    The keeper has little memory and must not wait: what somebody put there shall neither end it nor stop it.
    """
    try:
        found = os.stat(machine.path(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        if os.geteuid() == 0:
            raise
        return None
    return machine.read(path) if stat.S_ISREG(found.st_mode) and found.st_size <= MOST_BYTES else b""


def is_closed(machine: machines.Machine) -> bool:
    """Whether what the node remembers is there and not for this user: only root may look into it."""
    try:
        os.listdir(machine.path(STATE))
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def encode(policy: Policy) -> str:
    """The policy file's text: the same policy is the same text."""
    return json.dumps(fields.plain(policy), indent=1, sort_keys=True) + "\n"


def decode(text: str) -> Policy:
    """Raises `manifest-invalid` for what is no policy: somebody edited it, or it is another version's."""
    try:
        loaded = fields.parsed(text)
    except ValueError as error:
        raise errors.Problem("manifest-invalid", f"the power policy is no JSON: {error}") from error
    policy = fields.build(Policy, fields.document(loaded, "policy"), "policy")
    for uuid, card in policy.cards.items():
        _check(f"policy.cards.{uuid}", card)
    return policy


def _check(where: str, card: CardPolicy) -> None:
    """What no card could mean, whichever it is. Which of the rest a card takes it says itself (settings.check)."""
    for name, range_mhz in (("clocks_mhz", card.clocks_mhz), ("memory_clocks_mhz", card.memory_clocks_mhz)):
        if range_mhz and not (len(range_mhz) == 2 and 0 <= range_mhz[0] <= range_mhz[1]):
            raise errors.Problem("manifest-invalid", f"{where}.{name} must be two numbers, the least first, not {list(range_mhz)}")
    for name, value in (("limit_w", card.limit_w), ("temperature_c", card.temperature_c)):
        if value is not None and value <= 0:
            raise errors.Problem("manifest-invalid", f"{where}.{name} must be more than 0, not {value}")
