"""YAML text as nodes that remember their lines, and single values taken out of it.

Owns what is refused whatever the file means: text that is not UTF-8, tabs, duplicate keys, vaulted values, unknown tags. Knows
YAML and nothing of hosts, groups or settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import yaml

from wattherd import errors

_VAULT_HINT = "vaulted values are not read; keep secrets out of the inventory, for example \"{{ lookup('env', 'NAME') }}\""
_MERGE = "tag:yaml.org,2002:merge"


class Unsafe(str):
    """A text that was written with `!unsafe`: braces in it mean nothing."""

    __slots__ = ()


@dataclass(frozen=True)
class Value:
    """One variable as it was written, and where."""

    data: object
    file: str
    line: int
    node: yaml.Node | None = None

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    def place_of(self, steps: Sequence[str | int]) -> str:
        """Where the inner item stands, as near as the text shows it: a value that came out of an expression has only its own line."""
        node, line = self.node, self.line
        for step in steps:
            found = _inner(node, step)
            if found is None:
                break
            line, node = found
        return f"{self.file}:{line}" if line else self.file


class _Constructor(yaml.constructor.SafeConstructor):
    yaml_constructors: ClassVar = {
        **yaml.constructor.SafeConstructor.yaml_constructors,
        "!unsafe": lambda loader, node: Unsafe(loader.construct_scalar(node)),
    }


def text(path: Path, shown: str) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise errors.Problem("inventory-missing", f"{shown} cannot be read: {error.strerror}", file=shown) from error
    if raw.startswith(b"$ANSIBLE_VAULT"):
        raise errors.Problem(
            "inventory-syntax", f"{shown}:1: the file is encrypted with ansible-vault", hint=_VAULT_HINT, file=shown, line=1
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"the text is not UTF-8 (byte 0x{raw[error.start]:02x})"
        raise problem(message, shown, line, hint="save the file as UTF-8") from error


def compose(body: str, shown: str) -> yaml.Node | None:
    """The document's nodes, checked; None for a file without content."""
    if shown.endswith(".json"):
        body = body.replace("\t", " ")  # JSON may be indented with tabs, and no JSON string holds a raw one
    try:
        node: yaml.Node | None = yaml.compose(body, Loader=_loader())
        if node is not None:
            _verify(node, shown, set(), ())
    except yaml.YAMLError as error:
        raise _syntax(error, body, shown) from error
    return node


def entries(node: yaml.MappingNode) -> dict[str, tuple[int, yaml.Node]]:
    """Keys as they were written (a host called 01 stays '01'), each with its line and its value's node."""
    return {str(key.value): (_line(key), value) for key, value in node.value}


def value(node: yaml.Node, shown: str, line: int) -> Value:
    try:
        data = _Constructor().construct_document(node)
    except (yaml.YAMLError, ValueError) as error:
        at, message = _mark(error) or _line(node), getattr(error, "problem", None) or str(error)
        raise problem(message, shown, at) from error
    return Value(data, shown, line, node)


def variables(node: yaml.Node | None, shown: str, what: str) -> dict[str, Value]:
    """A mapping of variables; an empty one when nothing is written."""
    if node is None or is_empty(node):
        return {}
    if not isinstance(node, yaml.MappingNode):
        raise problem(f"{what} is a mapping of names to values, not {kind(node)}", shown, _line(node))
    found: dict[str, Value] = {}
    for key, inner in node.value:
        if key.tag != "tag:yaml.org,2002:str":
            raise problem(f"the variable name '{key.value}' is not text", shown, _line(key), hint="put the name in quotes")
        found[key.value] = value(inner, shown, _line(key))
    return found


def is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return f"'{node.value}'"
    return "a mapping" if isinstance(node, yaml.MappingNode) else "a list"


def line_of(node: yaml.Node) -> int:
    return _line(node)


def problem(message: str, shown: str, line: int, *, hint: str = "", code: str = "inventory-syntax") -> errors.Problem:
    return errors.Problem(code, f"{shown}:{line}: {message}", hint=hint, file=shown, line=line)


def _loader() -> type[yaml.SafeLoader | yaml.CSafeLoader]:
    return yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _inner(node: yaml.Node | None, step: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        return entries(node).get(str(step))
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return _line(node.value[step]), node.value[step]
    return None


def _verify(node: yaml.Node, shown: str, done: set[int], above: tuple[int, ...]) -> None:
    """Refuse what no meaning can be given to, once per node; fold merge keys in afterwards."""
    if id(node) in above:
        raise problem("an anchor contains itself", shown, _line(node))
    if id(node) in done:
        return
    done.add(id(node))
    if node.tag in {"!vault", "!vault-encrypted"}:
        raise problem("a value encrypted with ansible-vault", shown, _line(node), hint=_VAULT_HINT)
    if isinstance(node, yaml.MappingNode):
        _refuse_duplicates(node, shown)
        for key, inner in node.value:
            _verify(key, shown, done, (*above, id(node)))
            _verify(inner, shown, done, (*above, id(node)))
        _Constructor().flatten_mapping(node)
    elif isinstance(node, yaml.SequenceNode):
        for inner in node.value:
            _verify(inner, shown, done, (*above, id(node)))


def _refuse_duplicates(node: yaml.MappingNode, shown: str) -> None:
    seen: dict[str, int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise problem(f"{kind(key)} cannot be a key", shown, _line(key), hint="text with '{{' has to stand in quotes")
        if key.value in seen and key.tag != _MERGE:
            raise problem(
                f"'{key.value}' stands twice in one mapping, on line {seen[key.value]} and on line {_line(key)}",
                shown,
                _line(key),
                hint="remove one: of the two only the last would count",
            )
        seen[key.value] = _line(key)


def _syntax(error: yaml.YAMLError, body: str, shown: str) -> errors.Problem:
    if isinstance(error, yaml.reader.ReaderError):
        line = body.count("\n", 0, int(error.position)) + 1
        return problem(f"the character {error.character!r} is not allowed in YAML", shown, line)
    line = _mark(error) or 1
    written = body.splitlines()[line - 1] if line <= len(body.splitlines()) else ""
    if "\t" in written[: len(written) - len(written.lstrip())] or "\\t" in str(error):
        return problem("the line is indented with a tab", shown, line, hint="YAML is indented with spaces")
    reason = getattr(error, "problem", None) or str(error)
    hint = "text that starts with '{{' has to stand in quotes" if "{{" in written else ""
    return problem(f"this is not YAML: {reason}", shown, line, hint=hint)


def _mark(error: Exception) -> int | None:
    mark = getattr(error, "problem_mark", None)
    return int(mark.line) + 1 if mark else None
