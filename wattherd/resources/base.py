"""What a resource is: wanted fields, a way to read the actual state, and a way to fix the difference.

State is a flat dict of plain values; None means absent. Order, removal and reporting belong to node/converge.py.
"""

from __future__ import annotations

import abc
from typing import AbstractSet, Any, ClassVar, Dict, Mapping, Optional, Protocol, Sequence, Tuple

from wattherd import machine as machines

State = Dict[str, Any]
#: key -> (was, wanted)
Delta = Dict[str, Tuple[object, object]]


class Deferred(Exception):  # noqa: N818 - no error: the field's word is "skipped"
    """Raised by `fix` and `remove` for what cannot be done now, or not here, and is no failure: it is skipped, and its text says why."""


class Tell(Protocol):
    """How long work speaks: words, how much of how much, and in what (bytes, objects, s; total 0 is unknown)."""

    def __call__(self, words: str, done: float = 0, total: float = 0, unit: str = "") -> None: ...


class Resource(abc.ABC):
    """The surface that every type fills in. Subclasses are frozen dataclasses of wanted fields, one level deep."""

    TYPE: ClassVar[str]
    #: What comes after it does not need it: its failure is told, and the rest of the run is done all the same.
    INDEPENDENT: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def id(self) -> str:
        """`type:name`, the same in manifest, event, log and error."""

    @abc.abstractmethod
    def wanted(self) -> State:
        """The state that this resource should have."""

    @abc.abstractmethod
    def actual(self, machine: machines.Machine) -> Optional[State]:
        """The state as read now; None when absent. Reads only."""

    @abc.abstractmethod
    def fix(self, machine: machines.Machine, delta: Delta, tell: Tell) -> None:
        """Make the actual state the wanted one. Interrupted anywhere, the next call must converge."""

    @abc.abstractmethod
    def remove(self, machine: machines.Machine, tell: Tell) -> None:
        """Undo what `fix` created. Never called for what was there before Wattherd."""

    def is_new(self, machine: machines.Machine, state: Optional[State]) -> bool:  # noqa: ARG002 - the surface of those that look
        """Before the first fix: would this be Wattherd's own making, to be removed one day?"""
        return state is None

    def ours(self, machine: machines.Machine) -> bool:  # noqa: ARG002 - the surface of those that bear a mark
        """What is there bears Wattherd's own mark, so it is Wattherd's even where the records of it were lost."""
        return False

    def gone(self, machine: machines.Machine) -> bool:
        """After `remove`: nothing of ours is left of it."""
        return self.actual(machine) is None

    def kept(self, machine: machines.Machine, gone: AbstractSet[str], made: AbstractSet[str] = frozenset()) -> str:  # noqa: ARG002 - the surface of those that keep something
        """Why `remove` would leave it where it is, in words; empty when it would go. Reads only.

        `gone` are paths removed before it, `made` those made or changed: under a check both are still as they were.
        """
        return ""

    def takes(self) -> Tuple[str, ...]:
        """The paths that are gone once it is removed: a folder that holds nothing else may then go too, and a check knows it beforehand."""
        return (self.id.partition(":")[2],)

    def replaces(self, machine: machines.Machine) -> Tuple[str, ...]:  # noqa: ARG002 - the surface of those that processes run from
        """Paths that a fix would put anew although they are there by name: whoever runs from what is there now is restarted then."""
        return ()

    def follows(self, machine: machines.Machine, replaced: AbstractSet[str]) -> Delta:  # noqa: ARG002 - the surface of those that run
        """What else would differ once these paths have been put anew. Reads only."""
        return {}

    def unsupported(self, machine: machines.Machine, state: Optional[State]) -> str:  # noqa: ARG002 - the surface of those that not every node can have
        """Why this node cannot have it at all, in words: it is skipped then, never ok and never failed. Reads only; empty where it can."""
        return ""

    def preflight(self, machine: machines.Machine, state: Optional[State]) -> None:  # noqa: B027 - most types have nothing to say here
        """Raise a Problem for what would make `fix` fail, before anything on the node is touched. Reads only."""

    def foresee(self, machine: machines.Machine, state: Optional[State]) -> None:  # noqa: B027 - most types have nothing to foresee
        """Raise a Problem for what `fix` would find broken on this node, in a check as in a run: this resource alone fails. Reads only."""

    def remarks(self, state: Optional[State]) -> Tuple[str, ...]:  # noqa: ARG002 - the surface of those that have something to say
        """What a person should hear of the state that a fix has led to, although it is the wanted one."""
        return ()

    def notes(self, machine: machines.Machine) -> Tuple[str, ...]:  # noqa: ARG002 - the surface of those that have something to say
        """What a person should hear before this is fixed although nothing is wrong with it. Asked after `preflight`. Reads only."""
        return ()

    def needs(self, machine: machines.Machine) -> Mapping[str, int]:  # noqa: ARG002 - the surface of those that do
        """Digests (with sizes in bytes) that `fix` would want in the store and that are not there yet."""
        return {}

    def texts(self, machine: machines.Machine) -> Tuple[str, str]:  # noqa: ARG002 - as above
        """Old and new text for --diff; two empty strings where there is nothing to show, or nothing that may be shown."""
        return "", ""

    @classmethod
    def observe(cls, machine: machines.Machine, batch: Sequence[Any]) -> Mapping[str, Optional[State]]:
        """The states of many at once, for types where one look can serve all (one systemctl, one dpkg status)."""
        return {one.id: one.actual(machine) for one in batch}


def delta(wanted: Mapping[str, Any], actual: Optional[Mapping[str, Any]]) -> Delta:
    """What differs, in the wanted state's order of keys."""
    found = actual or {}
    return {key: (found.get(key), value) for key, value in wanted.items() if actual is None or found.get(key) != value}
