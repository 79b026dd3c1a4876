"""Takes the wrapping off a log line: what syslog, containers and twenty months of llama.cpp put before the words, and their level.

Pure text. Knows no fault.
"""

from __future__ import annotations

import json
import re
from typing import Iterable, Iterator, List, Tuple

from wattherd.records import dataclass

#: What is read of a log: more lines than a start prints, and longer than any that tells something.
LINES_LIMIT = 8000
LENGTH_LIMIT = 2000
_COLOURS = re.compile("\x1b\\[[0-9;?]*[A-Za-z]")
_WRAPPING = (
    # a container's name, as compose prints it
    re.compile(r"^[\w.-]{1,64}\s+\| "),
    # ISO 8601, alone or before a host and a program
    re.compile(r"^\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)?\]?\s+"),
    # syslog: Dec 01 04:00:00
    re.compile(r"^[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d(?:\.\d+)? "),
    # host program[123]:
    re.compile(r"^(?:[\w.-]{1,64} )?[\w.@()/-]{1,64}\[\d+\]: "),
    # a router's child, by its port
    re.compile(r"^\[\d{1,5}\] "),
)
#: minutes.seconds.milliseconds.microseconds and the level's letter; either may be missing.
_STAMP = re.compile(r"^\d+\.\d\d\.\d{3}\.\d{3} ")
_LETTER = re.compile(r"^([EWID]) (?=\S|\s+\S)")
#: 2024's servers: `ERR [   load_model] unable to load model | tid="1" …`.
_WORD = re.compile(r"^(ERR|ERROR|WARN|WARNING|INFO|VERB|DEBUG)\s+\[\s*([\w:~]+)\]\s*")
_NAMED = re.compile(r"^(?:[\w:~<>() ]{1,60}: )?(error|fatal error|warning)\b:? ?", re.IGNORECASE)
_LEVELS = {
    "e": "E", "err": "E", "error": "E", "fatal": "E", "critical": "E", "fatal error": "E",
    "w": "W", "warn": "W", "warning": "W", "i": "I", "info": "I",
    "d": "D", "debug": "D", "verb": "D", "verbose": "D",
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """`level` is E, W, I, D, or empty where the line names none; `text` is what was said, `raw` the line as it stood."""

    level: str
    text: str
    raw: str


def read(texts: Iterable[str]) -> List[Line]:
    """Lines in order, empty ones left out. A message of a JSON log can hold several."""
    read_lines: List[Line] = []
    for raw in texts:
        read_lines += _of(raw[:LENGTH_LIMIT])
        if len(read_lines) >= LINES_LIMIT:
            break
    return read_lines


def _of(raw: str) -> Iterator[Line]:
    bare = _unwrapped(_COLOURS.sub("", raw).rstrip("\r\n"))
    level, message = _structured(bare) if bare.startswith("{") else ("", bare)
    for part in message.splitlines():
        own, text = _levelled(part)
        if text.strip():
            yield Line(own or level, text.strip(), part.strip() if level else bare.strip())


def _unwrapped(text: str) -> str:
    for pattern in _WRAPPING:
        text = pattern.sub("", text, count=1)
    return text


def _structured(text: str) -> Tuple[str, str]:
    """llama-server's own JSON lines (`level`, `msg`) and those of 2023 (`level`, `message` or `msg`). A cut one stays text."""
    try:
        document = json.loads(text)
    except ValueError:
        return "", text
    if not isinstance(document, dict):
        return "", text
    message = document.get("msg", document.get("message"))
    return _LEVELS.get(str(document.get("level")).lower(), ""), message if isinstance(message, str) else ""


def _levelled(text: str) -> Tuple[str, str]:
    stripped = _STAMP.sub("", text)
    letter = _LETTER.match(stripped)
    if letter:
        return letter.group(1), stripped[letter.end() :]
    word = _WORD.match(stripped)
    if word:
        return _LEVELS[word.group(1).lower()], f"{word.group(2)}: {stripped[word.end() :].split(' | tid=')[0]}"
    named = _NAMED.match(stripped)
    return (_LEVELS[named.group(1).lower()], stripped) if named else ("", stripped)
