"""What a session loads: every module costs every node a part of every run, so that what few sessions need is imported by those."""

from __future__ import annotations

import io
import pathlib
import subprocess
import sys
import zipfile

import pytest

from wattherd.link import archive

#: Heavy, and needed by few: dataclasses brings inspect, ast, dis and tokenize; tarfile brings three compressors. pynvml (and its ctypes)
#: is for the child that reads the cards, and for nobody else.
DEAR = {
    "dataclasses",
    "inspect",
    "tarfile",
    "lzma",
    "bz2",
    "zipfile",
    "shutil",
    "http.client",
    "socket",
    "email",
    "logging",
    "difflib",
    "glob",
    "ctypes",
    "pynvml",
    "xml",
}


#: What the facts of a node need of `power`: the names of a Jetson's modes. All else of it is for sessions that are about power.
POWER = {"wattherd.power", "wattherd.power.jetson", "wattherd.power.jetson.conf", "wattherd.power.jetson.tools"}
_SESSION = "from wattherd.node import __main__, session"
_MANIFEST = """
from wattherd import resources
from wattherd.wire import manifest
for kind, spec in (("directory", {"path": "/etc/x"}), ("file", {"path": "/etc/x/y", "text": ""}), ("unit", {"name": "x.service"})):
    resources.decode(manifest.Entry(f"{kind}:{spec.get('path', spec.get('name'))}", kind, "base", spec))
"""
_POWER_ENTRY = """
from wattherd import resources
from wattherd.wire import manifest
resources.decode(manifest.Entry("power:GPU-1/limit_w", "power", "power", {"uuid": "GPU-1", "setting": "limit_w", "value": [250]}))
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("program")
    zipfile.ZipFile(io.BytesIO(archive.program().body)).extractall(folder)
    return folder


def loaded(program: pathlib.Path, code: str) -> set[str]:
    """The modules that a node's process has after this code."""
    whole = f"import sys\nsys.path.insert(0, {str(program)!r})\n{code}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", whole], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_session_loads_nothing_that_it_does_not_need(program: pathlib.Path) -> None:
    assert loaded(program, _SESSION) & DEAR == set()


def test_only_a_session_about_power_loads_what_reads_cards(program: pathlib.Path) -> None:
    """Also with a manifest in hand: a type's module comes with the first entry of that type."""
    modules = loaded(program, f"{_SESSION}\n{_MANIFEST}")
    assert {one for one in modules if one.startswith("wattherd.power")} == POWER
    assert {one for one in modules if one.startswith(("wattherd.meters", "wattherd.policy"))} == set()
    assert {"wattherd.resources.power", "wattherd.resources.jetson", "wattherd.resources.program"} & modules == set()
    with_power = loaded(program, f"{_SESSION}\n{_POWER_ENTRY}")
    assert {"wattherd.resources.power", "wattherd.power.look"} <= with_power
    assert with_power & DEAR == set(), "the cards are read by a child of its own"
