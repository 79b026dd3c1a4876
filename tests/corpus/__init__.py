"""Recorded words of real builds, for tests."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

FOLDER = pathlib.Path(__file__).parent


def helps() -> Mapping[str, str]:
    """By build: what its `--help` printed."""
    return {path.stem.removeprefix("help-"): path.read_text("utf-8") for path in sorted(FOLDER.glob("help-b*.txt"))}


def helped(build: str) -> str:
    return helps()[build]


def with_entry(text: str, name: str, entry: str) -> str:
    """The text with the entry of one option replaced: a wording that is known from a report of a build which no index has."""
    lines = text.splitlines(keepends=True)
    start = next(index for index, line in enumerate(lines) if line.startswith("-") and name in line[:60])
    end = next(index for index in range(start + 1, len(lines)) if lines[index].startswith("-"))
    return "".join([*lines[:start], entry, *lines[end:]])
