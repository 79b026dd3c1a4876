"""What `doctor` found: one record for one fault, in words for a tired operator. Findings travel in the `end` of a verb.

Every text comes at least in part from logs of a node: it is one line, bounded, without control characters and without what
looks like a secret.
"""

from __future__ import annotations

import re
from typing import Mapping

from wattherd.records import dataclass
from wattherd.wire import fields

ERROR, WARNING, NOTE = "error", "warning", "note"
#: Worst first.
SEVERITIES = (ERROR, WARNING, NOTE)
_CODE_LIMIT, _WORDS_LIMIT, _LINE_LIMIT = 60, 600, 300
_COLOURS = re.compile("\x1b\\[[0-9;?]*[A-Za-z]")
#: An option, a variable or a header whose value opens something, and the tokens that are known by their look.
_SECRET = re.compile(
    r"(?i)((?:--?|\b)[\w-]{0,60}(?:api[_-]?key|token|secret|passw(?:or)?d)(?![\w-])['\"]?(?:\s*[=:]\s*|\s+(?=[\w+/.-]{16})))['\"]?[^\s'\",]+"
    r"|\b(bearer\s+)\S+|\b((?:hf|sk)[_-])\w{12,}"
)

#: A line without one of these needs no closer look.
_SECRET_WORDS = ("key", "token", "secret", "passw", "bearer", "hf_", "hf-", "sk_", "sk-")


@dataclass(frozen=True)
class Finding:
    """`code` is kebab-case and stable; `where` names a unit, a card or a file; `do` is the next step; `evidence` is one line as found."""

    code: str
    severity: str
    where: str
    words: str
    do: str = ""
    evidence: str = ""

    @property
    def rank(self) -> int:
        return SEVERITIES.index(self.severity)


def plain_line(text: str, limit: int = _LINE_LIMIT) -> str:
    """One line that may be shown: no colours, no control characters, no secret, at most `limit` characters."""
    cut = _COLOURS.sub("", text[: limit * 8]).replace("\t", " ")
    safe = "".join(char if char.isprintable() else "�" if char not in "\r\n" else " " for char in cut).strip()
    hidden = safe
    if any(word in safe.lower() for word in _SECRET_WORDS):
        hidden = _SECRET.sub(lambda found: f"{found.group(1) or found.group(2) or found.group(3) or ''}…", safe)
    return hidden if len(hidden) <= limit else hidden[: limit - 1] + "…"


def found(code: str, severity: str, where: str, words: str, *, do: str = "", evidence: str = "") -> Finding:
    """A finding whose texts are fit to be sent and shown."""
    return Finding(
        code, severity, plain_line(where, 200), plain_line(words, _WORDS_LIMIT), plain_line(do, _WORDS_LIMIT), plain_line(evidence)
    )


def decode(document: Mapping[str, object]) -> Finding:
    """Read what a node sent. Its words are data, bounded here once more; a severity that does not exist is read as an error."""
    severity = fields.text(document, "severity")
    return found(
        fields.text(document, "code")[:_CODE_LIMIT],
        severity if severity in SEVERITIES else ERROR,
        fields.text(document, "where"),
        fields.text(document, "words"),
        do=fields.text(document, "do", ""),
        evidence=fields.text(document, "evidence", ""),
    )
