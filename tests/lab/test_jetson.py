"""A simulated Orin NX on a real node: modes by name, pinned clocks, the fan, a mode that only a real reboot brings, and the way back."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.lab import cli, fleet, nodes, sessions
from tests.lab.simulated import operations
from tests.lab.waiting import until
from wattherd import inventory, resources
from wattherd.power import reading
from wattherd.resources.jetson import Jetson
from wattherd.verbs import access, rebooting, watch
from wattherd.wire import fields, manifest

pytestmark = pytest.mark.lab
REBOOT = "reboot required: "


class Heard(watch.Silent):
    """What was told about the host, in words."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def event(self, _host: str, message: Mapping[str, Any]) -> None:
        self.words.append(str(message.get("words")))


@dataclass
class Board:
    """One node, through the sessions that every verb uses."""

    name: str
    reach: access.Access
    host: inventory.Host
    told: list[Mapping[str, Any]] = field(default_factory=list)

    def run(self, script: str) -> str:
        return nodes.run(self.name, ["sh", "-c", script]).stdout

    def call(self, order: Mapping[str, Any], body: bytes | None = None) -> fields.Document:
        self.told = []
        opened = self.reach.open(self.host)
        try:
            return opened.call(order, body, self.told.append)
        finally:
            opened.close()

    def apply(self, **wanted: str) -> dict[str, Mapping[str, Any]]:
        """Converge to these settings and nothing else: what became of each."""
        entries = tuple(resources.encode(Jetson(setting, value), role="power") for setting, value in wanted.items())
        self.call({"verb": "apply"}, manifest.encode(manifest.Manifest(self.name, entries)))
        return {str(one["id"]).partition(":")[2]: one for one in self.told if one["event"] in {"ok", "changed", "failed", "skipped"}}

    def look(self) -> reading.Board:
        found = fields.build(reading.Look, fields.document(self.call({"verb": "power"})["look"], "look")).board
        assert found is not None
        return found


@pytest.fixture(scope="module")
def board(plain: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    name = os.environ.get("WATTHERD_LAB_JETSON_NODE", plain[1])
    operations.simulate(name, "orin-nx")
    try:
        made = Board(name, *sessions.reach(_project(name, tmp_path_factory.mktemp("jetson"))))
        yield made
        made.call({"verb": "remove", "host": name})
        assert not (nodes.root(name) / "var/lib/wattherd").exists()
    finally:
        operations.simulate(name, "none")


def _project(name: str, folder: pathlib.Path) -> cli.Project:
    made = cli.project(folder)
    made.hosts(**{name.replace("-", "_"): next(node.address for node in fleet.status().nodes if node.name == name)})
    assert made.invoke("trust", "--hosts", "all", "--yes").code == 0
    return made


def test_settings_are_made_read_back_kept_through_a_real_reboot_and_returned(board: Board) -> None:
    until(board.name, "grep -vqx 0 /sys/bus/i2c/drivers/ina3221/*/hwmon/hwmon*/curr1_input", 10)
    first = board.look()
    assert (first.mode, first.pinned, first.fan) == ("40W", False, "quiet")
    assert first.draw is not None
    assert first.draw.basis == "module, not board input"
    assert 2 < first.draw.watts < 15, "an idle Orin NX"

    done = board.apply(mode="25W", pinned="yes", fan="cool")
    assert [done[one]["event"] for one in ("mode", "pinned", "fan")] == ["changed"] * 3
    now = board.look()
    assert (now.mode, now.pinned, now.fan) == ("25W", True, "cool")
    assert board.run("nvpmodel -q") == "NV Power Mode: 25W\n3\n"

    done = board.apply(mode="10W", pinned="yes", fan="cool")
    assert [done[one]["event"] for one in ("mode", "pinned", "fan")] == ["skipped", "ok", "ok"]
    assert done["mode"]["reason"].startswith(f"{REBOOT}10W can be set only while the board boots")
    assert (board.look().mode, board.look().pending_mode) == ("25W", "10W")

    heard = Heard()
    back = rebooting.reboot_and_wait(board.reach, board.host, heard, 120)
    assert (back.mode, back.asked, back.took) == ("10W", "10W", True)
    assert "the next boot sets the mode 10W" in heard.words
    again = board.look()
    assert (again.mode, again.pending_mode, again.pinned, again.fan) == ("10W", "", False, "cool"), "pinned clocks are lost with a boot"
    assert board.apply(mode="10W", pinned="yes", fan="cool")["pinned"]["event"] == "changed"

    gone = board.apply()
    assert gone["mode"]["reason"].endswith(f"{REBOOT}40W comes back with the next boot of this board")
    rebooting.reboot_and_wait(board.reach, board.host, heard, 120)
    last = board.look()
    assert (last.mode, last.pinned, last.fan) == (first.mode, first.pinned, first.fan)


def test_a_name_that_this_board_does_not_have_touches_nothing(board: Board) -> None:
    done = board.apply(mode="MAXN", fan="cool")
    assert done["mode"]["problem"]["code"] == "mode-unknown"
    assert "MAXN_SUPER" in done["mode"]["problem"]["message"]
    assert "fan" not in done
    assert board.look().fan == "quiet"
