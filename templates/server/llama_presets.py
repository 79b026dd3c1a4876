"""Takes a router's preset file into use, without touching a model whose section did not change.

Waits until what will be unloaded is idle, asks the router to read the file again, and sees that the models that start with it, and those
that were loaded before, are loaded. Ends with status 1 and one line when one does not, or is still busy after --drain-s: then nothing
was unloaded.
"""

from __future__ import annotations

import argparse
import configparser
import os
import re
import subprocess
import sys
import time
from typing import Callable, Dict, Optional, Set, Tuple

import llama_door

PAUSE_S = 0.5
WORDS_TRIES = 6
#: The same file as the router read last; what differs from it is what it will unload.
APPLIED = "applied.ini"
BUSY = re.compile(r"^llamacpp:requests_(?:processing|deferred) (\S+)$", re.MULTILINE)
ERROR = re.compile(r"(?:^|\s)E\s+(.*)|^(?:\[\d+\] )?(error:.*)")
ON = {"1", "true", "on", "enabled"}
IDLE = {"0", "0.0"}


Sections = Dict[str, Dict[str, str]]


class Failed(Exception):  # noqa: N818 - what is said, and the end
    """One line for whoever deploys."""


def sections(text: str) -> Sections:
    """Model -> its keys. The file is Wattherd's own, so it has one section for each model and nothing above the first."""
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#", ";"))
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys as they are written
    parser.read_string(text)
    return {name: dict(parser[name]) for name in parser.sections()}


def changed(before: Sections, after: Sections) -> Set[str]:
    """Sections that are gone or differ: the router unloads those, and only those."""
    return {name for name in before if before[name] != after.get(name)}


def started_with(after: Sections) -> Set[str]:
    return {name for name, keys in after.items() if keys.get("load-on-startup", "").lower() in ON}


class Router:
    def __init__(
        self,
        door: llama_door.Door,
        unit: str,
        limit_s: float,
        clock_s: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.door = door
        self.unit = unit
        self._clock_s = clock_s
        self._pause = pause
        self._end_s = clock_s() + limit_s

    def states(self) -> Optional[Dict[str, Tuple[str, Optional[int]]]]:
        status, text = self.door.get("/models")
        return llama_door.models(text) if status == 200 else None

    def await_answer(self) -> None:
        while self.states() is None:
            self._wait(f"error: the router does not answer; journalctl -u {self.unit} tells more")

    def await_idle(self, names: Set[str], limit_s: float) -> None:
        """Until none of the models has a request in progress."""
        end_s = self._clock_s() + limit_s
        while names:
            states = self.states()
            loaded = {name for name in names if states is None or states.get(name, ("", None))[0] in {"loaded", "sleeping"}}
            busy = sorted(name for name in loaded if not self._is_idle(name))
            if not busy:
                return
            if self._clock_s() >= end_s:
                words = f"error: still busy after {limit_s:.0f} s, so nothing was unloaded: {', '.join(busy)}"
                raise Failed(f"{words}; deploy again when it is quieter, or give it longer (drain_s)")
            self._pause(PAUSE_S)

    def _is_idle(self, name: str) -> bool:
        """Only what says so itself: one that does not answer may well be at work."""
        status, text = self.door.get("/metrics", model=name, autoload="false")
        if status == llama_door.AWAY:
            return True
        figures = BUSY.findall(text) if status == 200 else []
        return bool(figures) and all(value in IDLE for value in figures)

    def reload(self) -> None:
        status, text = self.door.get("/models", reload="1")
        if status != 200:
            raise Failed(f"error: the router refused the presets (HTTP status {status}): {text[:300]}")

    def await_loaded(self, names: Set[str]) -> None:
        """Ask for each that is not loaded, once, and wait. A call to load says success also when it is going to fail."""
        asked: Set[str] = set()
        since_s = time.time()
        while True:
            states = self.states() or {}
            waiting = {name for name in names if states.get(name, ("unloaded", None))[0] not in {"loaded", "sleeping"}}
            if not waiting:
                return
            for name in sorted(waiting):
                state, failed = states.get(name, ("unloaded", None))
                if failed is not None and name in asked and state == "unloaded":
                    raise Failed(f"error: the model {name} does not load (exit status {failed}): {self._why(since_s)}")
                if state == "unloaded" and name not in asked:
                    self.door.post("/models/load", model=name)
                    asked.add(name)
            self._wait(f"error: not loaded in time: {', '.join(sorted(waiting))}")

    def _why(self, since_s: float) -> str:
        """The first error line of the children, which write into the router's journal; it may come a moment after the state."""
        argv = ["journalctl", "--no-pager", "--quiet", "-o", "cat", "-u", self.unit, "--since", f"@{int(since_s)}"]
        for _ in range(WORDS_TRIES):
            try:
                done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20, check=False)
            except (OSError, subprocess.TimeoutExpired):
                break
            found = next((match for match in map(ERROR.search, done.stdout.decode("utf-8", "replace").splitlines()) if match), None)
            if found:
                return (found.group(1) or found.group(2)).strip()[:300]
            self._pause(PAUSE_S)
        return f"journalctl -u {self.unit} tells more"

    def _wait(self, words: str) -> None:
        if self._clock_s() >= self._end_s:
            raise Failed(words)
        self._pause(PAUSE_S)


def apply(router: Router, after_text: str, before_text: str, drain_s: float) -> None:
    before, after = sections(before_text), sections(after_text)
    router.await_answer()
    loaded = {name for name, (state, _) in (router.states() or {}).items() if state in {"loaded", "loading"}}
    # After a reboot nobody knows what the router read last (the record lay in /run): then it may be any of them.
    leaving = changed(before, after) if before else set(loaded)
    router.await_idle(leaving, drain_s)
    router.reload()
    router.await_loaded((started_with(after) | loaded & leaving) & set(after))


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--unit", "--at", "--presets"):
        parser.add_argument(name, required=True)
    parser.add_argument("--drain-s", type=float, required=True)
    parser.add_argument("--limit-s", type=float, required=True)
    given = parser.parse_args()
    kept = os.path.join(os.environ["RUNTIME_DIRECTORY"].split(":")[0], APPLIED)
    with open(given.presets, encoding="utf-8") as stream:
        after = stream.read()
    before = ""
    if os.path.exists(kept):
        with open(kept, encoding="utf-8") as stream:
            before = stream.read()
    try:
        apply(Router(llama_door.Door(given.at, timeout_s=30.0), given.unit, given.limit_s + given.drain_s), after, before, given.drain_s)
    except Failed as problem:
        sys.exit(str(problem))
    with open(f"{kept}.new", "w", encoding="utf-8") as stream:
        stream.write(after)
    os.replace(f"{kept}.new", kept)


if __name__ == "__main__":
    main()
