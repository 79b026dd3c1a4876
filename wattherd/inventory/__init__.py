"""The inventory: which hosts exist, how each is reached and what each should be.

`load` reads an Ansible inventory (YAML or INI, with group_vars/, host_vars/ and Wattherd's models.yaml and sites.yaml); `select` gives
the hosts of a pattern as frozen values. Nothing of a host is worked out before it is selected, and the heavy libraries are imported only
then. Knows no roles and connects to nothing.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from wattherd import errors
from wattherd.inventory import connection as connections
from wattherd.inventory import names, places

if TYPE_CHECKING:
    import pydantic

    from wattherd.inventory import evaluation, tree
    from wattherd.inventory import pattern as patterns
    from wattherd.inventory import settings as models
    from wattherd.inventory import variables as precedences

OWN = (
    *("roles", "base", "llama_cpp", "cuda", "models", "model_folders", "serve", "proxy"),
    *("power", "power_tuned", "price_per_kwh", "currency"),
)
M = TypeVar("M", bound="pydantic.BaseModel")
MAGIC = ("inventory_hostname", "inventory_hostname_short", "inventory_dir", "group_names", "groups", "hostvars", "wattherd_cache")


@dataclass(frozen=True)
class Host:
    """One selected host. `variables` is for templates and lazy: only what a template names is worked out."""

    name: str
    groups: tuple[str, ...]  # without `all`, by name: Ansible's group_names
    connection: connections.Connection
    settings: models.Settings = field(compare=False, repr=False)
    variables: Mapping[str, object] = field(compare=False, repr=False)


@dataclass(frozen=True)
class _Context:
    """What the inventory was loaded with."""

    folder: Path
    project_root: Path
    show: Callable[[Path], str]
    roles_known: frozenset[str] | None
    environ: Mapping[str, str]


class Inventory:
    """What `load` found. Hosts are worked out on first use and kept; safe to use from many threads."""

    def __init__(
        self,
        context: _Context,
        precedence: precedences.Precedence,
        evaluator: evaluation.Evaluator,
        *,
        warnings: tuple[str, ...] = (),
        skipped: tuple[str, ...] = (),
    ) -> None:
        self.warnings = warnings
        self.skipped = skipped
        self.folder = context.folder
        self._context = context
        self._precedence = precedence
        self._tree: tree.Tree = precedence.known
        self._evaluator = evaluator
        self._variables: dict[str, evaluation.Variables] = {}
        self._connections: dict[str, connections.Connection] = {}
        self._hosts: dict[str, Host] = {}

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every name, in inventory order (the order that Ansible has for `all`)."""
        return tuple(self._tree.hosts)

    @property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        return {name: group.members for name, group in self._tree.groups.items()}

    def selection(self, pattern: str, limit: str | None = None) -> patterns.Selection:
        """The names of a pattern and what to warn about; no host is worked out."""
        from wattherd.inventory import pattern as patterns

        return patterns.select(pattern, limit, self._tree)

    def select(self, pattern: str, limit: str | None = None) -> tuple[Host, ...]:
        return tuple(self.host(name) for name in self.selection(pattern, limit).hosts)

    def lint(self, pattern: str, limit: str | None = None) -> tuple[errors.Problem, ...]:
        """What a verb that writes has to refuse although the selection is Ansible's own."""
        from wattherd.inventory import pattern as patterns

        return patterns.lint(pattern, limit, self._tree)

    def host(self, name: str) -> Host:
        self._require(name)
        with self._evaluator.lock:
            if name not in self._hosts:
                self._hosts[name] = self._build(name)
            return self._hosts[name]

    def connection(self, name: str) -> connections.Connection:
        """How a host is reached; what it should be is not worked out."""
        self._require(name)
        with self._evaluator.lock:
            if name not in self._connections:
                variables, given = self._of(name), self._precedence.values(name)
                self._connections[name] = connections.build(name, variables, given, self._context.project_root)
            return self._connections[name]

    def explain(self, host: str, variable: str) -> precedences.Explanation:
        """Every value that the variable could have for this host, the winner, and why it won."""
        self._require(host)
        return self._precedence.explain(host, variable)

    @functools.cached_property
    def catalogue(self) -> models.Catalogue:
        """models.yaml; empty when there is none."""
        from wattherd.inventory import settings

        found = self._beside("models.yaml", settings.Models)
        return found.models if found is not None else {}

    @functools.cached_property
    def circuits(self) -> Mapping[str, models.Circuit]:
        """sites.yaml; empty when there is none. A pattern that selects nothing is an error that says where it stands."""
        from wattherd.inventory import settings

        found = self._beside("sites.yaml", settings.Sites)
        circuits = found.circuits if found is not None else {}
        for name, one in circuits.items():
            try:
                self.selection(one.hosts)
            except errors.Problem as problem:
                place = f"{self._context.show(self.folder / 'sites.yaml')}: circuits.{name}.hosts"
                raise errors.Problem(problem.code, f"{place}: {problem.message}", hint=problem.hint, **problem.context) from problem
        return circuits

    def _beside(self, name: str, model: type[M]) -> M | None:
        """One of Wattherd's own files beside the inventory; None when it is not there."""
        from wattherd.inventory import document, evaluation, validation

        file = self.folder / name
        if not file.is_file():
            return None
        shown = self._context.show(file)
        given = document.variables(document.compose(document.text(file, shown), shown), shown, name)
        data = evaluation.Variables("", given, self._common_magic(), self._evaluator)
        return validation.validated(model, {key: data[key] for key in given}, validation.Subject(given, shown))

    def _require(self, name: str) -> None:
        if name not in self._tree.hosts:
            raise errors.Problem("unknown-host", f"no host is named '{name}'", hint=names.meant(name, self._tree.hosts))

    def _build(self, name: str) -> Host:
        from wattherd.inventory import validation

        variables = self._of(name)
        given = self._precedence.values(name)
        connection = self.connection(name)
        own = {key: variables[key] for key in OWN if key in given}
        needs_models = "models" in own or "serve" in own
        known = validation.Known(self._context.roles_known, self.catalogue if needs_models else (), self._tree.hosts)
        settings = validation.build(own, validation.Subject(given, name, name), known)
        return Host(name, tuple(sorted(self._tree.hosts[name].groups)), connection, settings, variables)

    def _of(self, name: str) -> evaluation.Variables:
        from wattherd.inventory import evaluation

        if name not in self._variables:
            self._variables[name] = evaluation.Variables(name, self._precedence.values(name), self._magic(name), self._evaluator)
        return self._variables[name]

    def _magic(self, name: str) -> dict[str, Callable[[], object]]:
        return {
            **self._common_magic(),
            "inventory_hostname": lambda: name,
            "inventory_hostname_short": lambda: _short(name),
            "group_names": lambda: sorted(self._tree.hosts[name].groups),
            "groups": lambda: {group: list(members) for group, members in self.groups.items()},
            "hostvars": lambda: _HostVariables(self._of, self._tree.hosts),
        }

    def _common_magic(self) -> dict[str, Callable[[], object]]:
        return {
            "inventory_dir": lambda: str(self.folder.absolute()),
            "wattherd_cache": lambda: str(places.cache_dir(self._context.environ)),
        }


