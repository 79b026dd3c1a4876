"""Warnings about what was written: names that look like a slip, and values that Wattherd does not follow.

Looks at every variable of every file once, whichever hosts are selected later. Evaluates nothing and refuses nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from wattherd.inventory import connection, document, names, tree, varfiles


def about(
    grown: tree.Tree, files: varfiles.Files, extra: Mapping[str, document.Value], own: Collection[str], magic: Collection[str]
) -> tuple[str, ...]:
    near: dict[str, str | None] = {}
    found: dict[str, None] = {}
    for name, value in _written(grown, files, extra):
        if name not in near:
            near[name] = None if name in own else names.slip(name, own)
        sentence = _doubt(name, value, near[name], magic)
        if sentence is not None:
            found[sentence] = None
    return tuple(found)


def _doubt(name: str, value: document.Value, near: str | None, magic: Collection[str]) -> str | None:
    if name in magic:
        return f"{value.place}: '{name}' is set by Wattherd itself; this value is not used"
    if near is not None:
        return f"{value.place}: '{name}' is none of Wattherd's variables; did you mean '{near}'?"
    return connection.warnings(name, value)


def _written(grown: tree.Tree, files: varfiles.Files, extra: Mapping[str, document.Value]) -> Iterator[tuple[str, document.Value]]:
    layers: list[tree.Variables] = [group.variables for group in grown.groups.values()]
    layers += [host.variables for host in grown.hosts.values()]
    layers += [*files.groups.values(), *files.hosts.values()]
    for variables in layers:
        for name, values in variables.items():
            yield from ((name, value) for value in values)
    yield from extra.items()
