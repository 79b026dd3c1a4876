"""What is packed for the nodes: all below the line, and NVML's binding as it was installed, for one child alone."""

from __future__ import annotations

import ast
import importlib.metadata
import io
import json
import pathlib
import subprocess
import sys
import zipfile

import pytest

from wattherd import errors
from wattherd.link import archive
from wattherd.power import look, reading
from wattherd.wire import fields


def packed() -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(archive.program().body))


def test_the_binding_is_packed_as_it_was_installed() -> None:
    body = packed().read(archive.BINDING_MODULE)
    assert body == archive.binding().read_bytes()
    assert archive.BINDING_MODULE in {str(file) for file in importlib.metadata.files(archive.BINDING) or ()}
    assert body.startswith(b"#####\n# Copyright (c)"), "the licence goes with it"
    assert b"Redistributions of source code must retain the above copyright" in body[:2000]


def test_the_binding_runs_where_the_program_runs() -> None:
    ast.parse(packed().read(archive.BINDING_MODULE), feature_version=(3, 8))
    imported = {
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(ast.parse(packed().read(archive.BINDING_MODULE)))
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    assert {(name or "").partition(".")[0] for name in imported} <= sys.stdlib_module_names, "a node has nothing else"


def test_a_controller_without_the_binding_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "BINDING", "no-such-distribution")
    with pytest.raises(errors.Problem) as caught:
        archive.binding()
    assert caught.value.code == "tool-missing"
    assert "pip install" in caught.value.hint


def test_the_reading_child_works_from_the_packed_program(tmp_path: pathlib.Path) -> None:
    """With a card here it reads it, and without a library it says so: in either case one line that is a look."""
    packed().extractall(tmp_path)
    words = [sys.executable, "-I", "-S", "-c", look.CHILD, str(tmp_path), "{}"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    found = fields.build(reading.Look, json.loads(done.stdout))
    assert found.cards or found.fault_kind in {"no-library", "no-driver", "mismatch", "no-permission"}
    assert done.stdout.count("\n") == 1
