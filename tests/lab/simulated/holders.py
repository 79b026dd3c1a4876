"""Which processes of a node hold its cards, as CUDA would have it: every llama.cpp program that has loaded a model, and others that a test
registered. Read from /proc of this machine; nothing runs in the node for it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PROC = Path("/proc")
_PROGRAMS = (b"llama-server", b"llama-bench")
#: A new process still becomes another program for this long (fork, then exec).
_SETTLING_S = 3.0
#: Without a mapped model (--no-mmap), this much memory of its own says that one was loaded.
_LOADED_BYTES = 64 << 20
_TICKS_S = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: Half a core, of those that it may use, is a busy server: several nodes share this machine's processors.
_BUSY_FROM = 0.5


@dataclass
class Process:
    """One llama.cpp program. `pid` as this machine counts, `inside` as the node does; `cards` None is all of them."""

    pid: int
    inside: int
    device: int
    name: str
    threads: int
    cards: tuple[str, ...] | None
    loaded: bool = False
    memory: int = 0
    busy: float = 0.0
    allowed: float = 1.0
    _ticks: int = -1
    _at: float = 0.0

    def read(self, now: float) -> bool:
        """Its memory and how busy it was since the last time; False once it is gone."""
        try:
            fields = (_PROC / str(self.pid) / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return False
        if fields[0] in b"ZX":
            return False
        ticks, self.memory = int(fields[11]) + int(fields[12]), int(fields[21]) * _PAGE
        if self._ticks >= 0 and now > self._at:
            cores = (ticks - self._ticks) / _TICKS_S / (now - self._at)
            self.busy = _follow(self.busy, min(1.0, cores / (_BUSY_FROM * min(1.0, self.allowed))), now - self._at)
        self._ticks, self._at = ticks, now
        if not self.loaded:
            self.loaded = self.memory > _LOADED_BYTES and (self._maps_model() or self.memory > 2 * _LOADED_BYTES)
        return True

    def _maps_model(self) -> bool:
        with contextlib.suppress(OSError):
            return b".gguf" in (_PROC / str(self.pid) / "maps").read_bytes()
        return False


@dataclass
class Watch:
    """All llama.cpp programs of this machine, told apart by the file system that they live in."""

    known: dict[int, Process] = field(default_factory=dict)
    _seen: dict[int, float] = field(default_factory=dict)

    def look(self, now: float) -> None:
        """New ones in, those that ended out, and each one's figures anew."""
        pids = {int(name) for name in os.listdir(_PROC) if name.isdigit()}  # noqa: PTH208 - names are all that is needed, five times a second
        self._seen = {pid: since for pid, since in self._seen.items() if pid in pids}
        for pid in pids:
            since = self._seen.setdefault(pid, now)
            if now - since <= _SETTLING_S and pid not in self.known:
                process = _recognise(pid)
                if process:
                    self.known[pid] = process
        for pid, process in list(self.known.items()):
            if not process.read(now):
                del self.known[pid]
                self._seen.pop(pid, None)

    def of(self, device: int) -> tuple[Process, ...]:
        """Those that hold cards in the node whose root file system is this device."""
        return tuple(process for process in self.known.values() if process.device == device and process.loaded)


@dataclass(frozen=True)
class Registered:
    """Another user's process that holds cards: it computes nothing."""

    inside: int
    name: str
    cards: tuple[int, ...]
    memory: int


def registered(root: Path, leader: int) -> tuple[Registered, ...]:
    """The holders that a test registered and that still run."""
    rows = _rows(root)
    if not rows:
        return ()
    alive = _inside(leader, {row["pid"] for row in rows})
    return tuple(
        Registered(row["pid"], row["name"], tuple(row["cards"]), int(row["memory_mib"]) << 20) for row in rows if row["pid"] in alive
    )


def register(root: Path, pid: int, name: str, cards: Sequence[int], memory_mib: int) -> None:
    rows = [*_rows(root), {"pid": pid, "name": name, "cards": list(cards), "memory_mib": memory_mib}]
    _path(root).write_text(json.dumps(rows))


def forget(root: Path, pid: int) -> None:
    _path(root).write_text(json.dumps([row for row in _rows(root) if row["pid"] != pid]))


def host_pid(leader: int, inside: int) -> int | None:
    """A process of a node as this machine counts it."""
    return _inside(leader, {inside}).get(inside)


def _inside(leader: int, wanted: set[int]) -> Mapping[int, int]:
    """Of the node's processes with these numbers, the numbers that they have here."""
    with contextlib.suppress(OSError):
        space = str(Path(f"/proc/{leader}/ns/pid").readlink())
        return {inside: pid for pid, inside in _members(space) if inside in wanted}
    return {}


def _members(space: str) -> Iterator[tuple[int, int]]:
    for name in os.listdir(_PROC):  # noqa: PTH208
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{name}/ns/pid") == space:  # noqa: PTH115 - for every process of the machine
                    yield int(name), _number_inside(int(name))


def _number_inside(pid: int) -> int:
    for line in (_PROC / str(pid) / "status").read_text(errors="replace").splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return pid


def _recognise(pid: int) -> Process | None:
    """A llama.cpp program by the name of its file, or None. One that ends meanwhile is none."""
    folder = _PROC / str(pid)
    try:
        words = (folder / "cmdline").read_bytes().split(b"\0")
        if not words[0].endswith(_PROGRAMS):
            return None
        pairs = (line.partition(b"=") for line in (folder / "environ").read_bytes().split(b"\0"))
        environment = {key: value for key, _, value in pairs}
        device = (folder / "root").stat().st_dev
        inside = _number_inside(pid)
    except OSError:
        return None
    shown = environment.get(b"CUDA_VISIBLE_DEVICES")
    cards = None if shown is None else tuple(part for part in shown.decode(errors="replace").replace(" ", "").split(",") if part)
    return Process(pid, inside, device, words[0].decode(errors="replace"), _threads(words), cards)


def _threads(words: Sequence[bytes]) -> int:
    most = os.cpu_count() or 1
    for flag, value in itertools.pairwise(words):
        if flag in {b"-t", b"--threads"} and value.isdigit() and int(value) > 0:
            return min(most, int(value))
    return most


def chosen(process: Process, uuids: Sequence[str]) -> tuple[int, ...]:
    """The indices of the cards that it holds: CUDA takes the list until the first entry that it does not know."""
    if process.cards is None:
        return tuple(range(len(uuids)))
    found: list[int] = []
    for wanted in process.cards:
        by_uuid = wanted.startswith("GPU-")
        matching = [index for index, uuid in enumerate(uuids) if wanted == str(index) or (by_uuid and uuid.startswith(wanted))]
        if len(matching) != 1:
            break
        found.append(matching[0])
    return tuple(dict.fromkeys(found))


def _follow(value: float, target: float, seconds: float) -> float:
    """Smoothed over half a second, as a driver's own utilisation is."""
    return value + (target - value) * min(1.0, seconds / 0.5)


def _rows(root: Path) -> list[dict[str, Any]]:
    with contextlib.suppress(OSError, ValueError):
        return list(json.loads(_path(root).read_text()))
    return []


def _path(root: Path) -> Path:
    return root / "var/lib/lab-gpu/held.json"
