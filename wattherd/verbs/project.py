"""The project a command works on: where its files lie, its inventory, and which hosts were asked for."""

from __future__ import annotations

import difflib
import functools
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from wattherd import errors, inventory, plan, role
from wattherd.inventory import places

_PACKAGE = pathlib.Path(__file__).resolve().parent.parent
#: Where the roles and templates that Wattherd ships lie: inside an installed package, beside it in a checkout.
_SHIPPED = _PACKAGE / "shipped" if (_PACKAGE / "shipped").is_dir() else _PACKAGE.parent


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The flags that say which hosts, and how they are read."""

    hosts: str | None = None
    limit: str | None = None
    inventory: str | None = None
    extra_vars: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Project:
    """A folder with tasks.py, inventory/, roles/, templates/, and the controller's places for it."""

    root: pathlib.Path

    @property
    def state(self) -> pathlib.Path:
        return places.state_dir(self.root)

    @property
    def cache(self) -> pathlib.Path:
        return places.cache_dir()

    @property
    def known_hosts(self) -> pathlib.Path:
        return self.state / "known_hosts"

    @property
    def template_folders(self) -> tuple[pathlib.Path, ...]:
        return tuple(folder for folder in (self.root / "templates", _SHIPPED / "templates") if folder.is_dir())

    @functools.cached_property
    def roles(self) -> Mapping[str, role.Role]:
        return {**plan.load_roles(_SHIPPED / "roles"), **plan.load_roles(self.root / "roles")}

    def inventory_path(self, asked: str | None) -> pathlib.Path:
        name = asked or os.environ.get("WATTHERD_INVENTORY") or "inventory"
        path = pathlib.Path(name).expanduser()
        return path if path.is_absolute() or (asked and path.exists()) else self.root / path

    def load(self, selection: Selection) -> inventory.Inventory:
        return inventory.load(
            self.inventory_path(selection.inventory),
            roles_known=frozenset(self.roles),
            extra_vars=selection.extra_vars,
            project_root=self.root,
        )


def check_hosts(loaded: inventory.Inventory, selection: Selection) -> None:
    """`hosts-required` unless a command that changes machines was told which; before any question is asked."""
    if selection.hosts is None:
        names = sorted(name for name in loaded.groups if name not in ("all", "ungrouped"))
        raise errors.Problem(
            "hosts-required",
            "which hosts? this command changes machines, so --hosts must say",
            hint=f"groups here: {', '.join(names) or 'none'}; or --hosts all",
        )


def hosts_of(
    loaded: inventory.Inventory, selection: Selection, *, writes: bool, early: Callable[[Sequence[str]], None] = lambda _: None
) -> tuple[inventory.Host, ...]:
    """The hosts that were asked for. A verb that writes wants --hosts spelled out; one that reads takes all.

    `early` hears their names before what they should be is worked out, which takes a while.
    """
    if writes:
        check_hosts(loaded, selection)
        for problem in loaded.lint(selection.hosts or "all", selection.limit):
            raise problem
    chosen = loaded.selection(selection.hosts or "all", selection.limit).hosts
    early(chosen)
    return tuple(loaded.host(name) for name in chosen)


def check_tags(tags: Sequence[str], known: Sequence[str]) -> None:
    """An unknown tag would select nothing and look like success."""
    for tag in tags:
        if tag not in known:
            near = difflib.get_close_matches(tag, known, 3) or sorted(known)
            raise errors.Problem("unknown-tag", f"no tag '{tag}'", hint=f"did you mean: {', '.join(near)}")
