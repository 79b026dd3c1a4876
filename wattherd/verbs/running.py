"""One deploy while it runs: what its steps share. Knows the barriers' rule (who fails leaves, the others go on), not the steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from wattherd import errors, fleet
from wattherd.power.jetson import verdict
from wattherd.powering import plan as powering
from wattherd.verbs import access, sightings, watch
from wattherd.wire import event, facts, fields, manifest


def waits(message: Mapping[str, object]) -> bool:
    """This setting can be had only by a reboot of its node."""
    return message.get("event") == "skipped" and str(message.get("reason")).startswith(verdict.REBOOT)


@dataclass(frozen=True, kw_only=True)
class Options:
    """`tags` and `skip_tags` limit a run to parts of the manifest; such a run removes nothing. `serial` as Ansible's."""

    check: bool = False
    diff: bool = False
    tags: tuple[str, ...] = ()
    skip_tags: tuple[str, ...] = ()
    serial: str = "100%"


@dataclass(frozen=True)
class Report:
    """What `invoke deploy` gives back; `hosts` in inventory order."""

    hosts: Mapping[str, fleet.Outcome]
    seconds: float
    check: bool = False

    @property
    def reached(self) -> list[str]:
        """Those on which something may have changed, also where it failed."""
        return [name for name, one in self.hosts.items() if one.status != "unreachable" and not self.check]


@dataclass
class Run:
    """One run: what the steps share. Lives for one call of `deploy` or `power-apply`.

    `whole_roles` are roles whose part of a node is brought to its manifest whole, although the run is limited: what such a role no longer
    wants goes. `apart` are resources that were told of once for all hosts of a kind, by host; `waiting` are those that wait for a reboot.
    `staged`: the nodes have their manifests already. `sighted` is what was seen of each host's cards before, `told` the facts of this run
    with what they lack of that.
    """

    reach: access.Access
    options: Options
    seen: watch.Watch
    sessions: access.Sessions
    manifests: dict[str, manifest.Manifest] = field(default_factory=dict)
    only: dict[str, list[str] | None] = field(default_factory=dict)
    counts: dict[str, fleet.Count] = field(default_factory=dict)
    lost: dict[str, errors.Problem] = field(default_factory=dict)
    builders: list[str] = field(default_factory=list)
    coming: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    mended: dict[str, set[str]] = field(default_factory=dict)
    contexts: dict[str, list[str]] = field(default_factory=dict)
    doubts: dict[str, list[str]] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    power: dict[str, powering.Plan] = field(default_factory=dict)
    apart: dict[str, frozenset[str]] = field(default_factory=dict)
    waiting: dict[str, set[str]] = field(default_factory=dict)
    whole_roles: tuple[str, ...] = ()
    staged: bool = False
    sighted: Mapping[str, sightings.Sighting] = field(default_factory=dict)
    told: dict[str, facts.Facts] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The hosts that are still with us, in order."""
        return [name for name in self.manifests if name not in self.lost]

    def call(self, name: str, order: Mapping[str, object], body: bytes | None = None) -> fields.Document:
        def on_event(message: Mapping[str, object]) -> None:
            # A damaged blob is mended by its arrival alone, and that is a change too, as the check before has said.
            resource_id = str(message.get("id"))
            arrived = resource_id in self.mended.get(name, ()) and resource_id not in self.counts[name].resources
            if arrived and message.get("event") == "ok":
                message = {"event": "changed", "id": resource_id, "action": "fix", "delta": {"content": ["damaged", "sent anew"]}}
            self.counts[name].see(message)
            if message.get("event") == "skipped":
                if resource_id in self.apart.get(name, ()):
                    return
                if waits(message):
                    self.waiting.setdefault(name, set()).add(resource_id)
            self.seen.event(name, message)

        answer = self.sessions.live[name].call(order, body, on_event)
        self.counts[name].ended(answer)
        return answer

    def say(self, name: str, words: str) -> None:
        """Something found on the way that the operator should read."""
        message = event.note(words)
        self.counts[name].see(message)
        self.seen.event(name, message)

    def drop(self, name: str, problem: errors.Problem) -> None:
        """This host is out of the run; the others go on."""
        self.lost[name] = problem
        self.seen.done(name, self.counts[name].outcome(problem))

    def each(self, names: Sequence[str], work: str, step: Callable[[str], None]) -> None:
        """Run one step on hosts; who fails is dropped."""
        self.seen.phase(work, names)
        for name, done in fleet.each(names, step, forks=self.reach.forks).items():
            if done.problem is not None:
                self.drop(name, done.problem)
