"""Toolkits are named to every node and fetched for the first that asks: a deploy that builds nothing downloads nothing."""

from __future__ import annotations

import pathlib

import pytest

from wattherd import material
from wattherd.sources import toolkit
from wattherd.verbs import prepare


def test_what_lies_there_is_where_it_lies(tmp_path: pathlib.Path) -> None:
    assert prepare.Staged(tmp_path / "source.tar.gz", "source").here() == tmp_path / "source.tar.gz"


def test_a_wheel_is_fetched_when_it_is_asked_for(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fetch(file: material.File, cache: pathlib.Path, _on_bytes: object) -> pathlib.Path:
        asked.append(file.sha256)
        return cache / "sources" / file.file_name

    monkeypatch.setattr(toolkit, "wheel", fetch)
    staged = prepare.toolkit_files(tmp_path, lambda _what, _done, _total: None)
    digests = {file.sha256 for offer in toolkit.offers() for file in offer.wheels}
    assert set(staged) == digests
    assert asked == []
    one = next(iter(digests))
    assert staged[one].here() == staged[one].path
    assert asked == [one]
