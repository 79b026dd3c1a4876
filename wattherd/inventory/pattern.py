"""Ansible's host patterns: `all`, names, globs, `~regex`, `g[0:2]`, joined by ':' or ',' with '&' and '!', and `@file`.

Owns the grammar and the selection. Two things are stricter than Ansible, which only warns: a name that nobody has is an error
(a typing slip in `!name` would select too much), and so is an empty selection. Knows names, not hosts' variables.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from wattherd import errors
from wattherd.inventory import names, tree

_SUBSCRIPT = re.compile(r"(?P<expression>.+)\[(?:(?P<index>-?[0-9]+)|(?P<start>[0-9]+)(?P<separator>[:-])(?P<end>[0-9]*))\]\Z")
_TOKEN = re.compile(r"(?:[^\s:\[\]]|\[[^\]]*\])+")
_PATTERN_SIGNS = ".?*["  # Ansible looks at hosts too, although a group matched, where one of these is in the expression


@dataclass(frozen=True)
class Selection:
    hosts: tuple[str, ...]  # in inventory order
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class _Term:
    sign: str  # "", "&" or "!"
    text: str
    whole: str


def select(pattern: str, limit: str | None, known: tree.Tree) -> Selection:
    """The hosts of `pattern` that are also in `limit`."""
    warnings: list[str] = []
    chosen = _evaluate(_terms(pattern), known, warnings)
    if limit is not None:
        chosen &= _evaluate(_terms(limit), known, warnings)
    if not chosen:
        asked = f"'{pattern}'" if limit is None else f"'{pattern}' limited to '{limit}'"
        raise errors.Problem("nothing-selected", f"{asked} selects no host", hint=_offer(known), pattern=pattern)
    return Selection(tuple(name for name in known.hosts if name in chosen), tuple(dict.fromkeys(warnings)))


def lint(pattern: str, limit: str | None, known: tree.Tree) -> tuple[errors.Problem, ...]:
    """What has to stop a verb that writes: a name of a host and of a group at once, written in the pattern or among the hosts selected."""
    if not known.shared_names:
        return ()
    terms = [*_terms(pattern), *(_terms(limit) if limit is not None else ())]
    touched = {*(term.text for term in terms), *select(pattern, limit, known).hosts} & known.shared_names
    return tuple(
        errors.Problem(
            "inventory-conflict",
            f"{known.hosts[name].place}: '{name}' is both a host and a group, so '{pattern}' may mean either",
            hint="rename one; if the group was meant where the host is listed, it belongs under children",
            name=name,
        )
        for name in sorted(touched)
    )


def split(pattern: str) -> tuple[str, ...]:
    """Ansible's splitting: by commas if there is one; a lone IPv6 address stays whole; else by colons outside brackets.

    Parts between commas are split by colons too, which Ansible does not do (it would then find nothing).
    """
    if "," in pattern:
        return tuple(part for piece in pattern.split(",") for part in split(piece.strip()))
    if not pattern or pattern.lstrip("&!").startswith("@") or names.address(pattern):
        return (pattern,) if pattern else ()
    if _TOKEN.sub("", pattern).strip(" \t:"):
        raise errors.Problem(
            "bad-pattern", f"'{pattern}': a bracket is not closed", hint="a part of a group is g[0] or g[0:2]", pattern=pattern
        )
    return tuple(_TOKEN.findall(pattern))


def _terms(pattern: str) -> list[_Term]:
    """In the order of evaluation: plain terms, then intersections, then exclusions."""
    found = [_Term(text[0], text[1:], text) if text[0] in "&!" else _Term("", text, text) for text in _parts(pattern)]
    for term in found:
        if not term.text:
            raise errors.Problem("bad-pattern", f"'{pattern}': nothing follows '{term.sign}'", pattern=pattern)
    plain = [term for term in found if not term.sign] or [_Term("", "all", "all")]
    return [*plain, *(term for term in found if term.sign == "&"), *(term for term in found if term.sign == "!")]


def _parts(pattern: str) -> tuple[str, ...]:
    found: list[str] = []
    for part in split(pattern.strip()):
        sign, name = (part[0], part[1:]) if part[0] in "&!" else ("", part)
        found += [sign + line for line in _listed(name[1:])] if name.startswith("@") else [part]
    if not found:
        raise errors.Problem("bad-pattern", "the host pattern is empty", hint="'all' selects every host", pattern=pattern)
    return tuple(found)


def _listed(name: str) -> list[str]:
    """The patterns of a file, one a line."""
    try:
        lines = Path(name).expanduser().read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise errors.Problem("bad-pattern", f"@{name} cannot be read: {error}", hint="the file lists one host or pattern a line") from error
    return [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]


def _evaluate(terms: Iterable[_Term], known: tree.Tree, warnings: list[str]) -> set[str]:
    chosen: set[str] = set()
    for term in terms:
        found = set(_match(term, known, warnings))
        if term.sign == "!":
            chosen -= found
        elif term.sign == "&":
            chosen &= found
        else:
            chosen |= found
    return chosen


def _match(term: _Term, known: tree.Tree, warnings: list[str]) -> list[str]:
    text = names.address(term.text) or term.text
    if text in known.hosts and not (term.sign and text in known.shared_names):
        return [text]  # a plain name is the host, whatever group has it too; behind '&' and '!' Ansible takes the group
    expression, subscript = _subscript(text)
    found = _enumerate(term, expression, known, warnings)
    if subscript is None:
        return found
    if subscript["separator"] == "-":
        warnings.append(f"'{term.whole}': write [{subscript['start']}:{subscript['end']}]; Ansible has removed the form with '-'")
    return _part(term, found, subscript)


def _subscript(text: str) -> tuple[str, re.Match[str] | None]:
    match = None if text.startswith("~") else _SUBSCRIPT.match(text)
    return (match["expression"], match) if match else (text, None)


def _part(term: _Term, found: list[str], subscript: re.Match[str]) -> list[str]:
    """Both bounds count, as in Ansible."""
    if subscript["index"]:
        index = int(subscript["index"])
        part = found[index:][:1] if -len(found) <= index < len(found) else []
    else:
        part = found[int(subscript["start"]) : int(subscript["end"]) + 1 if subscript["end"] else None]
    if not part and not (term.sign and subscript["separator"]):
        size = f"'{subscript['expression']}' has {len(found)} host{'s' if len(found) != 1 else ''}, counted from 0"
        raise errors.Problem("nothing-selected", f"'{term.whole}' selects no host: {size}", pattern=term.whole)
    return part


def _enumerate(term: _Term, expression: str, known: tree.Tree, warnings: list[str]) -> list[str]:
    matches = _matcher(expression)
    groups = [name for name in known.groups if matches(name)]
    found = {host: None for name in groups for host in known.groups[name].members}
    if not groups or expression.startswith("~") or any(sign in expression for sign in _PATTERN_SIGNS):
        found.update({name: None for name in known.hosts if matches(name)})
    if not found and not groups:
        _complain(term, expression, known, warnings)
    return list(found)


def _matcher(expression: str) -> Callable[[str], object]:
    source = expression[1:] if expression.startswith("~") else fnmatch.translate(expression)
    try:
        return re.compile(source).match
    except re.error as error:
        raise errors.Problem("bad-pattern", f"'{expression}' is no regular expression: {error}", pattern=expression) from error


def _complain(term: _Term, expression: str, known: tree.Tree, warnings: list[str]) -> None:
    if not (expression.startswith("~") or any(sign in expression for sign in "?*[")):
        own = "write it into the inventory with ansible_connection: local" if expression in {"localhost", "127.0.0.1", "::1"} else ""
        hint = own or names.meant(expression, [*known.hosts, *known.groups]) or _offer(known)
        raise errors.Problem("unknown-host", f"no host or group is named '{expression}'", hint=hint, pattern=term.whole)
    if not term.sign:
        raise errors.Problem("nothing-selected", f"'{term.whole}' matches no host and no group", hint=_offer(known), pattern=term.whole)
    warnings.append(f"'{term.whole}' matches no host and no group")


def _offer(known: tree.Tree) -> str:
    groups = [name for name, group in known.groups.items() if group.members and name not in {"all", "ungrouped"}]
    if not known.hosts:
        return "the inventory holds no host"
    return f"hosts: {_few(list(known.hosts))}" + (f"; groups: {_few(groups)}" if groups else "")


def _few(found: list[str]) -> str:
    return ", ".join(found[:6]) + (f" and {len(found) - 6} more" if len(found) > 6 else "")
