"""A sweep on simulated cards whose limit really slows the real server: a knee, written down; and the limit that was there comes back.

What rests on how fast this machine computes is marked `quiet` and not run with the others: `pytest -m quiet`, with nothing else at work.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import shutil
from collections.abc import Sequence
from decimal import Decimal

import pytest
import yaml

from tests.lab import cli, fleet, nodes, waiting
from wattherd.power import tuning_record

pytestmark = [pytest.mark.lab, pytest.mark.build]
NODE = os.environ.get("WATTHERD_LAB_TUNE_NODE", "titan")
SHIPPED = cli.ROOT / "inventory"
QUERY = ("nvidia-smi", "--query-gpu=power.limit", "--format=csv,noheader,nounits")
RECORD = tuning_record.RECORD.lstrip("/")


@pytest.fixture(scope="module")
def project(lab: fleet.Status, tmp_path_factory: pytest.TempPathFactory) -> cli.Project:
    """The shipped inventory of one host, in a folder of the test's own: what is written into it goes with the test."""
    made = cli.project(tmp_path_factory.mktemp("tune"))
    made.hosts(**{NODE.replace("-", "_"): next(one.address for one in lab.nodes if one.name == NODE)})
    shutil.copy(SHIPPED / "models.yaml", made.folder / "inventory")
    made.group((SHIPPED / "group_vars/all.yaml").read_text())
    made.write(f"inventory/host_vars/{NODE}.yaml", (SHIPPED / "host_vars/titan.yaml").read_text())
    assert made.invoke("trust", "--hosts", "these", "--yes").code == 0
    said = made.invoke("deploy", "--hosts", "these", timeout_s=2700)
    assert said.code == 0, said.words
    return made


def limits() -> list[float]:
    return [float(line) for line in nodes.run(NODE, QUERY).stdout.split()]


def tuned(project: cli.Project) -> pathlib.Path:
    return project.folder / f"inventory/host_vars/{NODE}.yaml"


def falls(values: Sequence[float], slack: float) -> bool:
    return all(later <= earlier * slack for earlier, later in itertools.pairwise(values))


def swept(project: cli.Project, seconds: str) -> cli.Said:
    words = (
        "power-tune",
        "--hosts",
        "these",
        "--steps",
        "6",
        "--weight",
        "prefill",
        "--floor",
        "55",
        "--hours-per-day",
        "6",
        "--write",
        "--json",
    )
    said = project.invoke(*words, "--seconds-per-step", seconds)
    assert said.code == 0, said.words
    return said


def test_a_sweep_measures_every_limit_and_sets_the_cards_back(project: cli.Project) -> None:
    """Watts and clocks are the simulation's and certain; how fast a busy machine computes is not, and is another test's."""
    before = limits()
    said = swept(project, "2")
    host = said.host(NODE)
    assert host["simulated"] is True
    assert "simulated card" in said.words
    steps, cards = host["steps"], len(host["cards"])
    assert len(steps) >= 6
    assert steps[0]["limit_w"] == 350
    assert steps[-1]["limit_w"] == 100
    for phase in ("prefill", "decode"):
        figures = [one[phase] for one in steps]
        for step, figure in zip(steps, figures, strict=True):
            assert figure["watts"] <= step["limit_w"] * cards * 1.05, step
            assert figure["tok_s"] > 0
            assert figure["tok_j"] == pytest.approx(figure["tok_s"] / figure["watts"], rel=1e-3)
            assert figure["method"] == "energy counter"
        assert figures[-1]["watts"] < figures[0]["watts"]
        assert figures[-1]["clock_mhz"] < figures[0]["clock_mhz"]
        assert figures[-1]["throttled_percent"] > 50
    assert limits() == before
    assert not (nodes.root(NODE) / RECORD).exists()


@pytest.mark.quiet
def test_a_sweep_finds_the_knee_and_writes_it(project: cli.Project) -> None:
    written = tuned(project).read_text()
    said = swept(project, "4")
    host = said.host(NODE)
    steps = host["steps"]
    for phase in ("prefill", "decode"):
        figures = [one[phase] for one in steps]
        assert falls([figure["watts"] for figure in figures], 1.1)
        assert falls([figure["clock_mhz"] for figure in figures], 1.02)
    assert steps[-1]["prefill"]["tok_s"] < steps[0]["prefill"]["tok_s"], said.words
    best = host["recommendation"]
    assert best["value"] is not None, said.words
    assert 100 <= best["value"] < best["reference"] == 350, said.words
    assert best["kept_percent"]["prefill"] >= 55
    year = best["year"]
    assert Decimal(year["cost"]) == Decimal(year["energy_kwh"]) * Decimal("0.31")
    # Written, and nothing else touched.
    after = tuned(project).read_text()
    assert after.startswith(written)
    rows = yaml.safe_load(after)["power_tuned"]
    assert {row["limit_w"] for row in rows.values()} == {best["value"]}
    assert sorted(rows) == sorted(one["uuid"] for one in host["cards"])


def test_a_killed_controller_leaves_the_limit_that_was_there(project: cli.Project) -> None:
    before = limits()
    controller = project.start("power-tune", "--hosts", "these", "--steps", "6", "--seconds-per-step", "2")
    try:
        waiting.until_true(lambda: limits() != before, 60)
        assert (nodes.root(NODE) / RECORD).exists()
    finally:
        controller.kill()
        controller.wait()
    waiting.until_true(lambda: not (nodes.root(NODE) / RECORD).exists(), 30)
    assert limits() == before


def test_a_killed_session_is_set_back_by_its_guard(project: cli.Project) -> None:
    before = limits()
    controller = project.start("power-tune", "--hosts", "these", "--steps", "6", "--seconds-per-step", "2")
    try:
        waiting.until_true(lambda: limits() != before, 60)
        nodes.run(NODE, ["sh", "-c", "kill -9 $(cat /run/wattherd.lock)"])
        waiting.until_true(lambda: not (nodes.root(NODE) / RECORD).exists(), 30)
        assert limits() == before
    finally:
        controller.kill()
        controller.wait()


def test_a_check_tells_and_touches_nothing(project: cli.Project) -> None:
    before = limits()
    said = project.invoke("power-tune", "--hosts", "these", "--check")
    assert said.code == 0, said.words
    assert "8 power limits from 350 down to 100 W" in said.words
    assert "nothing was set" in said.words
    assert limits() == before
