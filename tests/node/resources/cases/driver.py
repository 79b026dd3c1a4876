"""The four cases of the driver: its packages held, by apt-mark as it works on dpkg's own file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.node import strict
from tests.node.resources.cases.package import stanza
from wattherd.resources import driver

LOADED = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)  Tue Sep 23\n"
PACKAGES = ("libnvidia-compute-580", "nvidia-driver-580")
DPKG = stanza("dpkg")


def put(bench: strict.Bench, *held: str, loaded: str = LOADED) -> None:
    bench.put("/proc/driver/nvidia/version", loaded)
    others = [stanza("nvidia-settings"), stanza("libc6"), stanza("nvidia-driver-570", "deinstall ok config-files")]
    rows = [stanza(name, "hold ok installed" if name in held else "install ok installed") for name in PACKAGES]
    bench.put("/var/lib/dpkg/status", "\n".join([DPKG, *rows, *others]))


def mark(bench: strict.Bench, was: str, becomes: str) -> strict.Effect:
    """What apt-mark does: it changes the first word of the Status of each package that it is given."""

    def effect(argv: Sequence[str]) -> None:
        status = Path(bench.machine.path("/var/lib/dpkg/status"))
        text = status.read_text()
        for name in argv[2:]:
            old, new = (f"Package: {name}\nStatus: {word} ok installed" for word in (was, becomes))
            assert old in text, f"{name} was not {was}"
            text = text.replace(old, new)
        status.write_text(text)

    return effect


def absent(bench: strict.Bench) -> driver.Driver:
    put(bench)
    bench.runner.plan("apt-mark", "hold", *PACKAGES, effect=mark(bench, "install", "hold"))
    return driver.Driver(least=580, needed_by="CUDA 13.5", hold=True)


def drifted(bench: strict.Bench) -> driver.Driver:
    put(bench, "nvidia-driver-580")
    bench.runner.plan("apt-mark", "hold", "libnvidia-compute-580", effect=mark(bench, "install", "hold"))
    return driver.Driver(least=580, needed_by="CUDA 13.5", hold=True)


def settled(bench: strict.Bench) -> driver.Driver:
    put(bench, *PACKAGES)
    return driver.Driver(least=580, needed_by="CUDA 13.5", hold=True)


def checked(bench: strict.Bench) -> driver.Driver:
    return absent(bench)
