"""The keeper on a real node with simulated cards: what it was set to stays, whoever reboots, reloads, fights or is killed.

Its looks are a second apart here instead of twenty; everything else is as deployed.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab import cli, fleet, nodes
from tests.lab.simulated import operations
from tests.lab.waiting import until

pytestmark = pytest.mark.lab
UNIT = "wattherd-keeper.service"
STATE = "/var/lib/wattherd/power"
DROP_IN = f"/etc/systemd/system/{UNIT}.d"
GROUP = "roles: [base, power]\npower: {limit: %d, persistence: true, confirm_s: 30}\n"


class Node:
    def __init__(self, name: str, project: cli.Project) -> None:
        self.name = name
        self.project = project
        self.card = self.run("nvidia-smi --query-gpu=uuid --format=csv,noheader -i 0").strip()

    def run(self, script: str) -> str:
        return nodes.run(self.name, ["sh", "-c", script]).stdout

    def becomes(self, watts: float, limit_s: float) -> None:
        until(
            self.name, f"nvidia-smi -i {self.card} --query-gpu=power.limit --format=csv,noheader,nounits | grep -qx '{watts:.2f}'", limit_s
        )

    def kept(self, name: str = "keeper.json") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((nodes.root(self.name) / STATE.lstrip("/") / name).read_text())
        return found

    def drift(self) -> dict[str, Any]:
        rows = self.kept().get("drifts", [])
        return next((one for one in rows if (one["owner"], one["setting"]) == (self.card, "limit_w")), {})

    def pid(self) -> int:
        return int(self.run(f"systemctl show --value --property=MainPID {UNIT}"))


@pytest.fixture(scope="module")
def node(plain: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Two cards at 200 W, held; afterwards nothing of it is left."""
    name = os.environ.get("WATTHERD_LAB_KEEPER_NODE", plain[1])
    operations.simulate(name, "2x3090")
    project = cli.project(tmp_path_factory.mktemp("keeper"))
    project.hosts(**{name.replace("-", "_"): next(one.address for one in fleet.status().nodes if one.name == name)})
    project.group(GROUP % 200)
    made = Node(name, project)
    made.run(f"mkdir -p {DROP_IN}; printf '[Service]\\nEnvironment=WATTHERD_KEEPER_INTERVAL_S=1\\n' > {DROP_IN}/quick.conf")
    assert project.invoke("trust", "--hosts", "all", "--yes").code == 0
    said = project.invoke("deploy", "--hosts", "all")
    assert said.code == 0, said.words
    yield made
    said = project.invoke("remove", "--hosts", "all", "--yes")
    assert said.code == 0, said.words
    left = made.run(f"rm -r {DROP_IN}; systemctl daemon-reload; ls -d /opt/wattherd {STATE} /etc/wattherd/power 2>/dev/null || true")
    limits = made.run("nvidia-smi --query-gpu=power.limit --format=csv,noheader,nounits").split()
    operations.simulate(name, "none")
    assert (left, limits) == ("", ["350.00", "350.00"])


def test_what_was_deployed_is_held_by_a_small_resident_that_writes_nothing(node: Node) -> None:
    node.becomes(200, 20)
    until(node.name, f"test -s {STATE}/keeper.json")
    status = node.run(f"cat /proc/{node.pid()}/status")
    assert int(status.split("VmRSS:")[1].split()[0]) < 32 * 1024, "no NVML in it: that is the child's"
    assert "libnvidia" not in node.run(f"cat /proc/{node.pid()}/maps")
    assert int(node.run(f"ls -l /proc/{node.pid()}/fd | grep -c socket || true")) <= 2, "its journal, and no network"


def test_a_reboot_is_made_good_at_once_and_a_cap_that_was_set_back_is_counted(node: Node) -> None:
    nodes.reboot(node.name)
    node.becomes(200, 60)
    until(node.name, f"grep -q '\"reapplied\": 1' {STATE}/keeper.json", 10)
    assert node.kept()["reapplied_why"] == "the node booted"
    assert node.drift() == {}, "a reboot is nobody's drift"
    node.run(f"nvidia-smi -i {node.card} -pl 300")
    node.becomes(200, 60)
    until(node.name, f"grep -q '\"corrected_s\"' {STATE}/keeper.json", 10)
    found = node.drift()
    assert (found["total"], found["since_boot"], found["found"], found["wanted"]) == (1, 1, "300 W", "200 W")
    assert "is_open" not in found
    assert "its power limit is 300 W, not 200 W" in node.run(f"journalctl -u {UNIT} -b --no-pager -o cat")


def test_a_driver_that_is_loaded_anew_gets_its_policy_again(node: Node) -> None:
    before = node.kept().get("reapplied", 0)
    operations.reload(node.name)
    node.becomes(200, 60)
    until(node.name, f"grep -q '\"reapplied\": {before + 1}' {STATE}/keeper.json", 10)
    assert node.kept()["reapplied_why"] == "the driver was loaded anew"


def test_a_writer_that_never_stops_is_named_and_not_fought(node: Node) -> None:
    loop = f"while nvidia-smi -i {node.card} -pl 280; do sleep 0.5; done"
    node.run(f"systemd-run --quiet --unit=night-cap sh -c '{loop}'")
    try:
        until(node.name, f"grep -q conflict_s {STATE}/keeper.json", 30)
        assert node.drift()["writers"][0].startswith("night-cap.service: ")
        node.becomes(280, 10)
        said = node.project.invoke("doctor", "--hosts", "all", "--json")
        found = {one["code"]: one for one in said.host(node.name)["findings"]}
        assert found["power-conflict"]["do"] == "stop night-cap.service, then invoke power-apply"
        journal = node.run(f"journalctl -u {UNIT} -b --no-pager -o cat")
        assert journal.count("left alone from now on") == 1
    finally:
        node.run("systemctl stop night-cap")
    assert node.run(f"nvidia-smi -i {node.card} --query-gpu=power.limit --format=csv,noheader").strip() == "280.00 W"
    said = node.project.invoke("deploy", "--hosts", "all")
    assert said.code == 0, said.words
    node.becomes(200, 10)
    until(node.name, f"! grep -q conflict_s {STATE}/keeper.json", 10)


def test_a_policy_whose_controller_was_killed_goes_back_also_past_a_killed_keeper(node: Node) -> None:
    node.project.group(GROUP % 150)
    run = node.project.start("deploy", "--hosts", "all")
    try:
        until(node.name, f"test -s {STATE}/pending.json", 30)
        node.becomes(150, 30)
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    before = node.pid()
    node.run(f"kill -9 {before}")
    node.becomes(200, 60)
    until(node.name, f"test ! -e {STATE}/pending.json", 10)
    assert node.pid() not in {0, before}, "systemd started it again"
    back = node.kept()["put_back"]
    assert "nobody confirmed it within 30 s" in back["why"]
    policy = json.loads(node.run("cat /etc/wattherd/power/policy.json"))
    assert policy["cards"][node.card]["limit_w"] == 200.0
    node.project.group(GROUP % 200)
