"""Builds on real nodes through the real command: attached to again after a kill, clean after a power cut, once per fingerprint.

The source is a llama.cpp in miniature that cmake really compiles; the real one is test_deploy's.
"""

from __future__ import annotations

import hashlib
import pathlib
import signal
from collections.abc import Iterator

import pytest

from tests.lab import cli, fleet, nodes
from tests.lab.waiting import until
from tests.node import tiny

pytestmark = pytest.mark.lab
PROGRAMS = "llama-server llama-bench llama-fit-params"


def source(folder: pathlib.Path, *, seconds_s: int = 0, broken: str = "") -> str:
    """Write an archive and return its `llama_cpp` setting."""
    slow = f"add_custom_command(TARGET number PRE_LINK COMMAND sleep {seconds_s})\n" if seconds_s else ""
    recipe = tiny.CMAKE.replace("llama-server llama-bench", PROGRAMS) + slow
    body = tiny.archive({"tiny/CMakeLists.txt": recipe, "tiny/server.c": tiny.SERVER_C + broken})
    path = folder / f"tiny-{seconds_s}-{len(broken)}.tar.gz"
    path.write_bytes(body)
    digest = hashlib.sha256(body).hexdigest()
    return (
        f"roles: [base, llama_cpp]\nllama_cpp: {{source: 'path:{path}', sha256: {digest}, backend: cpu, build_number: {seconds_s + 7}}}\n"
    )


def addresses(*names: str) -> dict[str, str]:
    known = {node.name: node.address for node in fleet.status().nodes}
    return {name.replace("-", "_"): known[name] for name in names}


@pytest.fixture
def here(plain: tuple[str, str], tmp_path: pathlib.Path) -> Iterator[cli.Project]:
    """A controller with an empty cache of releases, and two nodes with none."""
    made = cli.project(tmp_path, cache=tmp_path / "cache")
    made.hosts(**addresses(*plain))
    assert made.invoke("trust", "--hosts", "all", "--yes").code == 0
    for name in plain:
        nodes.run(name, ["sh", "-c", "rm -rf /var/lib/wattherd/builds /opt/wattherd"])
    yield made
    made.group("roles: [base]\n")
    said = made.invoke("remove", "--hosts", "all", "--yes")
    assert said.code == 0, said.words


def test_one_compiles_and_the_other_receives(here: cli.Project, plain: tuple[str, str]) -> None:
    first, second = plain
    here.group(source(here.folder))
    said = here.invoke("deploy", "--hosts", "all", "--json")
    assert said.code == 0, said.words
    built = [name for name in plain if any(change.startswith("build:") for change in said.host(name)["changes"])]
    assert built == [first]
    assert nodes.run(second, ["/opt/wattherd/current/bin/llama-server", "--version"]).stderr.startswith("version: 0.6.0-dev (build 7")
    again = here.invoke("deploy", "--hosts", "all", "--json")
    assert [again.host(name)["changed"] for name in plain] == [0, 0]


def test_another_controller_compiles_nothing_again(here: cli.Project, plain: tuple[str, str], tmp_path: pathlib.Path) -> None:
    first, second = plain
    here.group(source(here.folder))
    assert here.invoke("deploy", "--hosts", first).code == 0
    (tmp_path / "other").mkdir()
    other = cli.project(tmp_path / "other", cache=tmp_path / "other-cache")
    other.hosts(**addresses(*plain))
    other.group((here.folder / "inventory/group_vars/all.yaml").read_text())
    assert other.invoke("trust", "--hosts", "all", "--yes").code == 0
    said = other.invoke("deploy", "--hosts", "all", "--json")
    assert said.code == 0, said.words
    assert not any(change.startswith("build:") for name in plain for change in said.host(name)["changes"])
    assert "symlink:/opt/wattherd/current" in said.host(second)["changes"]


def test_a_build_outlives_its_controller_and_is_attached_to_again(here: cli.Project, plain: tuple[str, str]) -> None:
    name = plain[0]
    here.group(source(here.folder, seconds_s=12))
    controller = here.start("deploy", "--hosts", name)
    until(name, "systemctl list-units --plain --no-legend 'wattherd-build-*' | grep -q running")
    unit = nodes.run(name, ["systemctl", "list-units", "--plain", "--no-legend", "wattherd-build-*"]).stdout.split()[0]
    controller.send_signal(signal.SIGKILL)
    controller.wait()
    said = here.invoke("deploy", "--hosts", name)
    assert said.code == 0, said.words
    assert "attached" in said.words
    starts = nodes.run(name, ["sh", "-c", f"journalctl -b -o cat -u {unit} | grep -c Started"]).stdout
    assert int(starts) == 1, "started once, by the controller that was killed"


