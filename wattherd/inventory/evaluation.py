"""A host's variables with their expressions worked out, each on first use.

Owns laziness, loops between variables and the magic names (inventory_hostname, groups, hostvars, …). Which value a name has was
decided before (variables); what an expression means is decided elsewhere (expression).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wattherd import errors
from wattherd.inventory import document

if TYPE_CHECKING:
    from wattherd.inventory import expression

_MARKS = ("{{", "{%", "{#")


@dataclass(frozen=True)
class Use:
    """Which variable is being worked out, for whom ('' for no host), and where its value stands."""

    variable: str
    host: str
    place: str

    def problem(self, code: str, sentence: str, hint: str = "") -> errors.Problem:
        whose = f"'{self.variable}' of {self.host}" if self.host else f"'{self.variable}'"
        return errors.Problem(code, f"{self.place}: {whose}{sentence}", hint=hint, variable=self.variable, host=self.host or None)


class Evaluator:
    """Shared by all hosts of one inventory. One lock, so that hosts planned in parallel never take each other's work for a loop."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.lock = threading.RLock()
        self._environ = environ
        self._renderer: expression.Renderer | None = None

    def render(self, text: str, variables: Mapping[str, object], use: Use) -> object:
        if self._renderer is None:
            from wattherd.inventory import expression

            self._renderer = expression.Renderer(self._environ)
        return self._renderer.render(text, variables, use)


class Variables(Mapping[str, object]):
    """Lazy: looking one name up works out that one. Iterating gives the names alone; `dict(…)` works everything out."""

    def __init__(
        self, host: str, given: Mapping[str, document.Value], magic: Mapping[str, Callable[[], object]], evaluator: Evaluator
    ) -> None:
        self._host = host
        self._given = given
        self._magic = magic
        self._evaluator = evaluator
        self._known: dict[str, object] = {}
        self._under_way: list[str] = []

    def __getitem__(self, name: str) -> object:
        if name in self._known:
            return self._known[name]
        if name in self._magic:
            return self._magic[name]()
        with self._evaluator.lock:
            return self._work_out(name, self._given[name])

    def __contains__(self, name: object) -> bool:
        return name in self._magic or name in self._given

    def __iter__(self) -> Iterator[str]:
        yield from self._magic
        yield from (name for name in self._given if name not in self._magic)

    def __len__(self) -> int:
        return len(self._magic.keys() | self._given.keys())

    def __repr__(self) -> str:
        return f"Variables({self._host!r}, {len(self)} names)"  # never the values: one of them may be a secret

    def _work_out(self, name: str, value: document.Value) -> object:
        if name in self._under_way:
            way = " > ".join([*self._under_way[self._under_way.index(name) :], name])
            raise errors.Problem(
                "bad-variable", f"{value.place}: variables need each other: {way}", hint="give one of them a value", host=self._host or None
            )
        self._under_way.append(name)
        try:
            self._known[name] = self._plain(value.data, name, value.place)
        finally:
            self._under_way.pop()
        return self._known[name]

    def _plain(self, data: object, name: str, place: str) -> object:
        if isinstance(data, str):
            if isinstance(data, document.Unsafe) or not any(mark in data for mark in _MARKS):
                return str(data)
            return self._evaluator.render(data, self, Use(name, self._host, place))
        if isinstance(data, dict):
            return {key: self._plain(item, name, place) for key, item in data.items()}
        return [self._plain(item, name, place) for item in data] if isinstance(data, list | tuple) else data
