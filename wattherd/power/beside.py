"""A program that runs beside this one and writes lines: each is kept with the second at which it came. It does not outlive its reader.

Knows no program's words. The clock is the machine's, so that lines and looks at a card can be compared.
"""

from __future__ import annotations

import collections
import contextlib
import os
import subprocess
import threading
from typing import Callable, Deque, List, Mapping, Optional, Sequence, Tuple

_ENDS_S = 5.0
_LINE_LIMIT = 500
#: What it said of late is kept for a message; lines that tell of a run are few (the caller takes those).
_LAST_LINES = 40

Line = Tuple[float, str]


class Beside:
    """`wanted` says which lines are kept for good; of all others only the last few are, for a message."""

    def __init__(
        self, argv: Sequence[str], environment: Mapping[str, str], clock: Callable[[], float], wanted: Callable[[str], bool]
    ) -> None:
        self._clock = clock
        self._wanted = wanted
        self._kept: List[Line] = []
        self._last: Deque[str] = collections.deque(maxlen=_LAST_LINES)
        # Its only way out is this pipe: when whoever reads it is gone, its next line ends it (SIGPIPE).
        self._process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=dict(environment),
            cwd="/",
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def lines(self) -> Tuple[Line, ...]:
        """The wanted lines so far, oldest first."""
        return tuple(self._kept)

    @property
    def words(self) -> str:
        """What it said last, for a message."""
        return "\n".join(self._last)

    @property
    def code(self) -> Optional[int]:
        """Its exit status; None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """End it. One that the kernel does not let go of (a card that hangs) is left to the kernel after a while."""
        for end in (self._process.terminate, self._process.kill):
            with contextlib.suppress(OSError):
                end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_ENDS_S)
                self._reader.join(_ENDS_S)
                return

    def _read(self) -> None:
        stream = self._process.stderr
        if stream is None:
            return
        with stream:
            for raw in stream:
                line = raw[:_LINE_LIMIT].decode("utf-8", "replace").rstrip()
                if self._wanted(line):
                    self._kept.append((self._clock(), line))
                elif line:
                    self._last.append("".join(char if char.isprintable() else " " for char in line))


def environment(more: Mapping[str, str]) -> Mapping[str, str]:
    """A fixed locale and path, and nothing of the login's."""
    return {"LC_ALL": "C.UTF-8", "PATH": os.defpath + ":/usr/sbin:/sbin", "HOME": "/nonexistent", **more}
