from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.link import sshd


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[sshd.Ground]:
    """A home folder of its own and real ssh servers on the loopback."""
    home = tmp_path / "home"
    home.mkdir()
    place = sshd.Ground(home)
    yield place
    place.close()
