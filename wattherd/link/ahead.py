"""Many questions to ssh at once, asked by shells beside this process while it does something else.

Only answers count: what went wrong is not told here. Whoever misses an answer asks again, alone, and says what is wrong. Knows nothing
of what the answers mean.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence

#: One shell for so many questions (3 ms each), and no more shells than processors.
_A_SHELL = 16

Question = tuple[str, ...]


class Ahead:
    """Begins to ask when it is made. `answer` waits for its shell; None is no answer."""

    def __init__(self, questions: Sequence[Question], environ: Mapping[str, str], limit_s: float) -> None:
        count = max(1, min(os.cpu_count() or 1, -(-len(questions) // _A_SHELL)))
        shells = [_Shell(questions[number::count], environ, limit_s) for number in range(count)]
        self._shells = {question: shell for shell in shells for question in shell.questions}

    def answer(self, question: Question) -> str | None:
        shell = self._shells.get(question)
        return shell.answers().get(question) if shell else None


class _Shell:
    def __init__(self, questions: Sequence[Question], environ: Mapping[str, str], limit_s: float) -> None:
        self.questions = tuple(questions)
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._answers: dict[Question, str] | None = None
        # A file and no pipe: nobody reads before the end, and a full pipe would hold the shell up.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - it lives until the answers are read
        script = "".join(f"{shlex.join(question)}\nprintf '\\0%s\\0' $?\n" for question in self.questions)
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", script], env=environ, stdin=subprocess.DEVNULL, stdout=self._said, stderr=subprocess.DEVNULL
        )

    def answers(self) -> Mapping[Question, str]:
        with self._lock:
            if self._answers is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(self._limit_s)
                if self._process.poll() is None:
                    self._process.kill()
                    self._process.wait()
                self._answers = self._read()
            return self._answers

    def _read(self) -> dict[Question, str]:
        with self._said:
            self._said.seek(0)
            parts = self._said.read().decode("utf-8", "replace").split("\0")
        pairs = zip(self.questions, parts[0::2], parts[1::2], strict=False)
        return {question: text for question, text, code in pairs if code == "0"}
