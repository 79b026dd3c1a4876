"""The main job, as the README tells it: three bare nodes to a served model, from a llama.cpp built there, with the shipped inventory."""

from __future__ import annotations

import pathlib

import pytest

from tests.lab import cli, fleet, nodes

pytestmark = [pytest.mark.lab, pytest.mark.build]
_BUSY = (
    *("/proc", "/sys", "/dev", "/run", "/tmp", "/var/log", "/var/cache/wattherd", "/var/lib/systemd"),
    *("/var/lib/wattherd/power", "/var/lib/lab-gpu"),  # what the keeper and the simulated cards keep writing
)
FLEET = ("titan", "atlas", "orin")


@pytest.fixture(scope="module")
def shipped(lab: fleet.Status, tmp_path_factory: pytest.TempPathFactory) -> cli.Project:
    """The checkout's own inventory, with a state of the test's own: another controller than the one of the operator."""
    assert lab.nodes
    made = cli.project(tmp_path_factory.mktemp("shipped"))
    made = cli.Project(made.folder, {**made.environment, "WATTHERD_INVENTORY": str(cli.ROOT / "inventory")})
    said = made.invoke("trust", "--hosts", "gpu-fleet", "--yes")
    assert said.code == 0, said.words
    return made


@pytest.fixture(scope="module")
def deployed(shipped: cli.Project) -> cli.Project:
    """The first run builds llama.cpp for real, unless this machine's cache has the release; 30 minutes are for a slow one."""
    said = shipped.invoke("deploy", "--hosts", "gpu-fleet", timeout_s=2700)
    assert said.code == 0, said.words
    return shipped


def tree(name: str) -> dict[str, tuple[int, int, str]]:
    """Every file of a node outside Wattherd's program cache and what the system itself keeps writing: size, mtime, path."""
    skip = " -o ".join(f"-path {path}" for path in _BUSY)
    done = nodes.run(name, ["sh", "-c", f"find / \\( {skip} \\) -prune -o -printf '%p\\t%s\\t%T@\\t%y %m %u %g %l\\n'"])
    rows = [line.split("\t") for line in done.stdout.splitlines() if line.count("\t") == 3]
    return {path: (int(size), int(float(mtime) * 1e6), more) for path, size, mtime, more in rows if not path.startswith("/home/ops")}


def test_a_real_model_answers_from_each_node(deployed: cli.Project) -> None:
    said = deployed.invoke("ask", "--hosts", "gpu-fleet", "Say hello.", "--json")
    assert said.code == 0, said.words
    for name in FLEET:
        answer = said.host(name)
        assert answer["text"].strip(), f"{name} answered nothing"
        assert answer["model"] == "smol"
        assert answer["prompt_tokens"] > 0
        assert answer["completion_tokens"] > 0
        assert answer["seconds"] > 0


def test_the_server_is_the_build_that_was_asked_for(deployed: cli.Project) -> None:
    assert deployed
    for name in FLEET:
        told = nodes.run(name, ["/opt/wattherd/current/bin/llama-server", "--version"])
        assert "build 11434" in told.stdout + told.stderr


def test_the_server_is_hardened_and_listens_on_loopback_only(deployed: cli.Project) -> None:
    assert deployed
    shown = nodes.run(
        "titan", ["systemctl", "show", "-p", "User,NoNewPrivileges,ProtectSystem,MainPID,NRestarts", "llama@smol.service"]
    ).stdout
    assert "User=llama" in shown
    assert "NoNewPrivileges=yes" in shown
    assert "ProtectSystem=strict" in shown
    assert "NRestarts=0" in shown
    listening = nodes.run("titan", ["ss", "-Hltn", "sport", "=", ":8080"]).stdout
    assert "127.0.0.1:8080" in listening
    assert "0.0.0.0:8080" not in listening


def test_three_nodes_compiled_at_most_once(deployed: cli.Project) -> None:
    facts = deployed.invoke("facts", "--hosts", "gpu-fleet", "--json").document["hosts"]
    releases = {facts[name]["facts"]["release"] for name in FLEET}
    digests = {built["digest"] for name in FLEET for built in facts[name]["facts"]["builds"] if built["fingerprint"] in releases}
    assert (len(releases), len(digests)) == (1, 1), "one release, the same bytes everywhere"


