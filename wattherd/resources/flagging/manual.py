"""What `llama-server --help` says of its options: names, values, environment, what was removed, and what the binary itself warns of.

Reads the text of any build, from the program or from a record of it. It comes from a node's binary, so it is data: bounded, and whatever
is not understood is passed over. Knows no option by name.
"""

from __future__ import annotations

import re
from typing import List, Mapping, Optional, Sequence, Tuple

from wattherd.records import dataclass

#: A help of 2026 has 60 kB and 330 options.
LIMIT_BYTES = 1024 * 1024
_OPTIONS_LIMIT = 4000
_LINE_LIMIT_CHARS = 4000
_NAME = r"-{1,2}[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_HEAD = re.compile(rf"({_NAME}(?:,\s{{1,8}}{_NAME})*)(?: (\S.*?))?(?:\s{{2,}}(\S.*))?\Z")
_TWO_VALUES = re.compile(r"[A-Z_]+ [A-Z_]+\Z")
_CHOICES = re.compile(r"[\[{<]?([A-Za-z0-9_+.-]+(?:[|,][A-Za-z0-9_+.-]+)+)[\]}>]?\Z")
_ALLOWED = re.compile(r"allowed values:\s*([A-Za-z0-9_, +.-]+?)(?:\s*\(|\n|\Z)")
_TEMPLATES = re.compile(r"list of built-in templates:\s*([a-z0-9_., \n-]+)")
_BULLET = re.compile(r"^ ?- ([A-Za-z0-9_+-]+)(?: \(default\))?:", re.MULTILINE)
_DEFAULT = re.compile(r"\(default: '?([A-Za-z0-9_+.-]+)'?\)")
_QUOTED = re.compile(r"'([a-z]+)'")
_ENV = re.compile(r"\(env: ([A-Z][A-Z0-9_]*)\)")
_REMOVED = re.compile(r"argument has been removed")
_UNTRUSTED, _DOWNLOADS, _ENDS = "untrusted", "downloads", "ends"
#: What the binary says of an option -> the kind of risk that it stands for.
_RISKS = (
    (re.compile(r"do not enable in untrusted environments"), _UNTRUSTED),
    (re.compile(r"can download weights from the internet"), _DOWNLOADS),
    (re.compile(r"\Aprint\b.*\b(?:exit|script)\b|\Ashow (?:version|list)\b", re.DOTALL), _ENDS),
)


@dataclass(frozen=True)
class Entry:
    """One option as its binary describes it. `values` are the ones that it names, perhaps not all; `removed` is what it says instead."""

    names: Tuple[str, ...]
    hint: str = ""
    values: Tuple[str, ...] = ()
    environment: str = ""
    removed: str = ""
    deprecated: bool = False
    risk: str = ""

    @property
    def arity(self) -> int:
        """How many words follow the name."""
        return 0 if not self.hint else 2 if _TWO_VALUES.match(self.hint) else 1

    @property
    def numeric(self) -> bool:
        """Its value is a number, apart from the ones that are named."""
        return self.hint == "N"

    def takes(self, value: str) -> bool:
        """False for what is surely no value of it; the binary itself has the last word."""
        return not self.numeric or value in self.values or re.match(r"-?[0-9.]+\Z", value) is not None


class Manual:
    """The options of one binary. Those that it lists only to say that they were removed are not among them."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = tuple(one for one in entries if not one.removed)
        self._by_name = {name: one for one in self.entries for name in one.names}
        self._removed = {name: one.removed for one in entries if one.removed for name in one.names}
        self.environment: Mapping[str, Entry] = {one.environment: one for one in self.entries if one.environment}

    def find(self, name: str) -> Optional[Entry]:
        return self._by_name.get(plain(name))

    def removal(self, name: str) -> str:
        """What the help says instead of an option that was removed; empty for any other."""
        return self._removed.get(plain(name), "")

    @property
    def names(self) -> Tuple[str, ...]:
        return tuple(self._by_name)


def plain(name: str) -> str:
    """As the binary reads a name: underscores of a long option are dashes."""
    return name.replace("_", "-") if name.startswith("--") else name


def is_option(word: str) -> bool:
    """A word that looks like an option and not like a negative number or a value."""
    return re.match(r"-{1,2}[A-Za-z]", word) is not None


def parse(text: str) -> Manual:
    """Every option in the text. A text without any gives an empty manual, which the caller must not take for an answer."""
    entries: List[Entry] = []
    head: Optional[Tuple[str, str]] = None
    body: List[str] = []
    for raw in text[:LIMIT_BYTES].splitlines():
        line = raw.rstrip()[:_LINE_LIMIT_CHARS]
        found = _HEAD.match(line)
        if line.startswith((" ", "\t")) or not (found or line.startswith("-")):
            body.append(line.strip())
            continue
        if head is not None:
            entries.append(_entry(*head, "\n".join(body)))
        head, body = (found.group(1), found.group(2) or "") if found else None, [found.group(3) or ""] if found else []
        if len(entries) >= _OPTIONS_LIMIT:
            break
    if head is not None:
        entries.append(_entry(*head, "\n".join(body)))
    return Manual(entries)


def _entry(names: str, hint: str, text: str) -> Entry:
    removed = " ".join(text.split("(env:", maxsplit=1)[0].split()) if _REMOVED.search(text) else ""
    risk = next((kind for words, kind in _RISKS if words.search(" ".join(text.split()))), "")
    environment = _ENV.search(text)
    return Entry(
        names=tuple(re.split(r",\s+", names)),
        hint=hint,
        values=_values(hint, text) if hint else (),
        environment=environment.group(1) if environment else "",
        removed=removed[:300],
        deprecated="deprecated" in text.lower(),
        risk=risk,
    )


def _values(hint: str, text: str) -> Tuple[str, ...]:
    choices, allowed, templates = _CHOICES.match(hint), _ALLOWED.search(text), _TEMPLATES.search(text)
    if choices:
        found = re.split(r"[|,]", choices.group(1))
        return () if any(one.startswith(".") for one in found) else tuple(found)  # "N0,N1,..." names no value
    if allowed:
        return tuple(one.strip() for one in allowed.group(1).split(",") if one.strip())
    if templates:
        return tuple(one.strip() for one in templates.group(1).replace("\n", " ").split(",") if one.strip())
    bullets = [one for one in _BULLET.findall(text) if not one.isdigit()]
    if bullets:
        default = _DEFAULT.search(text)
        return tuple(dict.fromkeys([*bullets, *([default.group(1)] if default else [])]))
    return tuple(dict.fromkeys(_QUOTED.findall(text.split("(env:", maxsplit=1)[0]))) if hint in {"N", "FA", "LEVEL"} else ()


def shown(entry: Entry) -> str:
    """What it takes, for a person."""
    if not entry.hint:
        return "no value"
    number = ["a number"] if entry.numeric else []
    return ", ".join([*number, *entry.values]) or entry.hint
