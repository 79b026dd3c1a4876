"""What a login shell printed where our protocol should stand, said so that a person can find the line that prints it.

Knows nothing of channels. Everything from a host is untrusted here: no control character reaches the terminal.
"""

from __future__ import annotations

import re

SHOWN_CHARACTERS = 400
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "ESC"}
_TOO_LONG = re.compile(r"Received message too long (\d{1,10})\b")
_FRAME_BYTES = 4


def plain(data: bytes | str, limit: int = SHOWN_CHARACTERS) -> str:
    """Text that a terminal may show: control characters are named, and what exceeds the limit is counted."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    shown = "".join(_NAMED.get(c) or (c if c.isprintable() else f"\\x{ord(c):02x}") for c in text[:limit])
    return shown if len(text) <= limit else f"{shown}… ({len(text) - limit} more)"


def describe(noise: bytes) -> str:
    """What a login printed, in a form that fits into a sentence; "" for nothing but white space."""
    return plain(noise.strip())


def decode_length(number: int) -> str:
    """The four characters behind the "length" that a framed protocol read from text."""
    if not 0 <= number < 1 << 8 * _FRAME_BYTES:
        return ""
    return plain(number.to_bytes(_FRAME_BYTES, "big"))


def explain_too_long(message: str) -> str:
    """Say what "Received message too long N" means; "" when the message is another one."""
    found = _TOO_LONG.search(message)
    characters = decode_length(int(found.group(1))) if found else ""
    return f"login shell prints '{characters}…' before our protocol" if characters else ""
