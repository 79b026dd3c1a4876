"""`power-status` on real nodes with simulated cards: what cards, holders and boards really are, beside what is wrong; nothing changed.

The bare node has nothing of ours; titan, atlas and orin are as the shipped inventory makes them, with a real server on titan's cards.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import pytest

from tests.lab import cli, fleet, nodes
from tests.lab.simulated import faults, operations
from tests.lab.waiting import until

pytestmark = pytest.mark.lab
GHOST = "10.213.7.250"
PRICE = "0.31"
#: For work on this file beside others: another bare node, and another one that serves.
BARE, SERVES = "WATTHERD_LAB_STATUS_BARE", "WATTHERD_LAB_STATUS_SERVES"
_PLACES = ("/etc", "/opt", "/usr/local", "/var/lib/wattherd", "/root", "/srv")


def address(name: str) -> str:
    return next(node.address for node in fleet.status().nodes if node.name == name)


def tree(name: str) -> str:
    """Everything in the places where something of ours would lie: names, sizes, times."""
    script = f"find {' '.join(_PLACES)} -printf '%p %s %T@ %m %l\\n' 2>/dev/null | sort"
    return nodes.run(name, ["sh", "-c", script]).stdout


def drawn(name: str) -> list[float]:
    """By a tool that is not ours."""
    said = nodes.run(name, ["nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits"]).stdout
    return [float(one) for one in said.split()]


def cards(said: cli.Said, host: str) -> list[Mapping[str, Any]]:
    return [one for one in said.document["cards"] if one["host"] == host]


# -- a node where nothing of ours is


@pytest.fixture(scope="module")
def name(plain: tuple[str, str]) -> Iterator[str]:
    """Two RTX 3090 in a plain node, and out of it again."""
    one = os.environ.get(BARE, plain[0])
    operations.simulate(one, "2x3090")
    yield one
    operations.simulate(one, "none")


@pytest.fixture(scope="module")
def here(name: str, tmp_path_factory: pytest.TempPathFactory) -> cli.Project:
    made = cli.project(tmp_path_factory.mktemp("status"))
    made.hosts(bare=address(name))
    made.group(f"roles: [base]\nprice_per_kwh: {PRICE}\n")
    said = made.invoke("trust", "--hosts", "all", "--yes")
    assert said.code == 0, said.words
    return made


@pytest.fixture(scope="module")
def measured(here: cli.Project, name: str) -> cli.Said:
    """The first look, at empty cards: what later ones are compared with."""
    before = tree(name)
    said = here.invoke("power-status", "--json")
    assert said.code == 0, said.words
    assert tree(name) == before, "a look changed something"
    return said


def test_empty_cards_are_read_as_they_are(measured: cli.Said, name: str) -> None:
    rows = cards(measured, "bare")
    assert [row["name"] for row in rows] == ["NVIDIA GeForce RTX 3090"] * 2
    for row, watts in zip(rows, drawn(name), strict=True):
        assert row["drawn_w"] == pytest.approx(watts, abs=3.0)
        assert (row["status"], row["desired_w"], row["requested_w"], row["enforced_w"]) == ("ok", None, 350.0, 350.0)
        assert (row["source"], row["sensor"], row["averaging_s"], row["pstate"], row["holders"]) == ("nvml", "average", 1.0, 8, [])
        assert row["simulated"] is True
        assert row["empty_w"] == pytest.approx(watts, abs=3.0)
    assert measured.document["idle_waste"]["cards"] == []
    assert measured.host("bare")["status"] == "ok"


@pytest.mark.usefixtures("measured")
def test_another_users_process_costs_what_was_measured(here: cli.Project, name: str) -> None:
    pid = operations.hold(name, "0")
    try:
        said = here.invoke("power-status", "--json")
        held, free = cards(said, "bare")
        assert [(one["pid"], one["user"], one["model"]) for one in held["holders"]] == [(pid, "carol", None)]
        assert free["holders"] == []
        waste = said.document["idle_waste"]
        (line,) = waste["cards"]
        watts = Decimal(line["waste_w"])
        assert watts == Decimal(f"{line['held_w']:.3f}") - Decimal(f"{line['empty_w']:.3f}") > 20
        assert Decimal(waste["kwh_per_year"]) == watts * 8760 / 1000
        assert Decimal(waste["cost_per_year"]) == Decimal(waste["kwh_per_year"]) * Decimal(PRICE)
        assert (waste["currency"], waste["simulated"]) == ("EUR", True)
        words = here.invoke("power-status").words
        assert "python3 (carol)" in words
        assert "idle waste (simulated): " in words
        assert " EUR a year" in words
    finally:
        operations.release(name, pid)


@pytest.mark.usefixtures("measured")
def test_a_lost_card_and_a_dead_host_hide_nothing(here: cli.Project, name: str) -> None:
    here.hosts(ghost=GHOST, bare=address(name))
    faults.set_fault(name, "1", "lost")
    try:
        said = here.invoke("power-status", "--json")
        assert said.code == 6, said.words
        well, lost = cards(said, "bare")
        assert (well["status"], lost["status"]) == ("ok", "failed")
        assert well["drawn_w"] > 0
        assert (lost["drawn_w"], lost["enforced_w"], lost["temperature_c"]) == (None, None, None)
        assert "GPU is lost" in lost["reason"]
        assert said.host("ghost")["status"] == "unreachable"
        assert said.host("bare")["status"] == "failed"
        last = here.invoke("power-status").words.strip().splitlines()[-1]
        assert last == "wrong: bare 1 RTX 3090 (failed), ghost (unreachable)"
    finally:
        faults.set_fault(name, "1", "clear")
        here.hosts(bare=address(name))


class Watching:
    """`power-status --watch 1 --json` as a child; its documents as they come."""

    def __init__(self, project: cli.Project) -> None:
        self.process = subprocess.Popen(
            # Whoever starts the tests in the background has them ignore Ctrl-C, and so every child of theirs.
            ["env", "--default-signal=INT", *project.argv("power-status", "--watch", "1", "--json")],
            cwd=cli.ROOT,
            env=dict(project.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def until(self, holds: Callable[[Any], bool], limit_s: float = 60) -> Any:
        assert self.process.stdout is not None
        end_s = time.monotonic() + limit_s
        for line in self.process.stdout:
            document = json.loads(line)
            if holds(document):
                return document
            assert time.monotonic() < end_s, f"never came true: {line[:2000]}"
        raise AssertionError("the watch ended")


@pytest.mark.usefixtures("measured")
def test_a_watch_follows_and_a_lost_host_comes_back(here: cli.Project, name: str) -> None:
    watching = Watching(here)
    pid = 0
    try:
        watching.until(lambda told: bool(told["cards"]))
        pid = operations.hold(name, "0")
        told = watching.until(lambda told: bool(told["cards"]) and bool(told["cards"][0]["holders"]))
        assert told["cards"][0]["drawn_w"] > told["cards"][0]["empty_w"]
        watching.until(lambda told: told["idle_waste"]["kwh_per_year"] is not None)
        for session in nodes.run(name, ["pgrep", "-u", "ops", "-x", "sshd"]).stdout.split():
            nodes.run(name, ["kill", session], check=False)
        told = watching.until(lambda told: told["hosts"]["bare"]["status"] == "unreachable")
        assert told["hosts"]["bare"]["problem"]["code"] in {"stream-cut", "unreachable"}
        watching.until(lambda told: told["hosts"]["bare"]["status"] == "ok" and len(told["cards"]) == 2)
        watching.process.send_signal(signal.SIGINT)
        assert watching.process.wait(20) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            watching.process.kill()
        watching.process.wait(20)
        if pid:
            operations.release(name, pid)


# -- the fleet


@pytest.fixture(scope="module")
def serves() -> str:
    return os.environ.get(SERVES, "titan")


@pytest.fixture(scope="module")
def shipped(lab: fleet.Status, serves: str, tmp_path_factory: pytest.TempPathFactory) -> cli.Project:
    """The checkout's own inventory, or its settings for another node."""
    assert lab.nodes
    made = cli.project(tmp_path_factory.mktemp("shipped"))
    if serves == "titan":
        made = cli.Project(made.folder, {**made.environment, "WATTHERD_INVENTORY": str(cli.ROOT / "inventory")})
    else:
        made.hosts(**{serves.replace("-", "_"): address(serves)})
        for part in ("group_vars/all.yaml", "models.yaml"):
            made.write(f"inventory/{part}", (cli.ROOT / "inventory" / part).read_text())
    said = made.invoke("trust", "--hosts", "all", "--yes")
    assert said.code == 0, said.words
    return made


