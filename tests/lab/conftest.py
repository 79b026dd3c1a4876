"""The lab for tests: `lab` is the fleet of three, `plain` two more nodes, `spare` a second lab to break."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

import pytest

from tests.lab import cli, fleet, places
from wattherd import inventory
from wattherd.inventory import places as places_of
from wattherd.sources import models

NODES = 5


@pytest.fixture(scope="session")
def lab() -> Iterator[fleet.Status]:
    """titan, atlas and orin with the shipped inventory, and two plain nodes. A lab that was up stays up; WATTHERD_LAB_KEEP=1 keeps any."""
    _skip_unless_root()
    was_up = any(node.state == "up" for node in fleet.status().nodes)
    yield fleet.up(NODES)
    if not was_up and os.environ.get("WATTHERD_LAB_KEEP") != "1":
        fleet.down()


@pytest.fixture(scope="session")
def plain(lab: fleet.Status) -> tuple[str, str]:
    """Two nodes without a role of their own, for tests that break things and mend them."""
    names = {node.name for node in lab.nodes}
    assert {"node-04", "node-05"} <= names
    return "node-04", "node-05"


@pytest.fixture
def spare() -> Iterator[places.Places]:
    """A lab of its own bridge and network, down before and after the test."""
    _skip_unless_root()
    own = places.here({**os.environ, "WATTHERD_LAB_NAME": "spare", "WATTHERD_LAB_INVENTORY": ""})
    fleet.down(lab=own)
    yield own
    fleet.down(lab=own)


def _skip_unless_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("the lab needs root: it mounts file systems, makes a network bridge and boots containers")


@pytest.fixture(scope="session")
def model() -> pathlib.Path:
    """The real small model, through Wattherd's own sources and cache."""
    loaded = inventory.load(cli.ROOT / "inventory", roles_known=None, project_root=cli.ROOT)
    found = models.model("smollm2", loaded.catalogue["smollm2"], places_of.cache_dir(), cli.ROOT, lambda _done, _total: None)
    return next(iter(found.paths.values()))
