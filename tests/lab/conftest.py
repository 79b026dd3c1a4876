"""The lab for tests: `lab` is the fleet of three, `spare` is a second, empty one for tests that break or take down what they use."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.lab import fleet, places


@pytest.fixture(scope="session")
def lab() -> Iterator[fleet.Status]:
    """titan, atlas and orin, answering. A lab that was up stays up; WATTHERD_LAB_KEEP=1 keeps also one that was not."""
    _skip_unless_root()
    was_up = any(node.state == "up" for node in fleet.status().nodes)
    yield fleet.up(3)
    if not was_up and os.environ.get("WATTHERD_LAB_KEEP") != "1":
        fleet.down()


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