def test_a_second_run_changes_nothing(deployed: cli.Project) -> None:
    pids = {name: nodes.run(name, ["systemctl", "show", "-p", "MainPID", "llama@smol.service"]).stdout for name in FLEET}
    said = deployed.invoke("deploy", "--hosts", "gpu-fleet", "--json")
    assert said.code == 0, said.words
    for name in FLEET:
        assert (said.host(name)["status"], said.host(name)["changed"], said.host(name)["changes"]) == ("ok", 0, [])
        assert nodes.run(name, ["systemctl", "show", "-p", "MainPID", "llama@smol.service"]).stdout == pids[name]


def test_check_and_dry_write_nothing_and_name_exactly_what_the_next_run_changes(deployed: cli.Project, tmp_path: pathlib.Path) -> None:
    more = ["--extra-vars", f"base={{files: [{{path: /etc/wattherd/motd, text: {tmp_path.name}}}]}}", "--json"]
    before = {name: tree(name) for name in FLEET}
    check = deployed.invoke("deploy", "--hosts", "gpu-fleet", "--check", *more)
    dry = deployed.invoke("--dry", "deploy", "--hosts", "gpu-fleet", *more)
    assert {name: tree(name) for name in FLEET} == before
    run = deployed.invoke("deploy", "--hosts", "gpu-fleet", *more)
    back = deployed.invoke("deploy", "--hosts", "gpu-fleet", "--json")
    assert (check.code, dry.code, run.code, back.code) == (0, 0, 0, 0), check.words + dry.words + run.words + back.words
    for name in FLEET:
        assert check.host(name)["changes"] == dry.host(name)["changes"] == run.host(name)["changes"] == ["file:/etc/wattherd/motd"]
        assert back.host(name)["changes"] == ["file:/etc/wattherd/motd"], "no longer wanted: removed"


def test_drift_is_shown_and_mended(deployed: cli.Project) -> None:
    assert nodes.run("atlas", ["systemctl", "stop", "llama@smol.service"]).returncode == 0
    assert nodes.run("atlas", ["rm", "/opt/wattherd/current"]).returncode == 0
    said = deployed.invoke("deploy", "--hosts", "atlas", "--json")
    assert said.code == 0, said.words
    assert set(said.host("atlas")["changes"]) == {"symlink:/opt/wattherd/current", "unit:llama@smol.service"}
    assert deployed.invoke("ask", "--hosts", "atlas", "Hi").code == 0


def test_a_damaged_model_is_fetched_again(deployed: cli.Project) -> None:
    pid = nodes.run("orin", ["systemctl", "show", "-p", "MainPID", "llama@smol.service"]).stdout
    path = nodes.run("orin", ["readlink", "-f", "/var/lib/wattherd/models/smollm2.gguf"]).stdout.strip()
    assert nodes.run("orin", ["sh", "-c", f"printf broken | dd of={path} bs=1 seek=5000 conv=notrunc"]).returncode == 0
    first = deployed.invoke("deploy", "--hosts", "orin", "--json")
    said = deployed.invoke("deploy", "--hosts", "orin", "--json") if first.code else first
    assert said.code == 0, first.words + said.words
    assert "artifact:/var/lib/wattherd/models/smollm2.gguf" in [*first.host("orin")["changes"], *said.host("orin")["changes"]]
    assert nodes.run("orin", ["systemctl", "show", "-p", "MainPID", "llama@smol.service"]).stdout != pid, "it would serve the damaged bytes"
    assert "sent anew" in first.words + said.words
    assert deployed.invoke("ask", "--hosts", "orin", "Hi").code == 0


def test_a_port_in_use_names_who_holds_it_and_nothing_is_touched(deployed: cli.Project) -> None:
    start = "systemd-run --collect --unit=squatter python3 -m http.server 8123 --bind 127.0.0.1; until ss -Hltn | grep -q :8123; do :; done"
    assert nodes.run("orin", ["sh", "-c", start], timeout_s=20).returncode == 0
    before = tree("orin")
    try:
        said = deployed.invoke("deploy", "--hosts", "orin", "--extra-vars", "serve=[{name: smol, model: smollm2, port: 8123}]", "--json")
    finally:
        assert nodes.run("orin", ["systemctl", "stop", "squatter"]).returncode == 0
    assert said.code == 2, said.words
    problem = said.host("orin")["problem"]
    assert problem["code"] == "port-in-use"
    assert "8123" in problem["message"]
    assert "python3" in problem["message"]
    assert said.host("orin")["changed"] == 0
    assert tree("orin") == before, "found before anything was touched"
    assert deployed.invoke("ask", "--hosts", "orin", "Hi").code == 0, "and the old server still answers"
