"""Bytes, durations and counts as people read them. Pure text; knows nothing of where a figure comes from."""

from __future__ import annotations

_STEP = 1024.0


def size(count_bytes: float) -> str:
    """1536 -> '1.5 KiB'. Bytes in, binary units out, three significant digits at most."""
    value = float(count_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < _STEP:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.{_digits(value)}f} {unit}"
        value /= _STEP
    return f"{value:.{_digits(value)}f} TiB"


def duration(seconds_s: float) -> str:
    """Seconds in; '0.4 s', '12 s', '3 min 20 s' or '2 h 05 min' out."""
    if seconds_s < 10:
        return f"{seconds_s:.1f} s"
    whole = round(seconds_s)
    if whole < 60:
        return f"{whole} s"
    minutes, rest_s = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest_s:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def plural(count: int, noun: str) -> str:
    """3, 'host' -> '3 hosts'; 1, 'host' -> '1 host'."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _digits(value: float) -> int:
    return 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
