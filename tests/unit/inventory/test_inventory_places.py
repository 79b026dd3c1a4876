from __future__ import annotations

from pathlib import Path

import pytest

from wattherd import errors
from wattherd.inventory import places

_ROOT = Path("/srv/fleets/attic")


@pytest.mark.parametrize(
    ("environ", "state", "cache"),
    [
        ({"HOME": "/home/o"}, "/home/o/.local/state/wattherd/attic", "/home/o/.cache/wattherd"),
        ({"HOME": "/home/o", "XDG_STATE_HOME": "/s", "XDG_CACHE_HOME": "/c"}, "/s/wattherd/attic", "/c/wattherd"),
        (
            {"HOME": "/home/o", "XDG_STATE_HOME": "rel", "XDG_CACHE_HOME": ""},
            "/home/o/.local/state/wattherd/attic",
            "/home/o/.cache/wattherd",
        ),
        ({"HOME": "/home/o", "XDG_STATE_HOME": "/s", "WATTHERD_STATE": "/w", "WATTHERD_CACHE": "/x"}, "/w/attic", "/x"),
        ({"HOME": "/home/o", "WATTHERD_STATE": "/w", "WATTHERD_PROJECT": "cellar"}, "/w/cellar", "/home/o/.cache/wattherd"),
    ],
)
def test_places(environ: dict[str, str], state: str, cache: str) -> None:
    assert places.state_dir(_ROOT, environ) == Path(state)
    assert places.cache_dir(environ) == Path(cache)


def test_nothing_is_made(tmp_path: Path) -> None:
    places.state_dir(tmp_path, {"WATTHERD_STATE": str(tmp_path / "a")})
    places.cache_dir({"WATTHERD_CACHE": str(tmp_path / "b")})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a/b", "..", "."])
def test_a_project_name_is_one_folder(name: str) -> None:
    with pytest.raises(errors.Problem) as caught:
        places.state_dir(_ROOT, {"WATTHERD_PROJECT": name, "HOME": "/h"})
    assert caught.value.code == "bad-flag"
