"""Cards in a node: their state, what the kernel's driver would show of them in /proc and /sys, and the two programs."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

from tests.lab.simulated import compiled, figures, layout

TOOL = Path("usr/bin/nvidia-smi")
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "wattherd-lab")
_MEMORY_RESERVED = 300 << 20
#: The CUDA version that a driver branch brings, as nvidia-smi prints it (release notes of the branches).
_CUDA = {525: 12000, 530: 12010, 535: 12020, 545: 12030, 550: 12040, 555: 12050, 560: 12060, 565: 12070, 570: 12080, 575: 12090}
_CUDA |= {580: 13000, 590: 13010}
_FIRST_BUS = 1
_AMPERE = 7


def driver(cards: Sequence[figures.Card], asked: str) -> str:
    """One driver serves all cards of a node: the newest that any of them was seen with, unless one is asked for."""
    return asked or max((card.driver for card in cards), key=lambda version: tuple(int(part) for part in version.split(".")))


def state(node: str, cards: Sequence[figures.Card], driver_version: str) -> layout.Node:
    made = layout.Node()
    made.cards = len(cards)
    made.driver = made.library = driver_version.encode()
    branch = int(driver_version.partition(".")[0])
    made.cuda_version = max((cuda for first, cuda in _CUDA.items() if first <= branch), default=11040)
    for index, card in enumerate(cards):
        _fill(made.card[index], node, index, card)
    return made


def _fill(made: layout.Card, node: str, index: int, card: figures.Card) -> None:
    made.name = card.name.encode()
    made.uuid = f"GPU-{uuid.uuid5(_NAMESPACE, f'{node}/{index}/{card.id}')}".encode()
    made.bus, made.bus_id = _FIRST_BUS + index, f"00000000:{_FIRST_BUS + index:02X}:00.0".encode()
    made.vbios = b"N/A"
    made.memory_total = (card.memory_mib or 0) << 20
    made.memory_reserved = min(_MEMORY_RESERVED, made.memory_total)
    made.device_id, made.subsystem_id = card.device, card.subsystem
    made.architecture = card.architecture
    made.cc_major, made.cc_minor = (int(part) for part in card.compute_cap.split("."))
    made.can = _abilities(card)
    made.min_mw, made.max_mw, made.default_mw = (round((watts or 0) * 1000) for watts in (card.min_w, card.max_w, card.default_w))
    made.requested_mw = made.default_mw
    made.sm_max_mhz, made.memory_max_mhz = card.sm_max_mhz or 0, card.memory_max_mhz or 0
    if card.target_c:
        made.target_min_c, made.target_default_c, made.target_max_c = card.target_c
        made.target_c = made.target_default_c
    made.pstate, made.power_mw, made.average_mw = card.pstate_empty, round(card.empty_w * 1000), round(card.empty_w * 1000)
    made.sm_mhz, made.memory_mhz = card.idle_mhz, card.memory_idle_mhz


def _abilities(card: figures.Card) -> int:
    has_limits = None not in (card.min_w, card.default_w, card.max_w)
    no_mig = card.architecture < _AMPERE or "GeForce" in card.name or not (card.reads("mig.mode") and card.reads("mig.mode.*"))
    able = {
        "LIMIT": has_limits,
        "LOCK_GPU": card.lock_gpu,
        "LOCK_MEMORY": card.lock_memory,
        "ENERGY": card.energy_counter,
        "FAN": card.reads("fan.speed"),
        "MEMORY_TEMPERATURE": card.reads("temperature.memory"),
        "TARGET": card.target_c is not None,
        "MIG": not no_mig,
        "ECC": card.id.startswith(("l40s", "h100", "h200", "a100", "b200", "t4", "l4")),
        "UTILIZATION": True,
    }
    return sum(layout.CAN[name] for name, can in able.items() if can)


def files(root: Path, made: layout.Node, programs: Path) -> None:
    """The driver's files, to be copied into place at every load, and the programs."""
    folder = root / "var/lib/lab-gpu/files"
    shutil.rmtree(folder, ignore_errors=True)
    version = made.driver.decode()
    proc = folder / "proc-driver/nvidia"
    proc.mkdir(parents=True)
    (proc / "version").write_text(
        f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Thu Jan  1 00:00:00 UTC 1970\n"
        "GCC version:  simulated by Wattherd's lab\n"
    )
    for index in range(made.cards):
        card = made.card[index]
        place = proc / "gpus" / card.bus_id.decode()[4:].lower()
        place.mkdir(parents=True)
        (place / "information").write_text(
            f"Model: \t\t {card.name.decode()}\nIRQ:   \t\t {120 + index}\nGPU UUID: \t {card.uuid.decode()}\n"
            "Video BIOS: \t ??.??.??.??.??\nBus Type: \t PCIe\nDMA Size: \t 47 bits\nDMA Mask: \t 0x7fffffffffff\n"
            f"Bus Location: \t {place.name}\nDevice Minor: \t {index}\nGPU Excluded:\t No\n"
        )
    module = folder / "sys-module/nvidia"
    module.mkdir(parents=True)
    (module / "version").write_text(f"{version}\n")
    (module / "initstate").write_text("live\n")
    (module / "refcnt").write_text("1\n")
    install(programs / "nvidia-smi", root / TOOL)
    install(programs / "libnvidia-ml.so.1", root / library())


def library() -> Path:
    """Where the loader finds NVML, from the root."""
    return Path("usr/lib") / compiled.multiarch() / "libnvidia-ml.so.1"


def install(source: Path, target: Path) -> None:
    """A program in its place, whole at every moment: the old one may be running."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.new")
    shutil.copyfile(source, beside)
    beside.chmod(0o755)
    beside.replace(target)


def unit(source: Path, root: Path, wanted_by: str) -> None:
    """A unit of the node's systemd, on from the next boot, where packages have theirs."""
    target = root / "usr/lib/systemd/system" / source.name
    shutil.copyfile(source, target)
    link = root / "usr/lib/systemd/system" / f"{wanted_by}.wants" / source.name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(f"../{source.name}")


def remove_unit(root: Path, name: str, wanted_by: str) -> None:
    for path in (name, f"{wanted_by}.wants/{name}"):
        (root / "usr/lib/systemd/system" / path).unlink(missing_ok=True)
