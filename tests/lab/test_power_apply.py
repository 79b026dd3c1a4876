"""The operator's evening with power: see what would change, apply it, prove it, be refused with reasons, and go back.

With the shipped inventory on the lab's own fleet: titan has two RTX 3090, atlas a P40, orin is an Orin NX, all simulated.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest
import yaml

from tests.lab import cli, fleet, nodes

pytestmark = pytest.mark.lab
FLEET = ("titan", "atlas", "orin")
POLICY = "/etc/wattherd/power/policy.json"


def limits(name: str) -> list[float]:
    """What the cards themselves say, by a tool that is not ours."""
    said = nodes.run(name, ["nvidia-smi", "--query-gpu=power.limit", "--format=csv,noheader,nounits"]).stdout
    return [float(line) for line in said.split()]


def mode() -> str:
    found = re.search(r"NV Power Mode: (\S+)", nodes.run("orin", ["nvpmodel", "-q"]).stdout)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def shipped(lab: fleet.Status, tmp_path_factory: pytest.TempPathFactory) -> Iterator[cli.Project]:
    """The checkout's own inventory and a state of the test's own. Cards and board are left as they were found: held, or not."""
    assert lab.nodes
    made = cli.project(tmp_path_factory.mktemp("power"))
    made = cli.Project(made.folder, {**made.environment, "WATTHERD_INVENTORY": str(cli.ROOT / "inventory")})
    said = made.invoke("trust", "--hosts", "gpu-fleet", "--yes")
    assert said.code == 0, said.words
    held = nodes.run("titan", ["test", "-e", POLICY], check=False).returncode == 0
    back = made.invoke("power-apply", "--hosts", "gpu-fleet", "--restore")
    assert back.code == 0, back.words
    yield made
    after = made.invoke("power-apply", "--hosts", "gpu-fleet", *([] if held else ["--restore"]))
    assert after.code == 0, after.words


@pytest.fixture(scope="module")
def before(shipped: cli.Project) -> dict[str, object]:
    assert shipped
    return {"titan": limits("titan"), "atlas": limits("atlas"), "orin": mode()}


@pytest.fixture(scope="module")
def checked(shipped: cli.Project, before: dict[str, object]) -> cli.Said:
    assert before == {"titan": [350, 350], "atlas": [250], "orin": "40W"}
    return shipped.invoke("power-apply", "--hosts", "gpu-fleet", "--check", "--diff")


@pytest.fixture(scope="module")
def applied(shipped: cli.Project, checked: cli.Said) -> cli.Project:
    assert checked.code == 0, checked.words
    said = shipped.invoke("power-apply", "--hosts", "gpu-fleet", "--json")
    assert said.code == 0, said.words
    for name in FLEET:
        assert said.host(name)["status"] == "changed"
        assert said.host(name)["problem"] is None
    return shipped


def test_a_check_shows_the_exact_watts_and_changes_nothing(checked: cli.Said, before: dict[str, object]) -> None:
    assert before
    assert checked.words.count("limit_w: 350 W -> 280 W") == 2
    assert checked.words.count("limit_w: 250 W -> 200 W") == 1
    assert "mode: 40W -> 25W" in checked.words


def test_what_was_chosen_is_what_the_cards_say(applied: cli.Project) -> None:
    assert applied
    assert limits("titan") == [280, 280]
    assert limits("atlas") == [200]
    assert mode() == "25W"
    for name in FLEET:
        assert nodes.run(name, ["systemctl", "is-active", "wattherd-keeper.service"]).stdout.strip() == "active"


def test_power_status_says_that_what_was_chosen_is_enforced_and_by_which_sensor(applied: cli.Project) -> None:
    said = applied.invoke("power-status", "--hosts", "gpu-fleet", "--json")
    assert said.code == 0, said.words
    cards = {name: [row for row in said.document["cards"] if row["host"] == name] for name in FLEET}
    assert [(row["desired_w"], row["enforced_w"], row["status"]) for row in cards["titan"]] == [(280, 280, "ok"), (280, 280, "ok")]
    assert [(row["desired_w"], row["enforced_w"], row["status"]) for row in cards["atlas"]] == [(200, 200, "ok")]
    assert all(row["drawn_w"] > 0 and row["source"] for rows in cards.values() for row in rows)


def test_a_second_run_changes_nothing(applied: cli.Project) -> None:
    said = applied.invoke("power-apply", "--hosts", "gpu-fleet", "--json")
    assert said.code == 0, said.words
    for name in FLEET:
        assert (said.host(name)["status"], said.host(name)["changes"]) == ("ok", [])


def test_over_budget_is_refused_with_limits_that_would_fit(applied: cli.Project) -> None:
    more = "power={limit: 350, persistence: true, base_load_w: 90, budget_w: 700}"
    said = applied.invoke("power-apply", "--hosts", "titan", "--extra-vars", more, "--json")
    assert said.code == 2, said.words
    problem = said.host("titan")["problem"]
    assert problem["code"] == "over-budget"
    assert "350 + 350 + 90 W for the rest" in problem["message"]
    assert limits("titan") == [280, 280]
    fits = yaml.safe_load(problem["context"]["proposal"])
    assert fits == {"power": {"limit": 305, "persistence": True, "base_load_w": 90, "budget_w": 700}}
    check = applied.invoke("power-apply", "--hosts", "titan", "--check", "--extra-vars", problem["context"]["proposal"])
    assert check.code == 0, "what it proposes is what it takes"
    assert check.words.count("limit_w: 280 W -> 305 W") == 2


def test_a_circuit_counts_hosts_that_are_not_in_the_run(applied: cli.Project) -> None:
    """atlas as it was last seen: 200 W and 60 W for the rest."""
    inventory = applied.folder / "with-circuit"
    shutil.copytree(cli.ROOT / "inventory", inventory, ignore=shutil.ignore_patterns("lab.yaml"))
    (inventory / "sites.yaml").write_text("circuits: {attic: {volts: 230, amps: 4, usable_percent: 80, hosts: 'titan:atlas'}}\n")
    said = applied.invoke("power-apply", "--hosts", "titan", "--inventory", str(inventory), "--json")
    assert said.code == 2, said.words
    problem = said.host("titan")["problem"]
    assert problem["code"] == "over-budget"
    assert "circuit attic bears 736 W (230 V times 4 A, 80 % of it)" in problem["message"]
    assert "titan 650 W (280 + 280 + 90 W for the rest); atlas 260 W (200 + 60 W for the rest)" in problem["message"]
    assert yaml.safe_load(problem["context"]["proposal"])["power"]["limit"] == 193


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--hosts", "titn"], 1, "titan"),
        (["--hosts", "titan", "--extra-vars", "power={limit: 80}"], 2, "takes 100 to 375 W, not 80 W"),
        (["--hosts", "orin", "--extra-vars", "power={mode: 26W}"], 2, "it has MAXN_SUPER, 10W, 15W, 25W, 40W"),
        (["--hosts", "titan", "--extra-vars", "roles=[base]"], 0, "power is not in its roles: add it there"),
    ],
)
def test_what_cannot_be_meant_is_said_and_nothing_is_touched(applied: cli.Project, words: list[str], code: int, said: str) -> None:
    told = applied.invoke("power-apply", *words)
    assert told.code == code, told.words
    assert said in told.words
    assert limits("titan") == [280, 280]
    assert mode() == "25W"


def test_a_node_that_is_down_stops_nobody(applied: cli.Project) -> None:
    nodes.stop_sshd("atlas")
    try:
        said = applied.invoke("power-apply", "--hosts", "titan:atlas", "--json")
    finally:
        nodes.start_sshd("atlas")
    assert said.code == 4, said.words
    assert said.host("titan")["status"] == "ok"
    assert said.host("atlas")["status"] == "unreachable"


def test_restore_goes_back_to_what_was_there_before_the_first_change(applied: cli.Project, before: dict[str, object]) -> None:
    check = applied.invoke("power-apply", "--hosts", "gpu-fleet", "--restore", "--check")
    assert check.code == 0, check.words
    assert limits("titan") == [280, 280]
    said = applied.invoke("power-apply", "--hosts", "gpu-fleet", "--restore", "--json")
    assert said.code == 0, said.words
    assert {"titan": limits("titan"), "atlas": limits("atlas"), "orin": mode()} == before
