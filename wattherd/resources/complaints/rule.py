"""What one kind of complaint looks like in a log, what it means, and what to do. Knows no kind."""

from __future__ import annotations

import re
from typing import Callable, Dict, Optional

from wattherd.records import dataclass
from wattherd.resources.complaints import lines
from wattherd.wire import finding

#: A complaint begins early in its line; what follows can be anybody's words.
_LOOKED_AT = 400

Groups = Dict[str, str]


def _same(groups: Groups) -> Groups:
    return groups


@dataclass(frozen=True)
class Rule:
    """`stem` is looked for anywhere in a line's text; its named groups, after `shape`, fill `words` and `do`.

    `deadly` says that a server which prints this ends; the others are said by servers that live on, worse than they should.
    """

    code: str
    stem: str
    words: str
    do: str
    severity: str = finding.ERROR
    deadly: bool = True
    shape: Callable[[Groups], Groups] = _same

    def match(self, line: lines.Line, where: str) -> Optional[finding.Finding]:
        met = re.search(self.stem, line.text[:_LOOKED_AT], re.IGNORECASE)
        if met is None:
            return None
        groups = self.shape({name: finding.plain_line(value or "?", 120) for name, value in met.groupdict().items()})
        return finding.found(self.code, self.severity, where, self.words.format(**groups), do=self.do.format(**groups), evidence=line.raw)
