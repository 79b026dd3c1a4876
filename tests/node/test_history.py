"""A generation in one line: its release, whether that is still there, and its units. Records are data: a strange one is no traceback."""

from __future__ import annotations

import json
import pathlib

from wattherd import machine as machines
from wattherd.node import generations

RELEASE = "/opt/wattherd/releases/0123456789abcdef-b11434-cpu"


def kept(root: pathlib.Path, *rows: dict[str, object]) -> generations.Summary:
    machine = machines.Machine(str(root))
    machine.make_dirs("/var/lib/wattherd")
    generations.keep(machine, json.dumps({"protocol": 1, "host": "titan", "resources": list(rows)}).encode())
    return generations.summary(machine, generations.read(machine, generations.numbers(machine)[-1]))


def entry(name: str, **spec: object) -> dict[str, object]:
    return {"id": name, "type": name.partition(":")[0], "role": "r", "tags": [], "spec": spec}


def test_the_release_is_named_and_whether_it_is_still_there(tmp_path: pathlib.Path) -> None:
    rows = [entry("symlink:/opt/wattherd/current", path="/opt/wattherd/current", target=RELEASE), entry("unit:llama@smol.service")]
    found = kept(tmp_path, *rows)
    assert (found.release, found.release_present, found.units) == ("0123456789abcdef-b11434-cpu", False, ("llama@smol.service",))
    (tmp_path / RELEASE.lstrip("/")).mkdir(parents=True)
    assert kept(tmp_path, *rows).release_present


def test_a_generation_without_a_release_names_none(tmp_path: pathlib.Path) -> None:
    found = kept(tmp_path, entry("file:/etc/x", path="/etc/x"))
    assert (found.release, found.release_present, found.units, found.resources) == ("", False, (), 1)
