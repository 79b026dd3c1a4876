"""Cards of a node read for real: the packed program, the packed pynvml, a libnvidia-ml and an nvidia-smi that answer, refuse, or hang."""

from __future__ import annotations

import io
import json
import os
import pathlib
import re
import shutil
import time
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab import nodes, waiting
from tests.lab.simulated import faults, operations
from wattherd.link import archive
from wattherd.power import look, reading
from wattherd.wire import fields

pytestmark = pytest.mark.lab
PROGRAM = "/root/reading-program"
#: cgroup version 1, without which the lab has no way to make a process that cannot be killed.
FREEZER = pathlib.Path("/sys/fs/cgroup/freezer")
PRELUDE = (
    f"import json, sys; sys.path.insert(0, {PROGRAM!r}); from wattherd import machine; from wattherd.wire import fields; "
    "node = machine.Machine(); "
)
LOOK = "from wattherd.power import look; print(json.dumps(fields.plain(look.look(node, limit_s={limit_s}))))"


class Node:
    """One node with the program unpacked on it as the boot stage does."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.root = nodes.root(name)
        zipfile.ZipFile(io.BytesIO(archive.program().body)).extractall(self.root / PROGRAM.lstrip("/"))

    def python(self, code: str) -> Any:
        return json.loads(nodes.run(self.name, ["python3", "-I", "-S", "-c", PRELUDE + code]).stdout)

    def look(self, limit_s: float = 15) -> reading.Look:
        return fields.build(reading.Look, self.python(LOOK.format(limit_s=limit_s)))

    def fault(self, fault: str, card: str = "all") -> None:
        """A fault that is remembered for a minute is forgotten with it."""
        (self.root / look.REMEMBERED.lstrip("/")).unlink(missing_ok=True)
        faults.set_fault(self.name, card, fault)

    def simulate(self, kind: str) -> None:
        operations.simulate(self.name, kind)


@pytest.fixture(scope="module")
def empty(lab: object) -> Iterator[Node]:
    assert lab
    one = Node(os.environ.get("WATTHERD_READING_NODE", "node-04"))
    yield one
    one.simulate("none")
    shutil.rmtree(one.root / PROGRAM.lstrip("/"))
    for left in ("run/wattherd-cards.json", "run/wattherd-probe.lock", "var/cache/wattherd/columns.json"):
        (one.root / left).unlink(missing_ok=True)


@pytest.fixture
def pair(empty: Node) -> Iterator[Node]:
    """A node with two RTX 3090."""
    empty.simulate("2x3090")
    yield empty
    empty.fault("clear")


def test_a_node_without_cards(empty: Node) -> None:
    empty.simulate("none")
    assert empty.look() == reading.Look()


def test_two_cards_through_nvml_and_the_same_through_the_tool(pair: Node) -> None:
    first = pair.look()
    assert (first.source, first.fault, len(first.cards), bool(first.driver), bool(first.epoch)) == ("nvml", "", 2, True, True)
    card = first.cards[0]
    assert card.uuid.startswith("GPU-")
    assert (card.bus, card.index, card.name) == ("0000:01:00.0", 0, "NVIDIA GeForce RTX 3090")
    assert None not in (card.limits.min_w, card.limits.max_w, card.limits.default_w, card.limits.requested_w, card.limits.enforced_w)
    assert card.draw is not None
    assert (card.draw.sensor, card.draw.window_s, card.draw.source) == ("average", 1.0, "nvml")
    assert card.energy_mj is not None
    assert card.memory_total_mib == 24576
    assert (card.throttle, card.binding) == ((), ())

    pair.fault("library-missing")
    again = pair.look()
    assert (again.source, again.fault, again.driver) == ("nvidia-smi", "", first.driver)
    twin = again.cards[0]
    assert (twin.uuid, twin.bus, twin.index, twin.name) == (card.uuid, card.bus, card.index, card.name)
    assert (twin.limits, twin.clocks, twin.persistence, twin.memory_total_mib) == (card.limits, card.clocks, card.persistence, 24576)
    assert twin.draw is not None
    assert abs(twin.draw.watts - card.draw.watts) < 15
    assert twin.energy_mj is None
    assert "nvidia-smi" in twin.unknown["energy_mj"]


def test_a_lost_card_beside_a_healthy_one(pair: Node) -> None:
    before = pair.look()
    pair.fault("lost", "1")
    for source in ("nvml", "nvidia-smi"):
        found = pair.look()
        assert found.source == source
        well, lost = found.cards
        assert (well.uuid, well.fault, well.draw is not None) == (before.cards[0].uuid, "", True)
        assert (lost.uuid, lost.bus, "lost" in lost.fault) == (before.cards[1].uuid, before.cards[1].bus, True)
        pair.fault("library-missing")


def test_a_limit_from_outside(pair: Node) -> None:
    pair.fault("bmc-cap=250", "0")
    limits = pair.look().cards[0].limits
    assert (limits.enforced_w, limits.requested_w) == (250, 350)


def test_a_process_of_another_user_is_named(pair: Node) -> None:
    held = operations.hold(pair.name, "0", "carol", 6000)
    try:
        waiting.until(pair.name, f"nvidia-smi --query-compute-apps=pid --format=csv,noheader | grep -qx {held}", limit_s=10)
        (holder,) = pair.look().cards[0].holders
        assert (holder.user, holder.memory_mib) == ("carol", 6000)
        assert holder.name
        pair.fault("library-missing")
        assert [(one.pid, one.user) for one in pair.look().cards[0].holders] == [(holder.pid, "carol")]
    finally:
        operations.release(pair.name, held)


def test_driver_and_library_of_two_versions(pair: Node) -> None:
    pair.fault("mismatch")
    found = pair.look()
    assert (found.fault_kind, found.cards) == ("mismatch", ())
    assert "reboot" in found.fault_hint
    pair.fault("library-missing")
    assert pair.look().fault_kind == "mismatch", "nvidia-smi says it in other words"


def test_a_driver_that_is_not_loaded(pair: Node) -> None:
    pair.fault("no-driver")
    assert pair.look().fault_kind == "no-driver"


def test_a_node_whose_tools_are_missing(pair: Node) -> None:
    pair.fault("tool-missing")
    assert pair.look().source == "nvml"
    pair.fault("library-missing")
    found = pair.look()
    assert (found.fault_kind, found.cards) == ("no-library", ())
    assert "install" in found.fault_hint


def test_a_driver_that_hangs_costs_its_limit_once(pair: Node) -> None:
    pair.fault("hang")
    try:
        began_s = time.monotonic()
        first = pair.look(limit_s=2)
        took_s = time.monotonic() - began_s
        assert first.fault_kind == "silent"
        assert "gives no answer" in first.fault
        assert took_s < 8
        if FREEZER.is_dir():
            second = pair.look(limit_s=2)
            assert (left := re.search(r"process (\d+) cannot be killed", first.fault))
            assert f"process {left[1]} (python3) asks it since" in second.fault, "no second one is started"
            assert "state D" in second.fault
            assert second.fault_kind == "silent"
    finally:
        pair.fault("clear")
    assert pair.look().fault == ""


def test_a_reload_of_the_driver_is_another_epoch(pair: Node) -> None:
    first = pair.look().epoch
    assert first == pair.look().epoch
    operations.reload(pair.name)
    assert pair.look().epoch not in ("", first)


def test_facts_carry_the_limits_that_a_card_may_have(pair: Node) -> None:
    told = pair.python("from wattherd.node import cards; print(json.dumps(fields.plain(cards.found(node))))")
    card = pair.look().cards[0]
    shown = [(one["power_min_w"], one["power_max_w"], one["power_default_w"]) for one in told]
    assert shown == [(card.limits.min_w, card.limits.max_w, card.limits.default_w)] * 2


def test_a_p40_has_no_energy_and_no_average(empty: Node) -> None:
    empty.simulate("p40")
    (card,) = empty.look().cards
    assert card.energy_mj is None
    assert card.unknown["energy_mj"] == "Not Supported"
    assert card.draw is not None
    assert (card.draw.sensor, card.draw.window_s) == ("instant", 0.0)


def test_a_jetson_is_no_card(empty: Node) -> None:
    empty.simulate("orin-nx")
    found = empty.look()
    assert found.cards == ()
    assert found.board is not None
    assert found.fault == ""
