"""What a probe's output must hold besides exit status 0: a release that starts and would do the wrong thing is no good release."""

from __future__ import annotations

import re
from typing import Sequence, Tuple

from wattherd import machine as machines

_SHOWN = 240


def lacking(argv: Sequence[str], expected: Sequence[Tuple[str, ...]], done: machines.Result) -> str:
    """Why this output is not the expected one, with what it says instead; empty when all is there.

    `expected` has rows of (last word of the command, pattern, what its absence means); rows of other commands are passed over.
    """
    for word, pattern, meaning in expected:
        if argv[-1] == word and re.search(pattern, done.words, re.MULTILINE) is None:
            said = " / ".join(line.strip() for line in done.words.splitlines() if line.strip())
            return f"{meaning} ({argv[-1].rpartition('/')[2]} says: {said[:_SHOWN] or 'nothing'})"
    return ""
