"""`invoke power-status`: what every card and board was told to be, what it is, and what idling costs. Changes and wakes nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from wattherd import errors, fleet, inventory
from wattherd.link import session
from wattherd.power import faults
from wattherd.serving import instance
from wattherd.verbs import access, idle_waste, power_chosen, power_rows, power_told, project, rests, sightings, watch

#: So many looks at most: enough for a card that has just stopped working to settle, and for nobody to wait long.
_LOOKS = 5
#: Kinds of a look's fault that say only that this host has no such driver: without a card that is no failure.
_NOTHING_THERE = frozenset({"no-driver", "no-library"})


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One host that answered. `fault` is why its cards could not be read; its rows then say the same. `seen_s` is a monotonic clock's."""

    rows: tuple[power_rows.Row, ...]
    driver: str = ""
    source: str = ""
    simulated: bool = False
    price: idle_waste.Price | None = None
    fault: errors.Problem | None = None
    notes: tuple[str, ...] = ()
    seen_s: float = field(default_factory=time.monotonic)

    @property
    def status(self) -> str:
        return "failed" if self.fault is not None or any(row.status == power_rows.FAILED for row in self.rows) else "ok"


@dataclass(frozen=True, kw_only=True)
class Picture:
    """All selected hosts at one instant, in inventory order; `waiting` have not answered yet (only while watching)."""

    hosts: Mapping[str, fleet.Done[Seen]]
    waiting: tuple[str, ...] = ()

    @property
    def rows(self) -> tuple[power_rows.Row, ...]:
        return tuple(row for done in self.hosts.values() if done.value is not None for row in done.value.rows)

    @property
    def waste(self) -> idle_waste.Waste:
        prices = {name: done.value.price for name, done in self.hosts.items() if done.value is not None}
        return idle_waste.waste(self.rows, prices)

    @property
    def exit_code(self) -> int:
        return fleet.exit_code(
            [done.value.status if done.value is not None else fleet.status_of(done.problem) for done in self.hosts.values()]
        )


def power_status(reach: access.Access, selection: project.Selection, seen: watch.Watch) -> Picture:
    hosts = {host.name: host for host in selected(reach, selection, seen)}
    seen.phase("look", list(hosts))
    memory = rests.Rests(reach.project.state)
    sighted = sightings.read(reach.project.state)

    def tell(name: str, _: fleet.Done[Seen]) -> None:
        seen.done(name, fleet.Count().outcome())

    try:
        return Picture(
            hosts=fleet.each(list(hosts), lambda name: _one(reach, hosts[name], memory, sighted.get(name)), forks=reach.forks, on_done=tell)
        )
    finally:
        memory.save()


def selected(reach: access.Access, selection: project.Selection, seen: watch.Watch) -> tuple[inventory.Host, ...]:
    loaded = reach.project.load(selection)
    for words in loaded.warnings:
        seen.warn(words)
    return project.hosts_of(loaded, selection, writes=False, early=lambda names: reach.foresee(loaded, names))


def _one(reach: access.Access, host: inventory.Host, memory: rests.Rests, before: sightings.Sighting | None) -> Seen:
    opened = reach.open(host)
    try:
        return look(opened, host, memory, before, looks=_LOOKS)
    finally:
        opened.close()


def look(opened: session.Session, host: inventory.Host, memory: rests.Rests, before: sightings.Sighting | None, *, looks: int) -> Seen:
    """One answer of one host through its open session. `looks`: how often its node may look before it answers.

    `before` is what was seen of its cards: a lost one hides the UUID that the inventory names it by, and is no slip of the operator's.
    """
    order = {"verb": "power", "looks": looks, "servers": _servers(host), "known": memory.known(host.name)}
    told = power_told.decode(opened.call(order))
    seen = sightings.completed(opened.facts, before)
    want = power_chosen.chosen(host, seen, told)
    resting = memory.see(host.name, told)
    made = power_rows.rows(host.name, seen, told, want, resting)
    return Seen(
        rows=made,
        driver=told.look.driver,
        source=told.look.source,
        simulated=opened.facts.simulated,
        price=_price(host),
        fault=_fault(told, nothing_there=not made and told.look.fault_kind in _NOTHING_THERE),
        notes=_notes(told),
    )


def _servers(host: inventory.Host) -> list[dict[str, str]]:
    return [{"unit": instance.unit(one.name), "key_file": instance.key_file(one)} for one in host.settings.serve if one.api_key is not None]


def _price(host: inventory.Host) -> idle_waste.Price | None:
    per_kwh = host.settings.price_per_kwh
    return None if per_kwh is None else idle_waste.Price(per_kwh=per_kwh, currency=host.settings.currency)


def _fault(told: power_told.Told, *, nothing_there: bool) -> errors.Problem | None:
    if not told.look.fault or nothing_there:
        return None
    return faults.driver(told.look)


def _notes(told: power_told.Told) -> tuple[str, ...]:
    """What concerns the whole host."""
    notes = list(told.look.notes)
    if told.unconfirmed_s is not None:
        notes.append(f"its power policy is not confirmed: it is put back in {told.unconfirmed_s:.0f} s unless power-apply confirms it")
    if told.policy is None and told.before:
        notes.append("nothing holds its cards, and some are not as they were before Wattherd: invoke power-apply --restore")
    return tuple(notes)
