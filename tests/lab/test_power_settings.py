"""Simulated cards of a real node, set by real calls, read back through the real NVML binding, and given back to what they were."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.lab import cli, fleet, nodes
from tests.lab.simulated import faults, operations

pytestmark = pytest.mark.lab
BEFORE = "/var/lib/wattherd/power/before.json"
#: The owner's own limit of the first card, as his rc.local sets it: below the card's default of 350 W.
OWNERS_W = 300


class Rig:
    """A node with two RTX 3090, and the project that sets them."""

    def __init__(self, name: str, project: cli.Project) -> None:
        self.name = name
        self.project = project
        self.first, self.second = self.run("nvidia-smi --query-gpu=uuid --format=csv,noheader").split()

    def run(self, script: str) -> str:
        return nodes.run(self.name, ["sh", "-c", script]).stdout

    def want(self, power: str) -> None:
        self.project.group(f"roles: [base, power]\npower: {power}\n")

    def invoke(self, *words: str, code: int = 0) -> cli.Said:
        said = self.project.invoke(*words, "--hosts", "all", "--yes", "--json")
        assert said.code == code, said.words
        return said

    def limits(self) -> list[float]:
        """What the cards keep to, in watts."""
        return [float(one) for one in self.run("nvidia-smi --query-gpu=enforced.power.limit --format=csv,noheader,nounits").split()]

    def changes(self, said: cli.Said) -> set[str]:
        return {one for one in said.host(self.name)["changes"] if one.startswith("power:")}

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        return self.project.start(*words, "--hosts", "all", "--yes")


@pytest.fixture(scope="module")
def rig(plain: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    name = os.environ.get("WATTHERD_LAB_POWER_NODE", plain[0])
    operations.simulate(name, "2x3090")
    try:
        project = cli.project(tmp_path_factory.mktemp("power"))
        project.hosts(**{name.replace("-", "_"): next(one.address for one in fleet.status().nodes if one.name == name)})
        assert project.invoke("trust", "--hosts", "all", "--yes").code == 0
        made = Rig(name, project)
        made.run(f"nvidia-smi -i {made.first} -pm 1 && nvidia-smi -i {made.first} -pl {OWNERS_W}")
        yield made
        made.invoke("remove")
        assert made.limits() == [OWNERS_W, 350]
        assert made.run("ls -d /var/lib/wattherd /etc/wattherd/power 2>/dev/null || true") == ""
    finally:
        operations.simulate(name, "none")


def test_a_node_that_is_killed_in_the_middle_converges_and_forgets_nothing(rig: Rig) -> None:
    """kill -9 of the node's session while it sets the first card's limit; the value before stays the one from before all of it."""
    rig.want(f"{{limit: 250, clocks: '0,1400', persistence: true, cards: {{{rig.second}: {{limit: 200}}}}}}")
    foreseen = rig.changes(rig.invoke("deploy", "--check"))
    assert foreseen == {
        *(f"power:{rig.first}/{setting}" for setting in ("limit_w", "clocks_mhz")),
        *(f"power:{rig.second}/{setting}" for setting in ("limit_w", "clocks_mhz", "persistence")),
    }
    assert rig.limits() == [OWNERS_W, 350]
    run = rig.start("deploy")
    reached = f"grep -qs 'power:{rig.first}/limit_w' /var/lib/wattherd/journal.json"
    # The lock's file holds the number of the session that has it.
    rig.run(f"end=$(($(date +%s) + 60)); until {reached}; do [ $(date +%s) -lt $end ] || exit 1; done; kill -9 $(cat /run/wattherd.lock)")
    assert run.wait(60) != 0
    assert rig.changes(rig.invoke("deploy")) <= foreseen
    assert rig.limits() == [250, 200]
    rows = json.loads(rig.run(f"cat {BEFORE}"))
    assert rows[rig.first] == {"limit_w": [float(OWNERS_W)], "clocks_mhz": []}, "its persistence was on already"
    assert rows[rig.second] == {"limit_w": [350.0], "clocks_mhz": [], "persistence": [0.0]}
    assert rig.invoke("deploy").host(rig.name)["changes"] == []


def test_a_lost_card_and_one_that_cannot_be_set_each_say_so_alone(rig: Rig) -> None:
    """Lost is a failure, with everything else done; no such setting is none, in spite of exit code 0 and "All done."."""
    rig.want("{limit: 220, clocks: '0,1400', persistence: true}")
    faults.set_fault(rig.name, "0", "lost")
    faults.set_fault(rig.name, "1", "unsupported")
    try:
        said = rig.invoke("deploy", code=2)
    finally:
        faults.set_fault(rig.name, "all", "clear")
    told = said.host(rig.name)
    assert told["problem"]["code"] == "card-lost"
    assert "lost (Xid 79): reboot this node" in told["problem"]["message"]
    assert (told["failed"], told["skipped"]) == (3, 1), "the second card's clocks and persistence are as they should be"
    assert "power-policy:node" in told["changes"]
    assert rig.limits()[1] == 200, "and the first one is the keeper's as soon as it is back"
    assert "use clocks instead" in rig.run("cat /var/lib/wattherd/power/unsupported.json")


def test_restore_goes_back_to_the_owners_own_value(rig: Rig) -> None:
    """300 W on a card of 350: not its default. The next run would set it again."""
    foreseen = rig.changes(rig.invoke("power-apply", "--restore", "--check"))
    assert rig.limits()[1] == 200
    assert rig.changes(rig.invoke("power-apply", "--restore")) == foreseen
    assert f"power:{rig.first}/limit_w" in foreseen
    assert rig.limits() == [OWNERS_W, 350]
    assert rig.run("nvidia-smi --query-gpu=persistence_mode --format=csv,noheader").split() == ["Enabled", "Disabled"]
    assert rig.changes(rig.invoke("power-apply", "--check")) >= {f"power:{rig.first}/limit_w", f"power:{rig.first}/clocks_mhz"}
