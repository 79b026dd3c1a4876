"""Ansible's INI inventory: sections of hosts, children and variables, line by line.

Owns the line grammar and where it differs from YAML (values are Python literals, else text). What the lines mean for groups is
the Draft's business.
"""

from __future__ import annotations

import ast
import re
import shlex
import warnings
from dataclasses import dataclass, field

from wattherd import errors
from wattherd.inventory import document, names, tree

_SECTION = re.compile(r"\[(?P<group>[^:\]\s]+)(?::(?P<kind>\w+))?\]\s*(?:#.*)?\Z")
_GROUP = re.compile(r"(?P<group>[^:\]\s]+)\s*(?:#.*)?\Z")
_KINDS = ("hosts", "children", "vars")


@dataclass
class _Reader:
    draft: tree.Draft
    shown: str
    group: str = "ungrouped"
    kind: str = "hosts"
    line: int = 0
    declared: set[str] = field(default_factory=lambda: {"all", "ungrouped"})
    awaited: dict[str, tuple[int, str]] = field(default_factory=dict)  # group -> line and sentence, should it never be declared

    @property
    def place(self) -> tree.Place:
        return tree.Place(self.shown, self.line)

    def problem(self, message: str, hint: str = "") -> errors.Problem:
        return document.problem(message, self.shown, self.line, hint=hint)


def read(body: str, shown: str, draft: tree.Draft) -> None:
    reader = _Reader(draft, shown)
    for number, written in enumerate(body.splitlines(), 1):
        reader.line = number
        line = written.strip()
        if line and line[0] not in "#;":
            _line(reader, line)
    for name, (number, sentence) in reader.awaited.items():
        if name not in reader.declared:
            raise document.problem(sentence, shown, number, hint=names.meant(name, reader.declared - {"all", "ungrouped"}))


def _line(reader: _Reader, line: str) -> None:
    if line.startswith("[") and names.address(line.split(maxsplit=1)[0]) is None:
        _section(reader, line)
    elif reader.kind == "hosts":
        _hosts(reader, line)
    elif reader.kind == "children":
        _child(reader, line)
    else:
        _variable(reader, line)


def _section(reader: _Reader, line: str) -> None:
    match = _SECTION.match(line)
    if match is None:
        raise reader.problem(
            f"'{line}' starts like a section but is none",
            "a section is [group], [group:children] or [group:vars]; a host range cannot start an INI line, a YAML key it can be",
        )
    reader.group, reader.kind = match["group"], match["kind"] or "hosts"
    if reader.kind not in _KINDS:
        raise reader.problem(f"the section [{reader.group}:{reader.kind}] is of an unknown kind", f"it can be {', '.join(_KINDS)}")
    reader.draft.group(reader.group)
    if reader.kind == "vars":
        sentence = f"the section [{reader.group}:vars] belongs to no group: there is neither [{reader.group}] nor [{reader.group}:children]"
        reader.awaited.setdefault(reader.group, (reader.line, sentence))
    else:
        reader.declared.add(reader.group)


def _hosts(reader: _Reader, line: str) -> None:
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise reader.problem(f"the line cannot be taken apart: {error}", "a quote is not closed") from error
    if words[0] == "---":
        raise reader.problem("'---' starts a YAML document, and this file is read as INI", "name the file hosts.yaml")
    entry = _written(reader, words[0])
    values = dict(_assignment(reader, word, entry) for word in words[1:])
    if entry.port is not None:
        values = {"ansible_port": document.Value(entry.port, reader.shown, reader.line), **values}
    meant = "Rename one of them." if reader.group == "ungrouped" else f"If the group was meant, list it under [{reader.group}:children]."
    for host in entry.hosts:
        reader.draft.host(host, reader.group, reader.place, meant=meant)
        reader.draft.host_variables(host, values)


def _written(reader: _Reader, word: str) -> names.Written:
    try:
        return names.written(word)
    except ValueError as error:
        raise reader.problem(str(error)) from error


def _assignment(reader: _Reader, word: str, entry: names.Written) -> tuple[str, document.Value]:
    name, equals, text = word.partition("=")
    if not equals or not name:
        raise reader.problem(f"'{word}' is no assignment", "after the host come name=value pairs; a value with spaces stands in quotes")
    if names.unexpanded(name, text, entry):
        message = f"{name}={text}: ranges are not expanded in values"
        raise document.problem(message, reader.shown, reader.line, hint="give each host a line of its own", code="inventory-invalid")
    return name, document.Value(_literal(text), reader.shown, reader.line)


def _child(reader: _Reader, line: str) -> None:
    match = _GROUP.match(line)
    if match is None:
        raise reader.problem(f"'{line}' is no group name", f"[{reader.group}:children] lists groups, one a line")
    name = match["group"]
    reader.draft.child(reader.group, name, reader.place)
    reader.awaited.setdefault(name, (reader.line, f"[{reader.group}:children] includes the group '{name}', which has no section"))


def _variable(reader: _Reader, line: str) -> None:
    name, equals, text = (part.strip() for part in line.partition("="))
    if not equals or not name:
        raise reader.problem(f"'{line}' is no assignment", f"[{reader.group}:vars] holds one name = value a line")
    reader.draft.group_variables(reader.group, {name: document.Value(_literal(text), reader.shown, reader.line)})


def _literal(text: str) -> object:
    """As Ansible: a Python literal where it is one, else the text itself."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return _plain(found)


def _plain(found: object) -> object:
    if isinstance(found, (list, tuple, set)):
        return [_plain(item) for item in found]
    if isinstance(found, dict):
        return {key: _plain(item) for key, item in found.items()}
    if isinstance(found, bytes):
        return found.decode(errors="replace")
    return str(found) if isinstance(found, complex) or found is ... else found
