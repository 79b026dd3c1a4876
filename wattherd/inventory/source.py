"""From a path to a Tree: which files are host sources, which of two languages each is written in, and what YAML says.

Owns the choice of files and the YAML shape (groups with hosts, children and vars). Reads no variable files and evaluates nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from wattherd import errors
from wattherd.inventory import document, names, tree

SOURCES = ("hosts", "hosts.yaml", "hosts.yml", "hosts.ini", "lab.yaml")
_BESIDE = ("group_vars", "host_vars", "models.yaml", "sites.yaml")
_SECTIONS = ("hosts", "children", "vars")
_MISSING_HINT = "invoke init DIR makes a project with an inventory; --inventory names another"
_GROUP = re.compile(r"[^\s:,\[\]!&~@][^\s:,\[\]]*\Z")
_YAML_KEY = re.compile(r"""(?:---|%YAML|\{|["']?[^\s\[\]="']+["']?\s*:(?:\s|\Z))""")


@dataclass(frozen=True)
class Found:
    """`folder` is where group_vars/, host_vars/ and models.yaml lie."""

    folder: Path
    files: tuple[Path, ...]
    skipped: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def find(path: Path, shown: str) -> Found:
    if path.is_file():
        return Found(path.parent, (path,))
    if not path.is_dir():
        raise _missing(f"there is no inventory at {shown}", shown)
    present = {item.name: item for item in path.iterdir()}
    files = tuple(present[name] for name in SOURCES if name in present and present[name].is_file())
    if not files:
        raise _missing(f"{shown} holds none of {', '.join(SOURCES)}", shown)
    used = {item.name for item in files}
    skipped = tuple(name for name in sorted(present) if name not in used and name not in _BESIDE and not name.startswith("."))
    older = tuple(
        f"{shown}/{item.name} is read; ansible-core before 2.19 skips a .ini file in a directory, so it may select other hosts"
        for item in files
        if item.suffix == ".ini"
    )
    return Found(path, files, skipped, older)


def read(file: Path, shown: str, draft: tree.Draft) -> None:
    body = document.text(file, shown)
    if body.startswith("#!") and os.access(file, os.X_OK):
        hint = f"write its answer down once: ansible-inventory -i {shown} --list --yaml > hosts.yaml"
        raise document.problem("this is a program, and inventories are only read", shown, 1, hint=hint)
    if _is_yaml(file, body):
        _Yaml(draft, shown).top(document.compose(body, shown))
    elif any(True for _ in _lines(body)):
        from wattherd.inventory import ini

        ini.read(body, shown, draft)
    else:
        raise document.problem("the file is empty", shown, 1, hint="write hosts into it, or remove it")


def _missing(message: str, shown: str) -> errors.Problem:
    return errors.Problem("inventory-missing", message, hint=_MISSING_HINT, path=shown)


def _lines(body: str) -> Iterator[str]:
    return (line for line in body.splitlines() if line.strip() and line.strip()[0] not in "#;")


def _is_yaml(file: Path, body: str) -> bool:
    if file.suffix in {".yaml", ".yml", ".json"}:
        return True
    return file.suffix != ".ini" and any(_YAML_KEY.match(line.strip()) for line in list(_lines(body))[:1])


@dataclass(frozen=True)
class _Yaml:
    """One YAML source on its way into the draft."""

    draft: tree.Draft
    shown: str

    def top(self, top: yaml.Node | None) -> None:
        if top is None or document.is_empty(top):
            raise document.problem("the file is empty", self.shown, 1, hint="start with 'all:' and 'hosts:' under it, or remove the file")
        if not isinstance(top, yaml.MappingNode):
            message = f"an inventory is a mapping of groups, not {document.kind(top)}"
            raise document.problem(message, self.shown, document.line_of(top), hint="start with 'all:' and 'hosts:' under it")
        found = document.entries(top)
        if "plugin" in found:
            message = "this configures an Ansible inventory plugin, and plugins are not run"
            hint = "ansible-inventory --list --yaml writes hosts.yaml from it"
            raise document.problem(message, self.shown, found["plugin"][0], hint=hint)
        for name, (line, node) in found.items():
            self.group(name, line, node)

    def group(self, name: str, line: int, node: yaml.Node) -> None:
        if not _GROUP.match(name):
            raise document.problem(f"'{name}' is no group name", self.shown, line, hint="letters, digits, '_' and '-' make one")
        self.draft.group(name)
        sections = self.mapping(node, line, f"the group '{name}'")
        for key, (at, inner) in sections.items():
            if key not in _SECTIONS:
                hint = names.meant(key, _SECTIONS) or "hosts of a group stand under hosts:, its variables under vars:"
                raise document.problem(f"the group '{name}' does not know '{key}'", self.shown, at, hint=hint, code="unknown-key")
            if key == "vars":
                self.draft.group_variables(name, document.variables(inner, self.shown, f"vars of the group '{name}'"))
            elif key == "children":
                self.children(name, at, inner)
            else:
                self.hosts(name, at, inner)

    def children(self, parent: str, line: int, node: yaml.Node) -> None:
        for name, (at, inner) in self.mapping(node, line, f"children of the group '{parent}'").items():
            self.draft.child(parent, name, tree.Place(self.shown, at))
            self.group(name, at, inner)

    def hosts(self, group: str, line: int, node: yaml.Node) -> None:
        for text, (at, inner) in self.mapping(node, line, f"hosts of the group '{group}'").items():
            try:
                entry = names.written(text)
            except ValueError as error:
                raise document.problem(str(error), self.shown, at) from error
            values = document.variables(inner, self.shown, f"what stands under the host '{text}'")
            self.refuse_ranges(values, entry)
            if entry.port is not None:
                values = {"ansible_port": document.Value(entry.port, self.shown, at), **values}
            for host in entry.hosts:
                meant = f"If the group was meant, list it under children: of '{group}'."
                self.draft.host(host, group, tree.Place(self.shown, at), meant=meant)
                self.draft.host_variables(host, values)

    def refuse_ranges(self, values: dict[str, document.Value], entry: names.Written) -> None:
        for name, value in values.items():
            if names.unexpanded(name, value.data, entry):
                message = f"{name}: {value.data}: ranges are not expanded in values"
                raise document.problem(message, self.shown, value.line, hint="give each host an entry of its own", code="inventory-invalid")

    def mapping(self, node: yaml.Node, line: int, what: str) -> dict[str, tuple[int, yaml.Node]]:
        """Nothing, one bare name (`hosts: titan`, as Ansible allows), or a mapping."""
        if document.is_empty(node):
            return {}
        if isinstance(node, yaml.ScalarNode) and not what.startswith("the group"):
            return {node.value: (document.line_of(node), yaml.ScalarNode("tag:yaml.org,2002:null", "null", node.start_mark, node.end_mark))}
        if not isinstance(node, yaml.MappingNode):
            message = f"{what} is a mapping, not {document.kind(node)}"
            raise document.problem(message, self.shown, line, hint="each name on a line of its own with ':' behind it")
        return document.entries(node)
