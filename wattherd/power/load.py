"""Work for a card while it is measured: one phase (prefill or decode) again and again, as runs whose tokens and times are known.

`Bench` is llama.cpp's own llama-bench, which loads the model itself and so needs a card that is free; where a server holds the card
already, it is the work (`served.py`). Both give the same runs. Knows no watts.
"""

from __future__ import annotations

import os
import re
from typing import Callable, List, Mapping, Optional, Protocol, Sequence, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.policy import knee
from wattherd.power import beside
from wattherd.records import dataclass, field

#: Tokens of one run: what llama-bench takes by itself for prefill, and of decode so few that a slow card ends some runs in a window.
TOKENS = {knee.PREFILL: 512, knee.DECODE: 64}
_FEWEST_TOKENS = 16
#: A run that takes longer than this is made shorter.
_LONGEST_RUN_S = 2.0
#: A model of 100 GB from a slow disk.
_LOAD_LIMIT_S = 1200.0
_PAUSE_S = 0.2
_REPETITIONS = 1_000_000
_RUN = re.compile(r"benchmark \d+/\d+: (warmup )?(prompt|generation) run(?: (\d+)/\d+)?\s*$")
_ERROR = re.compile(r"(?i)error|fail|invalid|unable|cannot|out of memory")

Tell = Callable[[str], None]
Start = Callable[[Sequence[str], Mapping[str, str], Callable[[], float], Callable[[str], bool]], beside.Beside]


@dataclass(frozen=True)
class Run:
    """Some tokens of one phase, and when: seconds of the machine's own steady clock."""

    begun_s: float
    ended_s: float
    tokens: int


class Load(Protocol):
    """What a sweep needs of either kind. `interruptions` counts how often somebody else wanted the card meanwhile."""

    words: str
    interruptions: int

    def begin(self, phase: str, tell: Tell) -> None:
        """Returns when tokens flow. Raises `tune-load` when they never do."""

    def runs(self) -> Tuple[Run, ...]:
        """The runs of this phase that have ended, oldest first."""

    def check(self) -> None:
        """Raises `tune-load` when the load has ended by itself."""

    def is_quiet(self) -> bool:
        """True while nobody else wants the card."""

    def end(self) -> None:
        """Stop; the card is then as it was before `begin`."""


@dataclass(frozen=True)
class Order:
    """`program` and `model` are files of the node; `options` are llama-bench's own words (-fa 1). `environment` pins it to its cards."""

    program: str
    model: str
    options: Tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    account: str = ""


class Bench:
    """One llama-bench for each phase; it stays loaded while limits change under it."""

    def __init__(self, machine: machines.Machine, order: Order, start: Start = beside.Beside) -> None:
        self.words = "llama-bench"
        self.interruptions = 0
        self._machine = machine
        self._order = order
        self._start = start
        self._process: Optional[beside.Beside] = None
        self._phase = knee.PREFILL
        self._tokens = 0

    def begin(self, phase: str, tell: Tell) -> None:
        self._phase, tokens = phase, TOKENS[phase]
        while True:
            self._launch(tokens)
            took_s = self._first_run(tell)
            if took_s <= _LONGEST_RUN_S or tokens <= _FEWEST_TOKENS:
                return
            tokens = max(_FEWEST_TOKENS, int(tokens * _LONGEST_RUN_S / took_s / 2))
            self.end()

    def runs(self) -> Tuple[Run, ...]:
        marks = self._marks()
        return tuple(Run(begun_s, ended_s, self._tokens) for begun_s, ended_s in zip(marks, marks[1:]))

    def check(self) -> None:
        if self._process is None or self._process.code is not None:
            raise self._ended()

    def is_quiet(self) -> bool:
        """Nobody else had the card when it began, and a bench serves nobody."""
        return True

    def end(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def _launch(self, tokens: int) -> None:
        self._tokens = tokens
        amount = ["-p", str(tokens), "-n", "0"] if self._phase == knee.PREFILL else ["-p", "0", "-n", str(tokens)]
        work = ["-m", self._order.model, *amount, "-r", str(_REPETITIONS), "--progress", *self._order.options]
        argv = [*_as_account(self._machine, self._order.account), self._machine.path(self._order.program), *work]
        try:
            self._process = self._start(argv, beside.environment(self._order.environment), self._machine.monotonic_s, _is_run)
        except OSError as error:
            raise errors.Problem("tune-load", f"llama-bench could not be started: {error.strerror or error}", hint=_BY_HAND) from error

    def _first_run(self, tell: Tell) -> float:
        """Seconds of the first run; while it still lasts, no more than can be told by now."""
        begun_s = self._machine.monotonic_s()
        while True:
            self.check()
            marks, now_s = self._marks(), self._machine.monotonic_s()
            if len(marks) > 1:
                return marks[1] - marks[0]
            if marks and now_s - marks[0] > 4 * _LONGEST_RUN_S:
                return now_s - marks[0]
            if now_s - begun_s > _LOAD_LIMIT_S:
                raise errors.Problem("tune-load", f"llama-bench had loaded no model after {_LOAD_LIMIT_S:.0f} s", hint=_BY_HAND)
            tell(f"loading the model for {self._phase}")
            self._machine.wait(_PAUSE_S)

    def _marks(self) -> List[float]:
        """When each run began; the warm-up is none. What it said before the phase's own runs does not count."""
        lines = self._process.lines if self._process is not None else ()
        return [at_s for at_s, line in lines for found in [_RUN.search(line)] if found is not None and not found.group(1)]

    def _ended(self) -> errors.Problem:
        words, code = (self._process.words, self._process.code) if self._process is not None else ("", None)
        lines = [line for line in words.splitlines() if line.strip()]
        told = next((line for line in lines if _ERROR.search(line)), lines[-1] if lines else "it said nothing")
        return errors.Problem("tune-load", f"llama-bench ended by itself (exit status {code}): {told[:300]}", hint=_BY_HAND)


_BY_HAND = "run it by hand on the node: /opt/wattherd/current/bin/llama-bench -m MODEL -p 512 -n 64; a model that is too big says so there"


def _is_run(line: str) -> bool:
    return _RUN.search(line) is not None


def _as_account(machine: machines.Machine, account: str) -> Sequence[str]:
    """The servers' own account, with its groups: what it may read and reach is what a server may."""
    if os.geteuid() != 0 or not account:
        return ()
    try:
        user, group = machine.owner_ids(account, account)
    except errors.Problem:
        return ()
    return ("setpriv", f"--reuid={user}", f"--regid={group}", "--init-groups", "--no-new-privs", "--")
