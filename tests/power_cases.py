"""The field cases on power, by id: what a tool really printed, and what a correct reader makes of it."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass

import yaml

_FILE = pathlib.Path(__file__).parent / "cases" / "power.yaml"


@dataclass(frozen=True)
class Case:
    id: str
    input: str
    expect: str
    source: str


@functools.cache
def cases() -> Mapping[str, Case]:
    rows = yaml.safe_load(_FILE.read_text())["cases"]
    return {row["id"]: Case(row["id"], row["input"], row["expect"], row["source"]) for row in rows}


def case(name: str) -> Case:
    return cases()[name]
