"""Which of many values a host's variable has: Ansible's precedence, and the explanation of one answer.

Weakest first: `all` in inventory files; other groups in inventory files; group_vars/all; group_vars of other groups; the host in
inventory files; host_vars; extra variables. Groups among themselves merge by (depth, ansible_group_priority, name). Later wins,
and a dict replaces a dict: nothing is merged inside a value (Ansible's default, hash_behaviour=replace). Evaluates nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from wattherd import errors
from wattherd.inventory import document, names, tree, varfiles

LAYERS = (
    "all in an inventory file",
    "a group in an inventory file",
    "group_vars/all",
    "group_vars of a group",
    "the host in an inventory file",
    "host_vars",
    "--extra-vars",
)
_ALL, _GROUP, _ALL_FILE, _GROUP_FILE, _HOST, _HOST_FILE, _EXTRA = range(len(LAYERS))


@dataclass(frozen=True)
class Candidate:
    """One value that a host could have had. Group, depth and priority are None where no group gave it."""

    value: object
    place: str
    layer: str
    rank: int
    group: str | None = None
    depth: int | None = None
    priority: int | None = None


@dataclass(frozen=True)
class Explanation:
    """Every candidate, weakest first; the last one won."""

    host: str
    variable: str
    candidates: tuple[Candidate, ...]
    reason: str

    @property
    def winner(self) -> Candidate:
        return self.candidates[-1]


@dataclass(frozen=True)
class Precedence:
    known: tree.Tree
    files: varfiles.Files
    extra: Mapping[str, document.Value]
    _of_groups: dict[tuple[str, ...], dict[str, document.Value]] = field(default_factory=dict, repr=False)

    def values(self, host: str) -> dict[str, document.Value]:
        """The winning value of every variable. Hosts of the same groups share the work for these."""
        groups = self.known.hosts[host].groups
        if groups not in self._of_groups:
            self._of_groups[groups] = _merged(layer for layer in self._layers(host) if layer[0] < _HOST)
        return {**self._of_groups[groups], **_merged(layer for layer in self._layers(host, start=_HOST))}

    def explain(self, host: str, variable: str) -> Explanation:
        found = tuple(
            _candidate(rank, group, value) for rank, group, variables in self._layers(host) for value in variables.get(variable, ())
        )
        if not found:
            known = {name for _, _, variables in self._layers(host) for name in variables}
            hint = names.meant(variable, known) or "group_vars/, host_vars/ and the inventory files are where it could be set"
            raise errors.Problem("bad-variable", f"nothing sets '{variable}' for {host}", hint=hint, host=host)
        return Explanation(host, variable, found, _reason(found))

    def _layers(self, host: str, start: int = 0) -> Iterator[tuple[int, tree.Group | None, tree.Variables]]:
        member, everything = self.known.hosts[host], self.known.groups["all"]
        if start < _HOST:
            groups = [self.known.groups[name] for name in member.groups]
            yield _ALL, everything, everything.variables
            yield from ((_GROUP, group, group.variables) for group in groups)
            yield _ALL_FILE, everything, self.files.groups.get("all", {})
            yield from ((_GROUP_FILE, group, self.files.groups.get(group.name, {})) for group in groups)
        yield _HOST, None, member.variables
        yield _HOST_FILE, None, self.files.hosts.get(host, {})
        yield _EXTRA, None, {name: (value,) for name, value in self.extra.items()}


def _merged(layers: Iterator[tuple[int, tree.Group | None, tree.Variables]]) -> dict[str, document.Value]:
    return {name: values[-1] for _, _, variables in layers for name, values in variables.items()}


def _candidate(rank: int, group: tree.Group | None, value: document.Value) -> Candidate:
    if group is None:
        return Candidate(value.data, value.place, LAYERS[rank], rank)
    return Candidate(value.data, value.place, LAYERS[rank], rank, group.name, group.depth, group.priority)


def _reason(found: tuple[Candidate, ...]) -> str:
    if len(found) == 1:
        return "nothing else sets it"
    second, winner = found[-2:]
    if winner.rank != second.rank:
        return f"{winner.layer} is stronger than {second.layer}"
    if winner.group == second.group:
        return f"{winner.place} is read after {second.place}"
    if winner.depth != second.depth:
        return f"the group '{winner.group}' lies deeper than '{second.group}' (depth {winner.depth} > {second.depth})"
    if winner.priority != second.priority:
        return (
            f"at the same depth ({winner.depth}) the ansible_group_priority of '{winner.group}' is higher than that of "
            f"'{second.group}' ({winner.priority} > {second.priority})"
        )
    return (
        f"at the same depth ({winner.depth}) and priority ({winner.priority}) '{winner.group}' sorts after '{second.group}' "
        "(ASCII order: capitals before small letters)"
    )
