"""One way to write a small project and load it, so that every test shows the files it is about."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from wattherd import errors, inventory

Load = Callable[..., inventory.Inventory]
Refuse = Callable[..., errors.Problem]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """load({"hosts.yaml": text}, …): the files below inventory/, then `inventory.load`."""

    def write_and_load(
        files: Mapping[str, str | bytes],
        *,
        path: str = "inventory",
        roles: frozenset[str] | None = None,
        extra: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> inventory.Inventory:
        for name, text in files.items():
            file = tmp_path / "inventory" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).lstrip("\n").encode())
        return inventory.load(
            tmp_path / path,
            roles_known=roles,
            extra_vars=extra or {},
            project_root=tmp_path,
            environ={"HOME": "/home/op", **(environ or {})},
        )

    return write_and_load


@pytest.fixture
def refuse(load: Load) -> Refuse:
    """The Problem that loading the files and selecting every host ends in."""

    def load_and_fail(files: Mapping[str, str | bytes], **options: object) -> errors.Problem:
        with pytest.raises(errors.Problem) as caught:
            load(files, **options).select("all")
        return caught.value

    return load_and_fail
