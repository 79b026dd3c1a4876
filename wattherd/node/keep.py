"""The keeper: the node's root resident. Every few seconds it compares cards and board with the policy file and puts right what differs.

By the level, not by events: what it missed it sees at the next look. Everything that it must not lose lies in files, so it may be killed at
any instant. It reads cards through a child process only, and nothing at all while there is no policy.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import Dict, Optional

from wattherd import errors, records
from wattherd import machine as machines
from wattherd.node import holding, putting_back, turn
from wattherd.power import drift, empty, pending, reading, tuning_record, wanted
from wattherd.power import look as looking
from wattherd.wire import finding

INTERVAL_S = 20.0
#: For tests: seconds between two looks.
INTERVAL = "WATTHERD_KEEPER_INTERVAL_S"
#: While a session is at work: it goes first, and is mostly short.
_BUSY_S = 5.0
_PATIENCE_S = 600.0
#: So many rounds in a row that could write nothing, and it starts anew: systemd gives it its folders once, when it starts.
_SHUT_OUT = 3


class Keeper:
    """`say` gets what a person should read in the journal, each thing once until it changes."""

    def __init__(self, machine: machines.Machine, say: holding.Say, interval_s: float = INTERVAL_S) -> None:
        self.machine = machine
        self.interval_s = interval_s
        self._print = say
        self._last: Dict[str, str] = {}
        self._silences = 0
        self._tries, self._again_s = 0, 0.0
        self._shut_out = 0
        self._memory = holding.Memory()
        self._empty = empty.Watcher()

    def run(self) -> None:
        """For ever. What goes wrong in one round is said, and the next one comes. SystemExit where only another process could go on."""
        notify("READY=1")
        while True:
            try:
                wait_s = self.round()
                self._say("round", "")
                self._shut_out = 0
            except (errors.Problem, OSError) as error:
                self._say("round", f"this round failed: {error}")
                self._leave_where_shut_out(error)
                wait_s = self.interval_s
            except Exception as error:  # noqa: BLE001 - a resident that falls down at every look holds no card and fills the journal
                self._say("round", f"this round failed by a defect of the keeper, please report it: {_defect(error)}")
                wait_s = self.interval_s
            notify("WATCHDOG=1")
            self.machine.wait(wait_s)

    def _leave_where_shut_out(self, error: Exception) -> None:
        """A folder of ours that was deleted and made again is read-only to a unit that had the old one; a policy could never go back."""
        self._shut_out = self._shut_out + 1 if errno.EROFS in (_number(error), _number(error.__cause__)) else 0
        if self._shut_out >= _SHUT_OUT:
            self._print("nothing can be written here: it starts anew, in case its folders were taken away")
            raise SystemExit(1)

    def round(self) -> float:
        """One look and what follows from it; gives the seconds until the next."""
        machine = self.machine
        if machine.exists(tuning_record.RECORD) and self._is_swept():
            return self.interval_s
        waiting = pending.waiting(machine)
        if waiting is not None and _is_due(machine, waiting) and machine.monotonic_s() >= self._again_s:
            return self._put_back()
        if waiting is None or waiting.boot_id != machine.boot_id():
            self._tidy_if_possible()
        text = pending.current(machine)
        policy = self._policy(text)
        if text is None or policy is None:
            if text is None:
                self._rest()
            return self.interval_s
        look = looking.look(machine)
        if look.fault and look.board is None:
            return self._unanswered(look)
        if self._silences:
            self._print("the cards can be read again")
        self._silences = 0
        self._say("driver", look.fault, look.fault_kind)
        self._empty.see(machine, look)
        return self.interval_s if holding.is_settled(machine, text, policy, look) else self._hold(text, policy)

    def _tidy_if_possible(self) -> None:
        """On a full disk the cards are held all the same, and it is tried again at the next look."""
        fault = ""
        try:
            self._tidy()
        except (errors.Problem, OSError) as error:
            fault = f"what waits to be confirmed cannot be written down: {error}"
        self._say("tidy", fault)

    def _tidy(self) -> None:
        """A record of a policy that is not in force is of a run that was cut off; one of another boot goes on by this one's clock."""
        if self.machine.exists(pending.PLACE):
            with turn.if_free(self.machine) as mine:
                waiting = pending.waiting(self.machine)
                if mine and waiting is None:
                    pending.settle(self.machine)
                elif mine and waiting is not None:
                    pending.carry_over(self.machine, waiting)

    def _rest(self) -> None:
        """Without a policy nothing is drift any more, and nobody is fought."""
        record = drift.load(self.machine)
        if record.policy or any(one.is_open or one.conflict_s for one in record.drifts):
            with turn.if_free(self.machine) as mine:
                if mine and pending.current(self.machine) is None:
                    drift.save(self.machine, records.replace(drift.under(drift.load(self.machine), ""), policy=""))

    def _hold(self, text: str, policy: wanted.Policy) -> float:
        """Under the lock, and by a look that was taken there: what a session has just set is no drift."""
        with turn.if_free(self.machine) as mine:
            if mine and pending.current(self.machine) == text:
                holding.hold(self.machine, text, policy, looking.look(self.machine), self._memory, self._print)
                return self.interval_s
        return min(self.interval_s, _BUSY_S)

    def _is_swept(self) -> bool:
        """A sweep of power limits is at work, and owns its cards. What a dead one left behind is put back first."""
        if tuning_record.live(self.machine):
            return True
        with turn.if_free(self.machine) as mine:
            for words in tuning_record.recover(self.machine) if mine else ():
                self._say(f"sweep {words}", words)
        return False

    def _policy(self, text: Optional[str]) -> Optional[wanted.Policy]:
        policy, fault = None, ""
        if text is not None:
            try:
                policy = wanted.decode(text)
            except errors.Problem as problem:
                fault = f"{wanted.POLICY} cannot be read, so nothing is held: {problem.message}"
        self._say("policy", fault)
        return policy

    def _put_back(self) -> float:
        """The time for a yes is over, or a put-back was cut off. Asked again under the lock: a session may have confirmed just now."""
        machine = self.machine
        with turn.if_free(self.machine) as mine:
            if not mine:
                return min(self.interval_s, _BUSY_S)
            waiting = pending.waiting(machine)
            if waiting is None or not _is_due(machine, waiting):
                return 0.0
            why = waiting.why or f"nobody confirmed it within {waiting.confirm_s} s (the host could not be reached, or the run was cut off)"
            self._say("back", f"the power policy is put back: {why}")
            done = putting_back.put_back(machine, waiting, why, lambda words: self._say("unfinished", words))
        self._tries = 0 if done else self._tries + 1
        # What can be reached is held under the policy that came back; the rest is asked for again, ever more rarely.
        self._again_s = machine.monotonic_s() + (0.0 if done else self._later(self._tries))
        return 0.0

    def _unanswered(self, look: reading.Look) -> float:
        """Said once. The driver is asked ever more rarely: a probe that hangs cannot be killed, and more of them help nobody."""
        hint = f" ({look.fault_hint})" if look.fault_hint else ""
        self._say("driver", f"the cards cannot be read, so nothing is held: {look.fault}{hint}", look.fault_kind)
        self._silences += 1
        return self._later(self._silences)

    def _later(self, times: int) -> float:
        """Seconds to wait after it failed so often in a row."""
        return min(self.interval_s * 2.0 ** min(times - 1, 10), max(_PATIENCE_S, self.interval_s))

    def _say(self, topic: str, words: str, kind: str = "") -> None:
        """Once, until it is something else: other words, or of another `kind` where the words differ each time."""
        told = kind or words
        if words and self._last.get(topic) != told:
            self._print(finding.plain_line(words, 600))
        self._last[topic] = told if words else ""


