"""Which releases a run takes away stands already in its check, where neither the new one nor the turned link is there yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.node import strict, tiny
from wattherd import resources, store
from wattherd.node import converge
from wattherd.resources import artifact, symlink
from wattherd.wire import manifest

RELEASES = "/opt/wattherd/releases"


def wanted(bench: strict.Bench, name: str, keep: int) -> manifest.Manifest:
    body = tiny.pack_tar({"bin/llama-server": name.encode()})
    release = artifact.Artifact(f"{RELEASES}/{name}", kind="tree", digest=tiny.put(bench.machine, body), size_bytes=len(body), keep=keep)
    link = symlink.Symlink("/opt/wattherd/current", release.path)
    return manifest.Manifest("here", tuple(resources.encode(one, role="llama_cpp") for one in (release, link)))


def changes(bench: strict.Bench, what: manifest.Manifest, *, check: bool) -> list[str]:
    said: list[Mapping[str, Any]] = []
    store.prepare(bench.machine)
    tally = converge.Run(bench.machine, converge.Job(what, manifest.encode(what), check=check), said.append).converge()
    assert tally.counts["failed"] == 0, said
    return [f"{one['action']} {one['id']}" for one in said if one["event"] in {"changed", "would_change"}]


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_what_a_check_says_of_old_releases_is_what_the_run_does(bench: strict.Bench, keep: int) -> None:
    removed: list[str] = []
    for name in ("b1", "b2", "b3", "b4"):
        what = wanted(bench, name, keep)
        told = changes(bench, what, check=True)
        assert changes(bench, what, check=False) == told
        removed += [one for one in told if one.startswith("remove")]
        assert changes(bench, what, check=True) == []
    assert removed == [f"remove artifact:{RELEASES}/b{number}" for number in range(1, 5 - keep)]
    assert bench.machine.names(RELEASES) == [f"b{number}" for number in range(5 - keep, 5)]
