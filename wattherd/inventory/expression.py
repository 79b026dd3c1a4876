"""Jinja2 inside inventory values: `"{{ other }}"` keeps the other value's type, mixed text becomes text, unknown names fail.

Owns the environment and what its failures mean to an operator; names are looked up in a mapping that may be lazy. Whoever needs it
imports it late: jinja2 costs 40 ms, and most inventories have few expressions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import cast

import jinja2
from jinja2 import nodes

from wattherd import errors
from wattherd.inventory import evaluation, names

_MISSING = re.compile(r"'(?P<name>[^']+)' is undefined|has no (?:attribute|element) '?(?P<attribute>[^']+)'?")
_UNEXPECTED = (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError)
_FOUND = "found"


class Renderer:
    """Compiles each text once for all hosts."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._compiled: dict[str, Callable[[Mapping[str, object]], object]] = {}
        self._jinja = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True, autoescape=False)  # noqa: S701 - no HTML
        self._jinja.globals["lookup"] = self._lookup

    def render(self, text: str, variables: Mapping[str, object], use: evaluation.Use) -> object:
        try:
            if text not in self._compiled:
                self._compiled[text] = self._compile(text)
            return self._compiled[text](variables)
        except jinja2.UndefinedError as error:
            raise _undefined(error, variables, use) from error
        except jinja2.TemplateSyntaxError as error:
            hint = (
                "Ansible's own filters and tests are not here, Jinja's are" if "No filter" in str(error) or "No test" in str(error) else ""
            )
            raise use.problem("template-syntax", f": {error.message}", hint) from error
        except _UNEXPECTED as error:
            raise use.problem("bad-variable", f" cannot be worked out: {error}") from error

    def _compile(self, text: str) -> Callable[[Mapping[str, object]], object]:
        """A text that is one expression keeps its value's type; everything else is a template for text."""
        parsed = self._jinja.parse(text)
        whole = _expression(parsed)
        if whole is not None:
            parsed = nodes.Template([nodes.Assign(nodes.Name(_FOUND, "store"), whole, lineno=1)], lineno=1)
            parsed.set_environment(self._jinja)
        template = self._jinja.from_string(parsed)

        def run(variables: Mapping[str, object]) -> object:
            # A shared parent is only asked by name, so a lazy mapping stays lazy: nothing but the names in use is worked out.
            offered = _Names(variables, self._jinja.globals)
            context = template.new_context(cast("dict[str, object]", offered), shared=True)
            written = "".join(template.root_render_func(context))
            return written if whole is None else _settled(context.vars[_FOUND])

        return run

    def _lookup(self, plugin: str, *words: str, default: str = "") -> str:
        if plugin.removeprefix("ansible.builtin.") != "env":
            raise ValueError(f"lookup('{plugin}', …) is not known; lookup('env', 'NAME') is the one lookup there is")
        return ",".join(self._environ.get(word, default) for word in words)


class _Names(Mapping[str, object]):
    """The variables, and behind them what Jinja itself offers (range, dict, namespace, lookup)."""

    def __init__(self, variables: Mapping[str, object], offered: Mapping[str, object]) -> None:
        self._variables = variables
        self._offered = offered

    def __contains__(self, name: object) -> bool:
        return name in self._variables or name in self._offered

    def __getitem__(self, name: str) -> object:
        return self._variables[name] if name in self._variables else self._offered[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._variables

    def __len__(self) -> int:
        return len(self._variables)


def _expression(parsed: nodes.Template) -> nodes.Expr | None:
    body = parsed.body
    if (
        len(body) == 1
        and isinstance(body[0], nodes.Output)
        and len(body[0].nodes) == 1
        and not isinstance(body[0].nodes[0], nodes.TemplateData)
    ):
        return body[0].nodes[0]
    return None


def _settled(value: object) -> object:
    """An expression's value as data: what is undefined fails here and not three rooms later; a filter's generator becomes a list."""
    if isinstance(value, jinja2.Undefined):
        return str(value)
    if isinstance(value, dict):
        return {key: _settled(item) for key, item in value.items()}
    return [_settled(item) for item in value] if isinstance(value, list | tuple | range | Iterator) else value


def _undefined(error: Exception, variables: Mapping[str, object], use: evaluation.Use) -> errors.Problem:
    match = _MISSING.search(str(error))
    if match is None:
        return use.problem("template-variable", f": {error}")
    missing = match["name"] or match["attribute"]
    hint = (names.meant(missing, variables) if match["name"] else "") or "define it in group_vars/, host_vars/ or an inventory file"
    return use.problem("template-variable", f" needs '{missing}', which is not defined", hint)
