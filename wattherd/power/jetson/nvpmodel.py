"""nvpmodel: which power mode a board is in, and putting it into another. Its words count: the exit code is 0 for a refusal too.

It may ask whether to reboot now. Nobody answers: stdin is empty, which cancels the change and leaves nothing pending.
"""

from __future__ import annotations

import re
from typing import List, Optional, Tuple

from wattherd import machine as machines
from wattherd.power.jetson import conf, tools, verdict
from wattherd.records import dataclass

#: `pmode:0002`, or `pmode:0002 fmode:quiet`: what nvpmodel.service sets while the board boots.
STATUS = "/var/lib/nvpmodel/status"
_SET_LIMIT_S = 60.0
_MODE = re.compile(r"NV Power Mode\s*:\s*(\S*)\s*\Z")
_PENDING = re.compile(r"pmode:\s*(\d+)")
_AS_ROOT = "run as root for the full read-out of the mode"
#: The GPU's clock may lie this much over a cap: the driver rounds to its own table.
_SLACK = 1.02


@dataclass(frozen=True)
class Current:
    """The mode as nvpmodel names it; None and "" while none is set. `notes` are no failures.

    `fan` is the fan's mode, on boards where nvpmodel has them (`fans`); empty there while none is set.
    """

    name: str = ""
    number: Optional[int] = None
    fan: str = ""
    fans: bool = False
    notes: Tuple[str, ...] = ()
    fault: str = ""


def query(machine: machines.Machine) -> Current:
    """Ask nvpmodel. Where it is missing or says nothing useful, `fault` says so and its status file is asked instead."""
    if not tools.has(machine, "nvpmodel"):
        return Current(fault="nvpmodel is not installed")
    answer = tools.run(machine, ["nvpmodel", "-q"])
    found = parse(answer.text + "\n" + answer.err.decode("utf-8", "replace"))
    if found.number is not None:
        return found
    number = status(machine)
    mode = conf.read(machine).numbered(number)
    if mode is not None:
        return Current(
            mode.name, mode.number, found.fan, found.fans, (*found.notes, f"nvpmodel did not name the mode; it is from {STATUS}")
        )
    late = f"nvpmodel gave no answer within {tools.QUERY_LIMIT_S:.0f} s" if answer.code == 124 else "no power mode is set"
    return Current(fan=found.fan, fans=found.fans, notes=found.notes, fault=late)


def parse(text: str) -> Current:
    """`nvpmodel -q` of any release: the mode's line anywhere, its number in the next line that is a number, warnings around both."""
    name, number, fan = "", None, ""
    waiting, fans = False, False
    notes: List[str] = []
    for line in text.splitlines():
        bare = line.strip()
        mode = _MODE.search(bare)
        if mode is not None:
            name, waiting = mode.group(1), True
        elif waiting and re.match(r"\d{1,4}\Z", bare):
            number, waiting = int(bare), False
        elif re.match(r"(?i)(NVPM WARN: fan mode is not set|NV Fan Mode\s*:)", bare):
            fans = True
            fan = fan if bare.startswith("NVPM") else bare.partition(":")[2].strip()
        elif re.match(r"NVPM ERROR: Error opening .*: 13\Z", bare) and _AS_ROOT not in notes:
            notes.append(_AS_ROOT)
    if not name or number is None:
        name, number = "", None
    return Current(name, number, fan, fans, tuple(notes))


def status(machine: machines.Machine) -> Optional[int]:
    """The number in nvpmodel's status file: cheap, and what the next boot will set."""
    found = _PENDING.search(tools.text(machine, STATUS))
    return int(found.group(1)) if found else None


def schedule(machine: machines.Machine, number: int) -> None:
    """Let the next boot set this mode: its number goes into the status file, and what else stands there stays (the fan's mode)."""
    before = tools.text(machine, STATUS)
    wanted = f"pmode:{number:04d}"
    machine.make_dirs(STATUS.rpartition("/")[0])
    machine.write(STATUS, (_PENDING.sub(wanted, before, count=1) if _PENDING.search(before) else wanted).encode() + b"\n")


def loose(machine: machines.Machine, modes: conf.Conf, mode: conf.Mode) -> str:
    """In words, where the GPU may run faster than the mode allows: nvpmodel names a mode that its service failed to set at boot.

    By the file's own cap for the GPU and the place that the same file gives for it; empty where it does not tell.
    """
    cap = mode.values.get(("GPU", "MAX_FREQ"), "")
    path = modes.paths.get(("GPU", "MAX_FREQ"), "")
    now = tools.number(machine, path) if path else None
    if now is None or not re.match(r"\d{6,12}\Z", cap) or now <= int(cap) * _SLACK:
        return ""
    return f"nvpmodel names {mode.name}, but the GPU may run at {now // 1_000_000} MHz where that mode allows {int(cap) // 1_000_000} MHz"


def switch(machine: machines.Machine, mode: conf.Mode) -> verdict.Verdict:
    """Put the board into `mode` and read it back: what nvpmodel claims is not enough, and what it refuses may have been done."""
    said = classify(tools.run(machine, ["nvpmodel", "-m", str(mode.number)], limit_s=_SET_LIMIT_S), mode)
    if said.kind == "unsupported":
        return said  # in a container its status file changes, and with it what -q says, but not one clock
    now = query(machine)
    if now.number == mode.number:
        return verdict.DONE
    if said.done:
        return verdict.Verdict("failed", f"nvpmodel took {mode.name} without a word, but still names {now.name or 'no mode'}")
    return said


def classify(answer: machines.Result, mode: conf.Mode) -> verdict.Verdict:
    """nvpmodel's own words about a change, by what an operator can do about them."""
    words = answer.words
    if answer.code == 124:
        return verdict.Verdict("silent", f"nvpmodel gave no answer within {_SET_LIMIT_S:.0f} s")
    kinds = (
        ("unsupported", "Running in chroot", "nvpmodel changes nothing from inside a container or a chroot"),
        ("reboot", "Reboot required", f"{mode.name} can be set only while the board boots; not applied, nothing pending"),
        ("busy", r"Error writing .*: 16\b|resource busy", f"the GPU is in use, so {mode.name} cannot be set now: {_first(words)}"),
        ("no-permission", r"(?i): 13\b|permission denied|as root|root user", f"nvpmodel needs root: {_first(words)}"),
        ("failed", "NVPM ERROR", f"nvpmodel did not set {mode.name}: {_first(words)}"),
    )
    found = next((verdict.Verdict(kind, told) for kind, pattern, told in kinds if re.search(pattern, words)), verdict.DONE)
    if found.done and answer.code != 0:
        return verdict.Verdict("failed", f"nvpmodel did not set {mode.name}: {_first(words) or f'exit status {answer.code}'}")
    return found


def _first(words: str) -> str:
    """The first error names a place and a reason; the last one only says that nothing was done."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return next((line for line in lines if "ERROR" in line), (lines or [""])[-1])[:200]
