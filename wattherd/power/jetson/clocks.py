"""jetson_clocks: all clocks at the maximum of the current mode ("pinned"), and back to what they were.

What was before is stored BEFORE they are pinned: later the tool would store pinned values, and it asks before it overwrites a file. The
store is worth something in the same boot and the same mode only.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Iterator, List, Optional, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.power import wanted
from wattherd.power.jetson import nvpmodel, tools, verdict
from wattherd.wire import fields

STORE = wanted.STATE + "/jetson-clocks.store"
_WHEN = wanted.STATE + "/jetson-clocks.json"
_LIMIT_S = 60.0
_POLICIES = "/sys/devices/system/cpu/cpufreq"
DEVFREQ = "/sys/class/devfreq"
#: The GPU's devfreq node by board: 57000000.gpu, 17000000.gp10b, …gv11b, …ga10b. A Thor's is gpu-gpc-0, which jetson_clocks leaves alone.
_GPU = re.compile(r"\d+\.(gpu|gm20b|gp10b|gv11b|ga10b)\Z")
_SHOWN = re.compile(r"^\s*(cpu\d+|GPU)\b.*?MinFreq=(\d+) MaxFreq=(\d+)", re.MULTILINE)


def pinned(machine: machines.Machine) -> Optional[bool]:
    """Whether the least and the greatest clock of the CPUs and the GPU are the same; None where nobody tells."""
    pairs = list(_pairs(machine))
    if not pairs and tools.has(machine, "jetson_clocks"):
        pairs = shown(tools.run(machine, ["jetson_clocks", "--show"]).text)
    return all(least == most for least, most in pairs) if pairs else None


def gpu(machine: machines.Machine) -> str:
    """The GPU's devfreq folder; empty where there is none."""
    names = [name for name in machine.names(DEVFREQ) if _GPU.match(name) or name.startswith("gpu-gpc")]
    return f"{DEVFREQ}/{names[0]}" if names else ""


def shown(text: str) -> List[Tuple[int, int]]:
    """(least, most) of each CPU that is on and of the GPU, from `jetson_clocks --show`. EMC is no sign: its least never moves."""
    return [(int(found.group(2)), int(found.group(3))) for found in _SHOWN.finditer(text) if "Online=0" not in found.group(0)]


def pin(machine: machines.Machine) -> verdict.Verdict:
    """Store what is, then pin. Already pinned is done, and nothing is stored: those would be pinned values."""
    if pinned(machine):
        return verdict.DONE
    machine.make_dirs(wanted.STATE)
    machine.unlink(STORE)  # of an earlier pin; the tool would ask whether it may overwrite it
    stored = tools.run(machine, ["jetson_clocks", "--store", STORE], limit_s=_LIMIT_S)
    if stored.code != 0 or not machine.exists(STORE):
        return _refused("the clocks were not stored, so they were not pinned", stored)
    when = {"boot": machine.boot_id(), "mode": nvpmodel.query(machine).name}
    machine.write(_WHEN, json.dumps(when).encode() + b"\n", mode=0o600)
    return press(machine)


def press(machine: machines.Machine) -> verdict.Verdict:
    """Pin to the maxima of the mode as it is now, without a store."""
    done = tools.run(machine, ["jetson_clocks"], limit_s=_LIMIT_S)
    if pinned(machine):
        return verdict.DONE
    return _refused("the clocks are not pinned", done)


def unpin(machine: machines.Machine) -> verdict.Verdict:
    """Back to what was stored. Where nothing was, nobody knows how they were: a reboot frees them."""
    if not pinned(machine):
        return verdict.DONE
    if not _stored(machine):
        return verdict.Verdict(
            "reboot", "the clocks were pinned by somebody else, and what they were before was not stored; a reboot frees them"
        )
    done = tools.run(machine, ["jetson_clocks", "--restore", STORE], limit_s=_LIMIT_S)
    if pinned(machine):
        return _refused("the clocks are still pinned", done)
    for path in (STORE, _WHEN):
        machine.unlink(path)
    return verdict.DONE


def _stored(machine: machines.Machine) -> bool:
    with contextlib.suppress(ValueError, errors.Problem):
        when = fields.document(fields.parsed(tools.text(machine, _WHEN) or "{}"), _WHEN)
        same = when.get("boot") == machine.boot_id() and when.get("mode") == nvpmodel.query(machine).name
        return same and machine.exists(STORE)
    return False


def _refused(what: str, answer: machines.Result) -> verdict.Verdict:
    words = " / ".join(line.strip() for line in answer.words.splitlines()[-2:])[:200]
    if answer.code == 124:
        return verdict.Verdict("silent", f"{what}: jetson_clocks gave no answer within {_LIMIT_S:.0f} s")
    if "root user" in words:
        return verdict.Verdict("no-permission", f"{what}: jetson_clocks needs root")
    return verdict.Verdict("failed", f"{what}: {words or f'jetson_clocks ended with exit status {answer.code}'}")


def _pairs(machine: machines.Machine) -> Iterator[Tuple[int, int]]:
    """(least, most) by sysfs, of what can be read: CPU policies in kHz, the GPU in Hz."""
    places = [
        (f"{_POLICIES}/{name}", "scaling_min_freq", "scaling_max_freq") for name in machine.names(_POLICIES) if name.startswith("policy")
    ]
    places += [(f"{DEVFREQ}/{name}", "min_freq", "max_freq") for name in machine.names(DEVFREQ) if _GPU.match(name)]
    for folder, low, high in places:
        least, most = tools.number(machine, f"{folder}/{low}"), tools.number(machine, f"{folder}/{high}")
        if least is not None and most is not None:
            yield least, most