class _HostVariables(Mapping[str, "evaluation.Variables"]):
    """`hostvars['titan'].port`: the other host's variables, worked out when they are asked for."""

    def __init__(self, of: Callable[[str], evaluation.Variables], hosts: Mapping[str, object]) -> None:
        self._of = of
        self._known = hosts

    def __getitem__(self, name: str) -> evaluation.Variables:
        if name not in self._known:
            raise KeyError(name)
        return self._of(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def load(
    path: Path,
    *,
    roles_known: frozenset[str] | None,
    extra_vars: Mapping[str, object] = {},
    project_root: Path,
    environ: Mapping[str, str] = os.environ,
) -> Inventory:
    from wattherd.inventory import document, doubts, evaluation, source, tree, varfiles, variables

    show = functools.partial(_show, project_root)
    found = source.find(path, show(path))
    draft = tree.Draft()
    for file in found.files:
        source.read(file, show(file), draft)
    grown = tree.grown(draft)
    files = varfiles.read(found.folder, show, grown)
    extra = {name: document.Value(value, "--extra-vars", 0) for name, value in extra_vars.items()}
    warnings = (*found.warnings, *grown.warnings, *files.warnings, *doubts.about(grown, files, extra, OWN, MAGIC))
    context = _Context(found.folder, project_root, show, roles_known, environ)
    precedence = variables.Precedence(grown, files, extra)
    return Inventory(context, precedence, evaluation.Evaluator(environ), warnings=warnings, skipped=found.skipped)


def _show(project_root: Path, path: Path) -> str:
    """As an operator would type it from the project's folder."""
    whole = path.absolute()
    return str(whole.relative_to(project_root.absolute())) if whole.is_relative_to(project_root.absolute()) else str(path)


def _short(name: str) -> str:
    is_address = names.address(name) is not None or all(part.isdecimal() for part in name.split("."))
    return name if is_address else name.split(".", maxsplit=1)[0]
