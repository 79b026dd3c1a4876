"""A compiler's toolkit out of wheels of the store: one folder of a wheel becomes the toolkit's own, whole or not at all.

The wheels of a CUDA toolkit lack what a linker looks for: `lib64`, and `libcublas.so` beside `libcublas.so.13`. These links are
made here. Knows nothing of CUDA's versions, of cards, or of who compiles with it.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from typing import Dict, List, Mapping

from wattherd import errors, store
from wattherd import machine as machines
from wattherd.resources import base, tree

#: Where toolkits are put: nothing else is.
HOME = "/opt/wattherd/cuda"
_LIBRARY = re.compile(r"(lib[^/]+?\.so)\.[0-9.]+\Z")


def room_bytes(wheels: Mapping[str, int]) -> int:
    """What unpacking takes. Wheels are packed to about half; they lie in the store until the folder stands."""
    return 2 * sum(wheels.values())


def identity(wheels: Mapping[str, int]) -> str:
    """What the marker of a folder made from exactly these wheels says."""
    return hashlib.sha256("".join(sorted(wheels)).encode()).hexdigest()


def is_whole(machine: machines.Machine, path: str, wheels: Mapping[str, int]) -> bool:
    """Made from these wheels, and every file is there with its size."""
    told = tree.marker(machine, path)
    return told.get("digest") == identity(wheels) and not tree.gap(machine, path, told)


def missing(machine: machines.Machine, path: str, wheels: Mapping[str, int]) -> Dict[str, int]:
    """The wheels that must come into the store before `assemble`: none when the folder stands."""
    return {} if not wheels or is_whole(machine, path, wheels) else store.missing(machine, wheels)


def assemble(machine: machines.Machine, path: str, wheels: Mapping[str, int], inside: str, tell: base.Tell) -> None:
    """Unpack beside, mark, rename. The wheels leave the store then: the folder holds all of them, and they are 600 MB."""
    if not is_whole(machine, path, wheels):
        tell(f"unpacking {posixpath.basename(path)}", 0, sum(wheels.values()), "bytes")
        new = f"{posixpath.dirname(path)}/.{posixpath.basename(path)}.new"
        if machine.exists(new):
            machine.remove_tree(new)
        machine.make_dirs(new)
        sizes: Dict[str, int] = {}
        try:
            with machines.no_space(path):
                for digest in wheels:
                    _unpack(machine, digest, inside, new, sizes)
                _link(machine, new, sizes)
                tree.mark(machine, new, identity(wheels), "", sizes)
        except BaseException:
            machine.remove_tree(new)
            raise
        if machine.exists(path):
            machine.remove_tree(path)
        machine.rename(new, path)
    for digest in wheels:
        if store.has(machine, digest):
            store.discard(machine, digest)


def _unpack(machine: machines.Machine, digest: str, inside: str, folder: str, sizes: Dict[str, int]) -> None:
    import shutil
    import zipfile
    import zlib

    blob = store.verified(machine, digest, "a wheel of the toolkit")
    prefix = inside.strip("/") + "/"
    try:
        with zipfile.ZipFile(machine.path(blob)) as wheel:
            for member in wheel.infolist():
                name = member.filename[len(prefix) :]
                if not member.filename.startswith(prefix) or not name or member.is_dir():
                    continue
                if name.startswith("/") or ".." in name.split("/") or "\0" in name:
                    raise _corrupt(f"the name {member.filename[:200]!r} leads out of the folder")
                place = machine.path(f"{folder}/{name}")
                os.makedirs(os.path.dirname(place), exist_ok=True)
                with wheel.open(member) as source, open(place, "wb") as sink:
                    shutil.copyfileobj(source, sink, 1024 * 1024)
                os.chmod(place, 0o755 if (member.external_attr >> 16) & 0o111 else 0o644)
                sizes[name] = member.file_size
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise _corrupt(f"it is not a sound wheel: {error}") from error


def _link(machine: machines.Machine, folder: str, sizes: Dict[str, int]) -> None:
    """`lib64 -> lib`, and for each lib/libX.so.N the name without a number, which is what a linker asks for."""
    if not machine.is_dir(f"{folder}/lib"):
        return
    links: List[str] = []
    for name in machine.names(f"{folder}/lib"):
        found = _LIBRARY.match(name)
        if found and not machine.exists(f"{folder}/lib/{found.group(1)}"):
            os.symlink(name, machine.path(f"{folder}/lib/{found.group(1)}"))
            links.append(f"lib/{found.group(1)}")
    if not machine.exists(f"{folder}/lib64"):
        os.symlink("lib", machine.path(f"{folder}/lib64"))
        links.append("lib64")
    for link in links:
        sizes[link] = len(machine.readlink(f"{folder}/{link}") or "")


def _corrupt(words: str) -> errors.Problem:
    return errors.Problem("artifact-corrupt", f"a wheel was refused: {words}", hint="deploy again; nothing of it was put in place")
