"""The state file that the node's tools and the daemon share: one layout, one writer at a time, nothing taken for another version's."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from tests.lab.simulated import layout


@pytest.fixture
def path(tmp_path: Path) -> Path:
    node = layout.Node()
    node.cards, node.driver = 1, b"525.147.05"
    layout.create(tmp_path / "state", node)
    return tmp_path / "state"


def test_what_is_written_is_read_and_the_file_stays_the_same_one(path: Path) -> None:
    before = path.stat().st_ino
    with layout.held(path) as node:
        node.card[0].requested_mw = 250_000
    layout.create(path, layout.Node())
    with layout.held(path) as node:
        assert (node.card[0].requested_mw, node.cards) == (0, 0)
    assert path.stat().st_ino == before  # it may be mounted in a node


def test_another_layout_is_refused(path: Path) -> None:
    with path.open("r+b") as stream:
        stream.seek(layout.Node.layout.offset)
        stream.write(b"\0\0\0\0")
    with pytest.raises(ValueError, match="another layout"), layout.held(path):
        pass
    path.write_bytes(b"short")
    with pytest.raises(ValueError, match="another layout"), layout.held(path):
        pass


def test_a_lock_that_somebody_keeps_is_waited_for_only_so_long(path: Path) -> None:
    other = os.open(path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(TimeoutError), layout.held(path, 0.05):
        pass
    os.close(other)
    with layout.held(path, 0.05) as node:
        assert node.driver == b"525.147.05"


def test_the_header_names_every_member_and_checks_where_it_lies() -> None:
    header = layout.header()
    for structure in (layout.Holder, layout.Card, layout.Node):
        for field in structure._fields_:
            assert f" {field[0]}" in header
            assert f"{field[0]}) == {getattr(structure, field[0]).offset}" in header
