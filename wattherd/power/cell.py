"""One value as nvidia-smi writes it, with its unit or without: a number, or one of the many words for "there is none". Pure."""

from __future__ import annotations

import re
from typing import Optional

#: What drivers write where a value should be. None of them is a number, and none of them is 0.
NOT_A_VALUE = frozenset(
    {
        "",
        "n/a",
        "not supported",
        "not found",
        "unknown error",
        "err!",
        "insufficient permissions",
        "gpu requires reset",
        "gpu is lost",
        "requested functionality has been deprecated",
        "function not found",
        "unknown",
        "none",
    }
)
_NUMBER = re.compile(r"([+-]?\d+(?:\.\d+)?)(?:\s*(?:W|MHz|MiB|C|%|us|ns))?\Z")


def words(cell: str) -> str:
    """Without the brackets and blanks around it."""
    bare = cell.strip()
    return bare[1:-1].strip() if bare.startswith("[") and bare.endswith("]") else bare


def is_value(cell: str) -> bool:
    return words(cell).lower() not in NOT_A_VALUE


def number(cell: str) -> Optional[float]:
    """In the unit that is written there; None for anything that is not wholly a number."""
    found = _NUMBER.match(words(cell))
    return float(found.group(1)) if found else None


def whole(cell: str) -> Optional[int]:
    value = number(cell)
    return None if value is None else int(value)


def switch(cell: str) -> Optional[bool]:
    """Enabled or Disabled, Active or Not Active, Yes or No."""
    said = words(cell).lower()
    if said in ("enabled", "active", "yes", "on"):
        return True
    return False if said in ("disabled", "not active", "no", "off") else None


def mask(cell: str) -> Optional[int]:
    said = words(cell)
    return int(said, 16) if re.match(r"0x[0-9A-Fa-f]+\Z", said) else None


def bus(cell: str) -> str:
    """As the kernel writes it: nvidia-smi and NVML give the domain eight digits, and capitals. Empty for what is no bus."""
    found = re.match(r"(?:[0-9A-Fa-f]{4})?([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\Z", words(cell))
    return found.group(1).lower() if found else ""


def version(cell: str) -> str:
    """A driver's: 610 and newer write a sentence behind it."""
    found = re.match(r"\d+(?:\.\d+)+", words(cell))
    return found.group(0) if found else ""


def printable(text: str, limit: int = 200) -> str:
    """Words of another program, for a terminal: no control characters, no endless line."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text[:limit])
