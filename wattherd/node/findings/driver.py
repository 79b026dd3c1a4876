"""The NVIDIA driver by the node's files and nvidia-smi: versions that differ, a driver that is silent, cards that are missing. Pure."""

from __future__ import annotations

import re
from typing import List, Mapping, Optional, Sequence, Tuple

from wattherd import units
from wattherd.wire import finding

WHERE = "the NVIDIA driver"
_MISMATCH = 18
_TIMED_OUT = 124
_ABSENT = 127
#: nvidia-smi's own exit statuses (its man page): code, words, what to do.
_STATUSES: Mapping[int, Tuple[str, str, str]] = {
    4: ("driver-no-access", "nvidia-smi may not reach the driver", "look at the modes of /dev/nvidia*"),
    6: ("no-cards", "the driver runs and finds no card", "lspci -nn | grep -i nvidia; the kernel log tells why a card was refused"),
    8: ("card-power", "a card's power cables are not attached", "power the node off and attach them"),
    9: (
        "driver-not-loaded",
        "the driver is installed and not loaded",
        "modprobe nvidia; after a kernel upgrade its module must be built for the new one (dkms status)",
    ),
    10: ("card-interrupts", "the kernel has trouble with a card's interrupts", "see the kernel log; restart the node"),
    12: ("driver-half-installed", "the driver's library (NVML) is not installed", "install the package of the loaded driver's version"),
    13: ("driver-half-installed", "the driver's library is older than nvidia-smi", "install driver packages of one version"),
    14: ("card-rom", "a card's infoROM is damaged", "report it to the card's maker"),
    15: ("card-lost", "a card was lost", "drain the node and restart it"),
    16: ("card-reset-needed", "a card must be reset before it works again", "drain the node, then nvidia-smi --gpu-reset"),
    17: ("driver-no-access", "the operating system keeps nvidia-smi off", "AppArmor, SELinux or a container rule: see the kernel log"),
}  # fmt: skip


def installed(library_names: Sequence[str], smi_words: str) -> str:
    """The version of the library: the file's own name says it whole, nvidia-smi only its first two parts."""
    named = [met.group(1) for met in (re.match(r"libnvidia-ml\.so\.(\d+\.\d+(?:\.\d+)?)$", name) for name in library_names) if met]
    if named:
        return max(named, key=lambda one: [int(part) for part in one.split(".")])
    said = re.search(r"NVML library version:\s*(\d+(?:\.\d+)+)", smi_words)
    return said.group(1) if said else ""


def upgrade(history: str) -> str:
    """The newest entry of apt's history that touched the driver: when, by which command, from which version to which."""
    for block in reversed(re.split(r"\n\s*\n", history)):
        packages = re.findall(r"((?:lib)?nvidia-[\w.+-]+)(?::\w+)? \(([^(),]+), ([^(),]+)\)", block)
        if packages:
            when = re.search(r"Start-Date: (\S+)\s+(\S+)", block)
            command = re.search(r"Commandline: (.*)", block)
            name, before, after = packages[0]
            parts = [" ".join(when.groups()) if when else "", command.group(1).strip() if command else "", f"{name} ({before} -> {after})"]
            return " ".join(part for part in parts if part)
    return ""


def judge(code: int, words: str, running: str, library: str, history: str) -> List[finding.Finding]:
    """`code` and `words` are nvidia-smi's; `running` and `library` the versions of module and library, empty where unknown."""
    differ = bool(running and library) and not (running.startswith(f"{library}.") or running == library)
    if code == _MISMATCH or "driver/library version mismatch" in words.lower() or (code == _ABSENT and differ):
        return [_mismatch(running, library, upgrade(history))]
    if code in {0, _ABSENT}:
        return []
    if code == _TIMED_OUT:
        what = "nvidia-smi does not come to an end: a card or the driver hangs"
        return [
            finding.found(
                "driver-hangs", finding.ERROR, WHERE, what, do="see the Xid lines of the kernel log; drain the node and restart it"
            )
        ]
    first = next((line for line in words.splitlines() if line.strip()), "")
    known = _STATUSES.get(code)
    if known is None:
        return [
            finding.found(
                "driver-error", finding.WARNING, WHERE, f"nvidia-smi ends with {code}: {first}", do="nvidia-smi -q", evidence=first
            )
        ]
    return [finding.found(known[0], finding.ERROR, WHERE, f"{known[1]} (nvidia-smi ends with {code})", do=known[2], evidence=first)]


def _mismatch(running: str, library: str, entry: str) -> finding.Finding:
    words = (
        f"the loaded driver is {running or 'unknown'}, the installed library {library or 'unknown'}: the node needs a restart. "
        "What holds a card already goes on; a server that starts now gets no GPU"
    )
    do = (
        "do not restart a working llama-server; drain the node and reboot it. Then keep the driver from being upgraded alone "
        "(apt-mark hold, unattended-upgrades' Package-Blacklist). If a reboot does not help: dpkg -l | grep nvidia shows mixed versions"
    )
    return finding.found("driver-mismatch", finding.ERROR, WHERE, words, do=do, evidence=entry)


def too_old(running: str, runtime_major: int) -> Optional[finding.Finding]:
    """The oldest driver branch that a CUDA major runs on (NVIDIA's compatibility table)."""
    needs = {11: 450, 12: 525, 13: 580}.get(runtime_major, 0)
    major = int(running.partition(".")[0]) if re.match(r"\d{1,6}\.", running) else 0
    if not needs or not major or major >= needs:
        return None
    return finding.found(
        "driver-too-old",
        finding.ERROR,
        WHERE,
        f"the driver is {running}; the release was built with CUDA {runtime_major}, which needs {needs} or newer",
        do="upgrade the driver, or build for the oldest driver of the group (cuda settings of the inventory)",
        evidence=running,
    )


def uuids(smi_list: str) -> List[str]:
    """The cards of `nvidia-smi -L`, without their MIG slices."""
    return re.findall(r"^GPU \d+: .*\(UUID: (GPU-[0-9a-fA-F-]{36})\)", smi_list, re.MULTILINE)


def cards(on_bus: Sequence[str], driven: Sequence[str], answering: Optional[Sequence[str]], wanted: Sequence[str]) -> List[finding.Finding]:
    """Bus addresses that the machine has and the driver drives; UUIDs that answer (None: unknown) and that the manifest names."""
    found: List[finding.Finding] = []
    undriven = [bus for bus in on_bus if bus not in driven]
    do = "the kernel log tells why (Xid, off the bus, refused by the driver); compare nvidia-smi -L with lspci -nn"
    if driven and undriven:
        words = f"the machine has {units.plural(len(on_bus), 'card')}, the driver {len(driven)}: it does not drive {', '.join(undriven)}"
        found.append(finding.found("card-missing", finding.ERROR, f"card {undriven[0]}", words, do=do))
    elif answering is not None and driven and len(answering) < len(driven):
        words = f"the driver lists {units.plural(len(driven), 'card')}, and only {len(answering)} answer"
        found.append(finding.found("card-missing", finding.ERROR, WHERE, words, do=do))
    for uuid in wanted if answering is not None else ():
        if uuid not in (answering or ()):
            words = "the deployed manifest names this card, and it does not answer"
            found.append(finding.found("card-missing", finding.ERROR, uuid, words, do=f"{do}; or name the new card in the inventory"))
    return found
