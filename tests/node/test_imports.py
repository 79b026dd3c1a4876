"""What a session loads: every module costs every node a part of every run, so that what few sessions need is imported by those."""

from __future__ import annotations

import io
import pathlib
import subprocess
import sys
import zipfile

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


def test_a_session_loads_nothing_that_it_does_not_need(tmp_path: pathlib.Path) -> None:
    zipfile.ZipFile(io.BytesIO(archive.program().body)).extractall(tmp_path)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from wattherd.node import __main__, session; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & DEAR == set()
