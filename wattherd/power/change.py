"""Write one setting of one card: one nvidia-smi call by UUID, and what its answer means.

The answer is never proof: nvidia-smi ends with 0 and "All done." where nothing was changed, says "Insufficient Permissions" and then does
it, and knows only words for some numbers. Whoever calls reads the card again (wattherd.power.settle). Words and exit codes: field facts on
`-pl`, `-pm`, `-lgc`, `-lmc`; the exit code is NVML's, except that an unsupported setting ends with 0.
"""

from __future__ import annotations

import re
from typing import Dict, List, Optional, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.power import tool
from wattherd.records import dataclass

DONE, UNSUPPORTED, OUT_OF_RANGE, NO_PERMISSION = "done", "unsupported", "out-of-range", "no-permission"
LOST, MISMATCH, SILENT, FAILED = "lost", "mismatch", "silent", "failed"

#: The first that fits a line says what the line means. Refusals stand before successes: a refused write may still say "All done.".
_LINES: Tuple[Tuple[str, str], ...] = (
    (MISMATCH, r"version mismatch"),
    (LOST, r"GPU is lost|fallen off the bus|Unable to determine the device handle.*Unknown Error"),
    (NO_PERMISSION, r"insufficient permission"),
    (OUT_OF_RANGE, r"is not (?:a valid|within)|out of range|not in (?:the )?(?:valid )?range|[Ii]nvalid (?:combination|clock|value)"),
    (UNSUPPORTED, r"not supported\b"),
    (FAILED, r"Unable to |[Ff]ailed to |couldn't|No devices were found|requires reset|Unknown Error"),
    (DONE, r"was set to|clocks set to|[Rr]eset .*clocks|clocks .*reset|persistence mode (?:for|is already)|[Tt]arget.*set to"),
)
#: Of several lines about one card the gravest counts.
_GRAVEST = (MISMATCH, LOST, NO_PERMISSION, OUT_OF_RANGE, UNSUPPORTED, FAILED, DONE)
#: Where no line says anything: NVML's codes (nvmlReturn_t), the shell's for a missing program, and machine's own for one that did not end.
_CODES = {0: DONE, 3: UNSUPPORTED, 4: NO_PERMISSION, 15: LOST, 18: MISMATCH, 124: SILENT}
_BUS = re.compile(r"\b(?:GPU|device):? ([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")
_FILLER = re.compile(r"Treating as warning|All done\.|Terminating early|^\s*$")
_PERSISTENCE = re.compile(r"persistence mode is disabled", re.IGNORECASE)
_RANGE = re.compile(r"between ([0-9.]+) W and ([0-9.]+) W")
_WORDS_LIMIT = 400
#: An answer to one write is a few lines; whatever goes on beyond this is no answer, and is not searched.
_TEXT_LIMIT = 64 * 1024


@dataclass(frozen=True)
class Verdict:
    """What nvidia-smi said of one write. `kind` is one of this module's words, `words` the line that says so.

    `volatile`: it warned that persistence is off, so that the driver forgets the setting when it lets the card go. `least_w` and `most_w`
    are the range that a refusal names, in watts.
    """

    kind: str
    words: str = ""
    volatile: bool = False
    least_w: Optional[float] = None
    most_w: Optional[float] = None


def set_limit(machine: machines.Machine, uuid: str, watts: float) -> Verdict:
    return _write(machine, uuid, "-pl", f"{watts:.2f}".rstrip("0").rstrip("."))


def set_clocks(machine: machines.Machine, uuid: str, least_mhz: int, most_mhz: int) -> Verdict:
    return _write(machine, uuid, "-lgc", f"{least_mhz},{most_mhz}")


def reset_clocks(machine: machines.Machine, uuid: str) -> Verdict:
    return _write(machine, uuid, "-rgc")


def set_memory_clocks(machine: machines.Machine, uuid: str, least_mhz: int, most_mhz: int) -> Verdict:
    return _write(machine, uuid, "-lmc", f"{least_mhz},{most_mhz}")


def reset_memory_clocks(machine: machines.Machine, uuid: str) -> Verdict:
    return _write(machine, uuid, "-rmc")


def set_persistence(machine: machines.Machine, uuid: str, on: bool) -> Verdict:
    return _write(machine, uuid, "-pm", "1" if on else "0")


def set_temperature(machine: machines.Machine, uuid: str, celsius: int) -> Verdict:
    """The temperature that the card keeps to (`-gtt`), where it has such a target."""
    return _write(machine, uuid, "-gtt", str(celsius))


def _write(machine: machines.Machine, uuid: str, *words: str) -> Verdict:
    try:
        done = tool.smi(machine, ["-i", uuid, *words])
    except errors.Problem as problem:
        return Verdict(SILENT if problem.code == "driver-silent" else FAILED, problem.message)
    return classify(done.words, done.code)


def classify(text: str, code: int) -> Verdict:
    """The gravest thing that an answer says, of whichever card."""
    text = text[:_TEXT_LIMIT]
    said = [one for lines in _by_bus(text).values() for one in lines]
    volatile = bool(_PERSISTENCE.search(text))
    for kind in _GRAVEST:
        for found, line in said:
            if found == kind:
                return _verdict(kind, line, volatile)
    lines = [line.strip() for line in text.splitlines() if not _FILLER.search(line)]
    return Verdict(_CODES.get(code, FAILED), (" / ".join(lines) or f"exit status {code}")[:_WORDS_LIMIT], volatile)


def per_card(text: str) -> Dict[str, Verdict]:
    """For an answer that names several cards: by PCI address ("00000000:05:00.0"). A line that names none is not here."""
    found: Dict[str, Verdict] = {}
    for bus, lines in _by_bus(text).items():
        if bus:
            kind, line = min(lines, key=lambda one: _GRAVEST.index(one[0]))
            found[bus] = _verdict(kind, line, any(_PERSISTENCE.search(other) and _bus(other) == bus for other in text.splitlines()))
    return found


def _verdict(kind: str, line: str, volatile: bool) -> Verdict:
    limits = _RANGE.search(line) if kind == OUT_OF_RANGE else None
    least_w, most_w = (float(limits.group(1)), float(limits.group(2))) if limits else (None, None)
    return Verdict(kind, line[:_WORDS_LIMIT], volatile, least_w, most_w)


def _by_bus(text: str) -> Dict[str, List[Tuple[str, str]]]:
    """Card -> what its lines mean, in their order; the empty name is for lines that name no card."""
    found: Dict[str, List[Tuple[str, str]]] = {}
    for line in (one.strip() for one in text[:_TEXT_LIMIT].splitlines()):
        if _FILLER.search(line) or _PERSISTENCE.search(line):
            continue
        kind = next((kind for kind, pattern in _LINES if re.search(pattern, line, re.IGNORECASE)), "")
        if kind:
            found.setdefault(_bus(line), []).append((kind, line))
    return found


def _bus(line: str) -> str:
    named = _BUS.search(line)
    return f"{named.group(1).zfill(8)}:{named.group(2)}".upper() if named else ""