def _defect(error: Exception) -> str:
    """What it is, and the last place of it that is ours."""
    import traceback

    where = traceback.extract_tb(error.__traceback__)[-1:]
    return f"{type(error).__name__}: {error}" + "".join(f" ({os.path.basename(one.filename)}:{one.lineno})" for one in where)


def _number(error: Optional[BaseException]) -> int:
    return error.errno or 0 if isinstance(error, OSError) else 0


def _is_due(machine: machines.Machine, waiting: pending.Pending) -> bool:
    """Its time is over, or it was on its way back already."""
    return bool(waiting.why) or pending.left_s(machine, waiting) <= 0


def notify(words: str) -> None:
    """Tell systemd, where it asked to be told (sd_notify(3)): one datagram, and no harm when nobody listens."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place:
        return
    import socket

    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.sendto(words.encode(), "\0" + place[1:] if place.startswith("@") else place)


def interval_s(asked: str) -> float:
    """From the environment; what is no sensible number is the usual."""
    with contextlib.suppress(ValueError):
        value = float(asked)
        return min(max(value, 0.5), INTERVAL_S) if value > 0 else INTERVAL_S
    return INTERVAL_S


def main() -> None:
    """What the unit starts."""
    import gc

    gc.collect()
    gc.freeze()
    Keeper(machines.Machine(), _print, interval_s(os.environ.get(INTERVAL, ""))).run()


def _print(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()
