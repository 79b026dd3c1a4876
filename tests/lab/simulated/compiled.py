"""The C half, compiled once on this machine and kept in the lab's cache under a fingerprint of its sources and compiler."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.lab import commands, places
from tests.lab.simulated import layout

SOURCES = Path(__file__).with_name("c")
_MAKING = "compiling-"
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")
_LIBRARY = ("-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-soname,libnvidia-ml.so.1")
#: What is made, from which sources, with which flags more.
_MADE: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "libnvidia-ml.so.1": (("nvml.c", "driver.c"), _LIBRARY),
    "nvidia-smi": (("smi.c", "set.c", "csv.c", "log.c", "table.c", "driver.c"), ()),
    "load": (("load.c",), ()),
}


def make(lab: places.Places) -> Path:
    """The folder with libnvidia-ml.so.1, nvidia-smi and load."""
    done = lab.cache / f"gpu-{fingerprint()}"
    if done.is_dir():
        return done
    done.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=done.parent, prefix=_MAKING) as name:
        made = Path(name) / "made"
        compile_into(made)
        if not done.is_dir():
            os.rename(made, done)  # noqa: PTH104 - a folder that somebody else finished meanwhile is as good
    return done


def compile_into(made: Path, *flags: str) -> None:
    """All three into a new folder; state.h is left beside it."""
    made.mkdir(mode=0o755)
    (made.parent / "state.h").write_text(layout.header())
    for target, (sources, own) in _MADE.items():
        words = [str(SOURCES / source) for source in sources]
        commands.run(["gcc", *_FLAGS, *own, *flags, f"-I{made.parent}", f"-I{SOURCES}", "-o", str(made / target), *words])


def remove_leftovers(lab: places.Places) -> None:
    """Folders of compilations that were killed."""
    for left in lab.cache.glob(f"{_MAKING}*"):
        shutil.rmtree(left, ignore_errors=True)


def fingerprint() -> str:
    digest = hashlib.sha256(layout.header().encode())
    digest.update(repr(_MADE).encode() + repr(_FLAGS).encode())
    digest.update(commands.run(["gcc", "-dumpfullversion", "-dumpmachine"]).stdout.encode())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def multiarch() -> str:
    """The folder of libraries under /usr/lib, as Debian names it ("x86_64-linux-gnu")."""
    return commands.run(["gcc", "-print-multiarch"]).stdout.strip()
