"""Groups and hosts: who is in what, how deep each group lies, and in which order hosts come.

A Draft collects what the source files say, in their order; `grown` turns it into a Tree by Ansible's rules (every group under
`all`, homeless hosts in `ungrouped`, depth = longest way from `all`). Knows nothing of files, patterns or what a variable means.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from wattherd import errors
from wattherd.inventory import document

Variables = Mapping[str, tuple[document.Value, ...]]
"""Every value that the sources give to a name, weakest first."""


@dataclass(frozen=True)
class Place:
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Group:
    name: str
    depth: int
    priority: int
    children: tuple[str, ...]
    members: tuple[str, ...]
    variables: Variables


@dataclass(frozen=True)
class Member:
    """A host as the sources describe it. `groups` leaves `all` out; the strongest comes last."""

    name: str
    place: Place
    groups: tuple[str, ...]
    variables: Variables


@dataclass(frozen=True)
class Tree:
    groups: Mapping[str, Group]
    hosts: Mapping[str, Member]  # in inventory order
    warnings: tuple[str, ...]
    shared_names: frozenset[str]  # names of a host and of a group at once


@dataclass
class _Branch:
    children: dict[str, Place] = field(default_factory=dict)
    hosts: dict[str, Place] = field(default_factory=dict)
    variables: dict[str, list[document.Value]] = field(default_factory=dict)
    priority: int = 1


@dataclass
class Draft:
    """What the sources say so far."""

    groups: dict[str, _Branch] = field(default_factory=lambda: {"all": _Branch(), "ungrouped": _Branch()})
    hosts: dict[str, Place] = field(default_factory=dict)
    variables: dict[str, dict[str, list[document.Value]]] = field(default_factory=dict)
    mentions: dict[str, str] = field(default_factory=dict)  # host -> how its first mention could have meant a group

    def group(self, name: str) -> None:
        self.groups.setdefault(name, _Branch())

    def child(self, parent: str, name: str, place: Place) -> None:
        self.group(parent)
        self.group(name)
        self.groups[parent].children.setdefault(name, place)

    def host(self, name: str, group: str, place: Place, *, meant: str) -> None:
        self.group(group)
        self.hosts.setdefault(name, place)
        self.groups[group].hosts.setdefault(name, place)
        self.mentions.setdefault(name, meant)

    def host_variables(self, host: str, values: Mapping[str, document.Value]) -> None:
        mine = self.variables.setdefault(host, {})
        for name, value in values.items():
            mine.setdefault(name, []).append(value)

    def group_variables(self, group: str, values: Mapping[str, document.Value]) -> None:
        self.group(group)
        for name, value in values.items():
            if name == "ansible_group_priority":
                self.groups[group].priority = _priority(value)
            self.groups[group].variables.setdefault(name, []).append(value)


def grown(draft: Draft) -> Tree:
    _adopt(draft)
    parents = _parents(draft)
    depths = _depths(draft)
    ancestors = {name: _above(name, parents) for name in draft.groups}
    groups = {name: _group(name, draft, depths[name]) for name in draft.groups}
    homes: dict[str, list[str]] = {}
    for name, branch in draft.groups.items():
        for host in branch.hosts:
            homes.setdefault(host, []).append(name)
    hosts = {name: _member(name, draft, homes[name], ancestors, groups) for name in groups["all"].members}
    shared = frozenset(hosts) & frozenset(groups)
    return Tree(groups, hosts, tuple(_same_name(name, hosts[name], draft) for name in hosts if name in shared), shared)


def order(group: Group) -> tuple[int, int, str]:
    """Ansible's merge key: deeper wins, then ansible_group_priority among equals, then the name in ASCII order (capitals first)."""
    return (group.depth, group.priority, group.name)


def _adopt(draft: Draft) -> None:
    """Every group without a parent comes under `all`; `ungrouped` keeps the hosts that have no other group, and only these."""
    everything = draft.groups["all"]
    parented = {child for branch in draft.groups.values() for child in branch.children}
    nowhere = Place("", 0)
    everything.children = {"ungrouped": nowhere, **everything.children}
    for name in draft.groups:
        if name != "all" and name not in parented:
            everything.children.setdefault(name, nowhere)
    grouped = {host for name, branch in draft.groups.items() if name not in {"all", "ungrouped"} for host in branch.hosts}
    loose = draft.groups["ungrouped"]
    loose.hosts = {name: place for name, place in {**loose.hosts, **everything.hosts}.items() if name not in grouped}


def _parents(draft: Draft) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for name in draft.groups}
    for name, branch in draft.groups.items():
        for child in branch.children:
            found[child].append(name)
    return found


def _depths(draft: Draft) -> dict[str, int]:
    depths = dict.fromkeys(draft.groups, 0)

    def descend(name: str, depth: int, way: tuple[str, ...]) -> None:
        if name in way:
            _refuse_loop((*way[way.index(name) :], name), draft)
        if depth and depth <= depths[name]:
            return
        depths[name] = depth
        for child in draft.groups[name].children:
            descend(child, depth + 1, (*way, name))

    for start in ("all", *draft.groups):  # a loop that nothing leads to is found from its own groups
        if start == "all" or not depths[start]:
            descend(start, 0, ())
    return depths


def _refuse_loop(way: tuple[str, ...], draft: Draft) -> None:
    places = [draft.groups[parent].children[child] for parent, child in itertools.pairwise(way)]
    place = next((str(place) for place in places if place.line), "the inventory")
    message = f"{place}: groups contain each other: {' > '.join(way)}"
    raise errors.Problem("inventory-invalid", message, hint="take one of them out of the loop")


def _above(name: str, parents: Mapping[str, list[str]]) -> frozenset[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for parent in parents[waiting.pop()]:
            if parent not in found:
                found.add(parent)
                waiting.append(parent)
    return frozenset(found)


def _group(name: str, draft: Draft, depth: int) -> Group:
    branch = draft.groups[name]
    variables = {key: tuple(values) for key, values in branch.variables.items()}
    return Group(name, depth, branch.priority, tuple(branch.children), tuple(_members(name, draft)), variables)


def _members(name: str, draft: Draft) -> Iterable[str]:
    """Ansible's order: a group's own hosts, then its children's, level by level."""
    found: dict[str, None] = {}
    seen: dict[str, None] = {}
    level = [name]
    while level:
        seen.update(dict.fromkeys(level))
        for group in level:
            found.update(dict.fromkeys(draft.groups[group].hosts))
        level = list(dict.fromkeys(child for group in level for child in draft.groups[group].children if child not in seen))
    return found


def _member(name: str, draft: Draft, homes: list[str], ancestors: Mapping[str, frozenset[str]], groups: Mapping[str, Group]) -> Member:
    inside = {*homes, *(group for home in homes for group in ancestors[home])} - {"all"}
    ordered = tuple(sorted(inside, key=lambda group: order(groups[group])))
    variables = {key: tuple(values) for key, values in draft.variables.get(name, {}).items()}
    return Member(name, draft.hosts[name], ordered, variables)


def _same_name(name: str, host: Member, draft: Draft) -> str:
    return f"{host.place}: '{name}' is both a host and a group; the bare name selects only the host. {draft.mentions[name]}"


def _priority(value: document.Value) -> int:
    if isinstance(value.data, int) and not isinstance(value.data, bool):
        return value.data
    if isinstance(value.data, str) and value.data.lstrip("-").isdecimal():
        return int(value.data)
    raise errors.Problem("inventory-invalid", f"{value.place}: ansible_group_priority must be a whole number, not {value.data!r}")
