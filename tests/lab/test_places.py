from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab import places
from wattherd.errors import Problem


def test_the_first_three_nodes_have_names_and_the_others_numbers() -> None:
    assert places.names(5) == ("titan", "atlas", "orin", "node-04", "node-05")
    assert [places.number_of(name) for name in ("titan", "atlas", "orin", "node-04", "node-50", "old")] == [11, 12, 13, 14, 60, None]


@pytest.mark.parametrize("count", [0, 51])
def test_a_count_that_no_lab_has_is_refused(count: int) -> None:
    with pytest.raises(Problem, match="1 to 50"):
        places.names(count)


def test_the_usual_lab_is_in_the_cache_and_writes_the_checkouts_inventory(tmp_path: Path) -> None:
    lab = places.here({"WATTHERD_CACHE": str(tmp_path)})
    assert (lab.bridge, lab.gateway, lab.address(11), lab.link("titan")) == ("br-wattherd", "10.213.7.1", "10.213.7.11", "vb-titan")
    assert lab.key == tmp_path / "lab" / "id_ed25519"
    assert lab.inventory == places.CHECKOUT / "inventory" / "lab.yaml"


def test_a_second_lab_shares_the_cache_and_nothing_else(tmp_path: Path) -> None:
    first, second = (places.here({"WATTHERD_CACHE": str(tmp_path), "WATTHERD_LAB_NAME": name}) for name in ("wattherd", "spare"))
    assert (first.cache, first.key) == (second.cache, second.key)
    for what in ("bridge", "gateway", "inventory", "disks"):
        assert getattr(first, what) != getattr(second, what)
    assert first.link("node-50") != second.link("node-50")
    assert len(second.link("node-50")) <= 15


def test_the_cache_follows_xdg(tmp_path: Path) -> None:
    assert places.here({"XDG_CACHE_HOME": str(tmp_path)}).cache == tmp_path / "wattherd" / "lab"


@pytest.mark.parametrize("environ", [{"WATTHERD_LAB_NAME": "Two words"}, {"WATTHERD_CACHE": "/tmp/with space"}])
def test_names_that_would_break_a_mount_or_a_link_are_refused(environ: dict[str, str]) -> None:
    with pytest.raises(Problem) as refused:
        places.here(environ)
    assert refused.value.hint


def test_who_is_not_root_is_told_so() -> None:
    argv = [sys.executable, "-m", "tests.lab", "up"]
    if os.geteuid() == 0:
        argv = ["setpriv", "--reuid=65534", "--clear-groups", *argv]
    done = subprocess.run(
        argv, check=False, capture_output=True, text=True, cwd=places.CHECKOUT, env={**os.environ, "WATTHERD_CACHE": "/nonexistent"}
    )
    assert done.returncode == 1
    assert "lab-needs-root" in done.stdout
