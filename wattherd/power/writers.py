"""Who else sets the cards of this node: processes, units, timers and cron entries that could, by what they are called and what they run.

Suspects, never proof: the driver does not say who asked. What is found is data from the node: bounded, and shown as one plain line.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from typing import Dict, Iterator, List, Optional, Tuple

from wattherd import machine as machines
from wattherd.power import holders
from wattherd.records import dataclass
from wattherd.wire import finding

#: Programs that set limits, clocks or states by themselves, as field reports name them.
KNOWN = ("nvidia-powerd", "lact", "lactd", "gpud", "tuned", "nvidia-pstated", "gppm", "gppmd", "tlp", "nvidia_oc", "tuxclocker-nvidia")
_KNOWN = re.compile(r"(?:^|[/\s@=-])(" + "|".join(re.escape(name) for name in KNOWN) + r")(?=$|[\s.@])")
#: A call of nvidia-smi that writes.
_WRITES = re.compile(
    r"nvidia-smi\b[^\n;|&]*?\s(?:-pl|--power-limit|-lgc|--lock-gpu-clocks|-lmc|--lock-memory-clocks|-rgc|-rmc|-pm|--persistence-mode|-gtt|-ac|-r\b|--gpu-reset)"
)
_SETTER = re.compile(r"(?:^|[\s'\"])(?:-pl|--power-limit)[\s=]")
_TOOL = re.compile(r"nvidia-smi|nvmlDeviceSet|nvidia_smi")
_UNIT_FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
_CRON = ("/etc/crontab", "/etc/cron.d", "/etc/cron.hourly", "/etc/cron.daily", "/var/spool/cron/crontabs", "/var/spool/cron")
_LOCAL = ("/etc/rc.local", "/etc/rc.d/rc.local")
_FILE_LIMIT_BYTES = 128 * 1024
_FILES_LIMIT = 2000
_PROCESSES_LIMIT = 4000
_FOUND_LIMIT = 8
_OURS = re.compile(r"wattherd")


@dataclass(frozen=True)
class Writer:
    """`name` is what a person can stop: a unit, a process, a file. `how` is what gave it away; `lives`: it runs, or will by itself.

    `sure` is one that is known to write or is written to do so; the others merely have NVIDIA's library loaded.
    """

    name: str
    how: str
    lives: bool = True
    sure: bool = True


def find(machine: machines.Machine) -> Tuple[Writer, ...]:
    """Suspects, the likeliest first. Reads /proc, units and cron; bounded, and only worth it when something has changed."""
    found: Dict[str, Writer] = {}
    for one in (*_processes(machine), *_scheduled(machine), *_units(machine)):
        known = found.get(one.name)
        if known is None or (one.sure, one.lives) > (known.sure, known.lives):
            found[one.name] = one
    sure = [one for one in found.values() if one.sure]
    # A monitor that only has the library loaded is worth a word where nothing better is known.
    return tuple(sorted(sure or found.values(), key=lambda one: not one.lives)[:_FOUND_LIMIT])


# -- processes


def _processes(machine: machines.Machine) -> Iterator[Writer]:
    mine = {os.getpid(), os.getppid()}
    for name in machine.names("/proc")[:_PROCESSES_LIMIT]:
        if name.isdigit() and int(name) not in mine:
            with contextlib.suppress(OSError):
                one = _process(machine, int(name))
                if one is not None:
                    yield one


def _process(machine: machines.Machine, pid: int) -> Optional[Writer]:
    words = [part.decode("utf-8", "replace") for part in (machine.read(f"/proc/{pid}/cmdline") or b"").split(b"\0") if part]
    line = " ".join(words)
    unit = holders.service_of(machine.text(f"/proc/{pid}/cgroup"))
    if not words or _OURS.search(line) or _OURS.search(unit):
        return None
    program = posixpath.basename(words[0])
    name = unit or f"process {pid} ({program})"
    known = _KNOWN.search(program) or _KNOWN.search(unit)
    if known:
        return Writer(_plain(name), _plain(f"{known.group(1)} sets cards by itself (process {pid})"))
    if _WRITES.search(line) or ("nvidia-smi" in line and _SETTER.search(line)):
        return Writer(_plain(name), _plain(f"process {pid} runs: {_call(line)}"))
    for path in _scripts(machine, pid, words):
        if _is_setter(machine, path):
            return Writer(_plain(name), _plain(f"process {pid} runs {path}, which calls nvidia-smi to set something"))
    if "libnvidia-ml.so" in machine.text(f"/proc/{pid}/maps"):
        return Writer(_plain(name), _plain(f"process {pid} ({program}) has NVIDIA's management library loaded"), sure=False)
    return None


def _call(line: str) -> str:
    """The call that sets something, and nothing else of the command: what stands beside it is nobody's business, and may be a password."""
    calls = [one.strip() for one in re.findall(r"nvidia-smi[^;|&]*", line)]
    return next((one for one in calls if _WRITES.search(one) or _SETTER.search(one)), calls[0] if calls else "nvidia-smi")


def _scripts(machine: machines.Machine, pid: int, words: List[str]) -> List[str]:
    """Files that it names: what an interpreter runs, by its whole path or from where the process is."""
    folder = machine.readlink(f"/proc/{pid}/cwd") or "/"
    return [
        word if word.startswith("/") else posixpath.join(folder, word) for word in words[:4] if not word.startswith("-") and len(word) < 400
    ]


# -- what will run


def _scheduled(machine: machines.Machine) -> Iterator[Writer]:
    for place in (*_CRON, *_LOCAL):
        for path in _files(machine, place):
            if _is_setter(machine, path):
                yield Writer(_plain(path), "it calls nvidia-smi to set something")


def _units(machine: machines.Machine) -> Iterator[Writer]:
    """Units whose file, or the script that it starts, sets cards. A timer of the same name is what makes them come back."""
    seen = set()
    for folder in _UNIT_FOLDERS:
        for name in machine.names(folder)[:_FILES_LIMIT]:
            if not name.endswith(".service") or name in seen or _OURS.search(name):
                continue
            seen.add(name)
            text = _text(machine, f"{folder}/{name}")
            script = next((path for path in re.findall(r"(?<=[=\s@-])/\S+", text) if _is_setter(machine, path)), "")
            if _WRITES.search(text) or script:
                timed = any(machine.exists(f"{one}/{name[:-8]}.timer") for one in _UNIT_FOLDERS)
                how = f"{folder}/{name} " + (f"starts {script}, which sets cards" if script else "calls nvidia-smi to set something")
                yield Writer(_plain(name), _plain(how + (" (with a timer)" if timed else "")), lives=timed)


def _files(machine: machines.Machine, place: str) -> List[str]:
    if machine.is_dir(place):
        return [f"{place}/{name}" for name in machine.names(place)[:_FILES_LIMIT]]
    return [place]


def _is_setter(machine: machines.Machine, path: str) -> bool:
    text = _text(machine, path)
    return bool(_TOOL.search(text)) and bool(_WRITES.search(text) or _SETTER.search(text) or "nvmlDeviceSet" in text)


def _text(machine: machines.Machine, path: str) -> str:
    """A small text file; empty for anything else (a program, a device, a folder)."""
    with contextlib.suppress(OSError):
        real = machine.path(path)
        if os.path.isfile(real) and os.path.getsize(real) <= _FILE_LIMIT_BYTES:
            body = machine.read(path) or b""
            return "" if b"\0" in body else body.decode("utf-8", "replace")
    return ""


def _plain(words: str) -> str:
    return finding.plain_line(words, 160)
