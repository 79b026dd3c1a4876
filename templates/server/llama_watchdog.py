"""Ends a llama-server that hangs, so that systemd starts it anew; a router's hung model is loaded anew and the others go on.

Hangs means: requests are in progress and no token advances for --stall-s, or it is there and does not answer for as long. It runs
under the server's own account and reads only what wakes no model: /metrics, /health and a router's /models.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import signal
import sys
import time
from typing import Callable, Dict, Optional, Set, Tuple

import llama_door

#: Counters that move while a server works. Those of whole requests move at their end; the decode counter with every batch.
COUNTERS = ("n_decode_total", "prompt_tokens_total", "tokens_predicted_total")
BUSY = ("requests_processing", "requests_deferred")
#: llama-server prints six significant digits, so a high counter stands still for a while though work goes on.
DIGITS = 6
#: Steps up to this many batches go by within any stall limit.
FINE_STEP = 100
ROW = re.compile(r"^llamacpp:(\w+)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


def read_metrics(text: str) -> Optional[Tuple[float, Tuple[float, ...], float]]:
    """(requests in progress, counters, how coarse the decode counter is). None when this is no llama-server's text."""
    found = {}
    for name, value in ROW.findall(text):
        try:
            found[name] = float(value)
        except ValueError:
            return None
    if not set(BUSY) | set(COUNTERS) <= set(found):
        return None
    return sum(found[name] for name in BUSY), tuple(found[name] for name in COUNTERS), step(found[COUNTERS[0]])


def step(value: float) -> float:
    """The smallest change that shows in a printed counter."""
    return 10.0 ** max(0, math.floor(math.log10(value)) + 1 - DIGITS) if value >= 1 else 1.0


class Pulse:
    """What was seen of one process. `see` gives words once it hangs."""

    def __init__(self, stall_s: float) -> None:
        self.stall_s = stall_s
        self._counters: Optional[Tuple[float, ...]] = None
        self._since_s: Optional[float] = None

    def see(self, now_s: float, status: int, text: str) -> str:
        """One look: the answer to /metrics. Away, loading and sleeping servers do not hang; they are systemd's or nobody's business."""
        if status == llama_door.SILENT:
            return self._still(now_s, self.stall_s, "does not answer")
        reading = read_metrics(text) if status == 200 else None
        if reading is None:
            self.reset()
            return ""
        busy, counters, coarse = reading
        if not busy or counters != self._counters:
            self.reset()
            self._counters = counters
            self._since_s = now_s
            return ""
        return self._still(now_s, self.stall_s * max(1.0, coarse / FINE_STEP), f"has {busy:.0f} in progress and advances no token")

    def reset(self) -> None:
        self._counters, self._since_s = None, None

    def _still(self, now_s: float, limit_s: float, words: str) -> str:
        if self._since_s is None:
            self._since_s = now_s
        lasted_s = now_s - self._since_s
        return f"{words}, for {lasted_s:.0f} s" if lasted_s >= limit_s else ""


class Watch:
    """One unit: a server of one model, or a router with a process for each."""

    def __init__(
        self,
        unit: str,
        door: llama_door.Door,
        stall_s: float,
        *,
        router: bool,
        clock_s: Callable[[], float] = time.monotonic,
        end: Optional[Callable[[str], None]] = None,
        say: Optional[Callable[[str], None]] = None,
    ) -> None:
        self.unit = unit
        self.door = door
        self.stall_s = stall_s
        self.router = router
        self._clock_s = clock_s
        self._end = end or end_unit
        self._say = say or tell
        self._pulses: Dict[str, Pulse] = {}

    def look(self) -> None:
        status, text = self.door.get("/models" if self.router else "/metrics")
        if not self.router and status not in {200, llama_door.SILENT, llama_door.AWAY, 503}:
            # Without --metrics there is nothing to count: then only whether it answers at all.
            status, text = self.door.get("/health")
        words = self._pulse("").see(self._clock_s(), status, text)
        if words:
            self._say(f"{self.unit} {words}: ending it, systemd starts it anew")
            self._end(self.unit)
            self._pulses.clear()
        elif self.router and status == 200:
            self._look_inside({name for name, (state, _) in llama_door.models(text).items() if state == "loaded"})

    def _look_inside(self, loaded: Set[str]) -> None:
        self._pulses = {name: pulse for name, pulse in self._pulses.items() if name in loaded or not name}
        for name in sorted(loaded):
            status, text = self.door.get("/metrics", model=name, autoload="false")
            words = self._pulse(name).see(self._clock_s(), status, text)
            if words:
                self._say(f"{self.unit}: its model {name} {words}: loading it anew")
                self._pulses.pop(name)
                self.door.post("/models/unload", model=name)
                self._await_gone(name)
                self.door.post("/models/load", model=name)

    def _await_gone(self, name: str) -> None:
        """There is no state for "on its way out": it reads as loaded until its process is gone."""
        limit_s = self._clock_s() + self.stall_s
        while self._clock_s() < limit_s:
            status, text = self.door.get("/models")
            if status != 200 or llama_door.models(text).get(name, ("unloaded", None))[0] == "unloaded":
                return
            time.sleep(0.5)

    def _pulse(self, name: str) -> Pulse:
        return self._pulses.setdefault(name, Pulse(self.stall_s))


def end_unit(unit: str, proc: str = "/proc") -> None:
    """SIGKILL to every process of the unit: one that is stopped or stuck hears nothing milder. This account can end only its own."""
    for name in os.listdir(proc):
        if name.isdigit() and name != str(os.getpid()) and belongs(unit, f"{proc}/{name}/cgroup"):
            try:
                os.kill(int(name), signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue


def belongs(unit: str, path: str) -> bool:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return any(line.rstrip("\n").endswith(f"/{unit}") for line in stream)
    except OSError:
        return False


def tell(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--unit", required=True)
    parser.add_argument("--at", required=True)
    parser.add_argument("--stall-s", type=float, required=True)
    parser.add_argument("--interval-s", type=float, required=True)
    parser.add_argument("--router", action="store_true")
    given = parser.parse_args()
    # /metrics waits for the batch that is being computed, which may take long on a slow machine.
    door = llama_door.Door(given.at, timeout_s=max(10.0, given.stall_s / 3))
    watch = Watch(given.unit, door, given.stall_s, router=given.router)
    while True:
        watch.look()
        time.sleep(given.interval_s)


if __name__ == "__main__":
    main()