def test_each_kind_of_card_and_board_tells_its_own_figures(shipped: cli.Project, serves: str) -> None:
    if serves != "titan":
        pytest.skip("only the shipped fleet has one of each kind")
    said = shipped.invoke("power-status", "--hosts", "gpu-fleet", "--json")
    assert said.code == 0, said.words
    assert all(one["simulated"] for one in said.document["cards"])
    for row in cards(said, "titan"):
        assert (row["desired_w"], row["desired_from"], row["sensor"]) == (280.0, "inventory", "average")
        assert (row["status"] == "ok") == (row["requested_w"] == row["enforced_w"] == 280.0 and row["applied"] is True)
    (p40,) = cards(said, "atlas")
    assert (p40["desired_w"], p40["sensor"], p40["energy_mj"]) == (200.0, "instant", None)
    assert p40["unknown"]["energy_mj"]
    (orin,) = cards(said, "orin")
    assert (orin["uuid"], orin["source"], orin["enforced_w"]) == ("board", "ina3221", None)
    assert orin["desired"] == {"mode": "25W"}
    assert orin["basis"] == "module, not board input"
    assert orin["drawn_w"] > 1


@pytest.mark.build
def test_the_watts_follow_the_real_server(shipped: cli.Project, serves: str) -> None:
    said = shipped.invoke("deploy", "--hosts", serves, timeout_s=2700)
    assert said.code == 0, said.words
    unit = "llama@smol.service"
    nodes.run(serves, ["systemctl", "stop", unit])
    try:
        empty = shipped.invoke("power-status", "--hosts", serves, "--json")
        assert empty.code == 0, empty.words
    finally:
        nodes.run(serves, ["systemctl", "start", unit])
    until(serves, "curl -sf --unix-socket /run/wattherd/llama-smol/llama.sock http://localhost/health")
    until(serves, "test $(nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits | sort -n | tail -n 1) -eq 0")
    loaded = shipped.invoke("power-status", "--hosts", serves, "--json")
    assert loaded.code == 0, loaded.words
    for before, after in zip(cards(empty, serves), cards(loaded, serves), strict=True):
        assert before["holders"] == []
        (holder,) = after["holders"]
        assert (holder["name"], holder["unit"], holder["asleep"]) == ("llama-server", unit, False)
        assert holder["model"].startswith("smol")
        assert after["drawn_w"] > before["drawn_w"] + 10
        assert after["status"] == "ok", after["reason"]
    waste = loaded.document["idle_waste"]
    assert len(waste["cards"]) == len(cards(loaded, serves))
    assert Decimal(waste["kwh_per_year"]) > 100


def test_a_look_leaves_no_trace_on_the_controller_but_its_memory(measured: cli.Said, here: cli.Project) -> None:
    """What cards draw empty is remembered here, for a node that nobody keeps."""
    (memory,) = pathlib.Path(here.environment["WATTHERD_STATE"]).rglob("empty-draw.json")
    kept = json.loads(memory.read_text())
    assert set(kept) == {"bare"}
    assert set(kept["bare"]) == {row["uuid"] for row in cards(measured, "bare")}