def under_way(name: str) -> str:
    return nodes.run(name, ["systemctl", "list-units", "--plain", "--no-legend", "wattherd-build-*"]).stdout


def leave_a_build_under_way(here: cli.Project, name: str) -> None:
    """One that takes a minute, and whose controller is killed."""
    here.group(source(here.folder, seconds_s=60))
    controller = here.start("deploy", "--hosts", name)
    until(name, "systemctl list-units --plain --no-legend 'wattherd-build-*' | grep -q running")
    controller.send_signal(signal.SIGKILL)
    controller.wait()


def test_another_word_in_the_inventory_ends_the_build_that_nobody_waits_for(here: cli.Project, plain: tuple[str, str]) -> None:
    name = plain[0]
    leave_a_build_under_way(here, name)
    here.group(source(here.folder))
    said = here.invoke("deploy", "--hosts", name)
    assert said.code == 0, said.words
    assert "which is no longer wanted" in said.words
    assert under_way(name) == ""
    assert nodes.run(name, ["/opt/wattherd/current/bin/llama-server", "--version"]).stderr.startswith("version: 0.6.0-dev (build 7")


def test_remove_ends_a_build_that_is_under_way(here: cli.Project, plain: tuple[str, str]) -> None:
    name = plain[0]
    leave_a_build_under_way(here, name)
    said = here.invoke("remove", "--hosts", name, "--yes")
    assert said.code == 0, said.words
    assert under_way(name) == ""
    assert nodes.run(name, ["sh", "-c", "ls -d /opt/wattherd /var/lib/wattherd 2>/dev/null || true"]).stdout == ""


def test_a_power_cut_in_a_build_leaves_no_half_release(here: cli.Project, plain: tuple[str, str]) -> None:
    name = plain[0]
    here.group(source(here.folder, seconds_s=9))
    controller = here.start("deploy", "--hosts", name)
    until(name, "systemctl list-units --plain --no-legend 'wattherd-build-*' | grep -q running")
    nodes.power_off(name)
    controller.wait(120)
    assert controller.returncode == 4, "the host was lost, and that is what the exit code says"
    nodes.boot(name)
    assert (
        nodes.run(name, ["sh", "-c", "ls /opt/wattherd/releases 2>/dev/null; ls /var/lib/wattherd/builds 2>/dev/null; true"]).stdout == ""
    )
    said = here.invoke("deploy", "--hosts", name)
    assert said.code == 0, said.words
    assert "never ended" in said.words
    assert nodes.run(name, ["/opt/wattherd/current/bin/llama-server", "--version"]).returncode == 0


def test_the_first_compiler_error_is_told_and_nobody_gets_half(here: cli.Project, plain: tuple[str, str]) -> None:
    first, second = plain
    here.group(source(here.folder, broken="int broken(void) { return no_such_name; }\n"))
    said = here.invoke("deploy", "--hosts", "all", "--json")
    assert said.code == 2, said.words
    assert said.host(first)["problem"]["code"] == "build-failed"
    assert "no_such_name" in said.host(first)["problem"]["message"]
    assert said.host(second)["problem"]["code"] == "release-not-built"
    assert nodes.run(first, ["sh", "-c", "ls /opt/wattherd/releases"], check=False).stdout == ""


def test_a_release_that_does_not_run_is_never_activated(here: cli.Project, plain: tuple[str, str]) -> None:
    name = plain[0]
    here.group(source(here.folder))
    assert here.invoke("deploy", "--hosts", name).code == 0
    before = nodes.run(name, ["readlink", "/opt/wattherd/current"]).stdout
    body = tiny.SERVER_C.replace('printf("Available devices:\\n");\n        return 0;', "return 3;")
    assert body != tiny.SERVER_C
    recipe = tiny.CMAKE.replace("llama-server llama-bench", PROGRAMS)
    archive = tiny.archive({"tiny/CMakeLists.txt": recipe, "tiny/server.c": body})
    path = here.folder / "dumb.tar.gz"
    path.write_bytes(archive)
    digest = hashlib.sha256(archive).hexdigest()
    here.group(f"roles: [base, llama_cpp]\nllama_cpp: {{source: 'path:{path}', sha256: {digest}, backend: cpu}}\n")
    said = here.invoke("deploy", "--hosts", name, "--json")
    assert said.code == 2, said.words
    assert said.host(name)["problem"]["code"] == "release-does-not-run"
    assert nodes.run(name, ["readlink", "/opt/wattherd/current"]).stdout == before
