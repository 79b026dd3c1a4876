"""Cases of the program type: a small program in the cache of sessions, as the boot stage leaves it there."""

from __future__ import annotations

import hashlib
import io
import zipfile

from tests.node import strict
from wattherd.resources import program


def pack(words: str = "one") -> bytes:
    """A zip like the controller's, with one module that says `words`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name, text in (("wattherd/__init__.py", ""), ("wattherd/node/keep.py", f"print({words!r})\n")):
            packed.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), text)
    return buffer.getvalue()


def brought(bench: strict.Bench, words: str = "one") -> program.Program:
    """A session brought this program along: its zip lies in the cache."""
    body = pack(words)
    digest = hashlib.sha256(body).hexdigest()
    bench.put(f"{program.CACHE}/{digest}/program.zip", body)
    return program.Program("keeper", digest)


def absent(bench: strict.Bench) -> program.Program:
    return brought(bench)


def drifted(bench: strict.Bench) -> program.Program:
    """Somebody removed a module of it."""
    one = settled(bench)
    bench.machine.unlink(f"{one.folder}/wattherd/node/keep.py")
    return one


def settled(bench: strict.Bench) -> program.Program:
    one = brought(bench)
    one.fix(bench.machine, {}, bench.tell)
    return one


def checked(bench: strict.Bench) -> program.Program:
    """Another version is in use."""
    settled(bench)
    return brought(bench, "two")
