"""`power-status` for one host on the controller: what is wanted of its cards when one of them cannot say any more who it is."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import cast

from tests.unit import fleet_of_cards as herd
from wattherd import inventory
from wattherd.link import session
from wattherd.power import reading
from wattherd.verbs import power_status, rests, sightings
from wattherd.wire import facts, fields

HEALTHY, LOST = herd.UUIDS[0], herd.UUIDS[1]


class Node:
    """An open session to a host with one healthy card, and one that fell off its bus and hides its UUID."""

    def __init__(self) -> None:
        name = "NVIDIA GeForce RTX 3090"
        self.facts = herd.seen(
            facts.Gpu("0000:01:00.0", "nvidia", name, HEALTHY, power_min_w=100, power_max_w=350, power_default_w=350),
            facts.Gpu("0000:02:00.0", "nvidia", name),
        )

    def call(self, _order: Mapping[str, object]) -> Mapping[str, object]:
        lost = reading.Card("", bus="0000:02:00.0", fault="GPU is lost")
        look = reading.Look((herd.card(), lost), driver="580.95.05", source="nvml")
        return {"look": fields.plain(look), "policy": fields.plain(herd.policy(herd.card(0), herd.card(1))), "keeper": "active"}


def seen(tmp_path: pathlib.Path, before: sightings.Sighting | None) -> power_status.Seen:
    folder = tmp_path / "inventory"
    (folder / "group_vars").mkdir(parents=True, exist_ok=True)
    (folder / "hosts.yaml").write_text("all: {hosts: {titan: {}}}")
    entries = f"{{{HEALTHY[:12]}: {{limit: 280}}, {LOST[:12]}: {{limit: 280}}}}"
    (folder / "group_vars/all.yaml").write_text(f"roles: [power]\npower: {{persistence: null, cards: {entries}}}\n")
    host = inventory.load(folder, roles_known=None, project_root=tmp_path).host("titan")
    opened = cast("session.Session", Node())
    return power_status.look(opened, host, rests.Rests(tmp_path / "state"), before, looks=1)


def test_a_lost_card_that_the_inventory_names_is_no_doubt_about_its_neighbour(tmp_path: pathlib.Path) -> None:
    """Its UUID is known from when it was last seen, as power-apply knows it."""
    before = sightings.Sighting(cards=(sightings.Card(uuid=LOST, bus="0000:02:00.0", name="NVIDIA GeForce RTX 3090"),))
    rows = seen(tmp_path, before).rows
    assert [(row.status, row.reason.partition(":")[0]) for row in rows] == [("ok", ""), ("failed", "GPU is lost")]
    stranger = seen(tmp_path, None).rows
    assert stranger[0].status == "drift"
    assert "no card here is 'GPU-22222222'" in stranger[0].reason, "never seen here: it may as well be a slip"
