"""Power within a run: what each host's keys come to, whether hosts and circuits fit what feeds them, and what was seen of their cards.

Owns who leaves the run for a budget, before anything is touched. The sums themselves are in `wattherd.powering.budget`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from wattherd import errors, inventory
from wattherd.inventory import names
from wattherd.powering import budget, cards, limits, plan, proposal
from wattherd.serving.cards import is_tegra
from wattherd.verbs import running, sightings
from wattherd.wire import facts

if TYPE_CHECKING:
    from wattherd.inventory import settings

Circuits = Mapping[str, "settings.Circuit"]

ROLE = "power"
_MOST_NAMED = 6


def note(run: running.Run, host: inventory.Host, answered: facts.Facts) -> facts.Facts:
    """Work out the host's plan and what to say of it; the facts for its roles. Raises the Problem of what cannot be meant."""
    told = run.told[host.name] = sightings.completed(answered, run.sighted.get(host.name))
    if ROLE not in host.settings.roles:
        if host.settings.power.model_fields_set - {"base_load_w", "budget_w", "confirm_s"}:
            run.doubts.setdefault(f"the inventory has power: for it, but not the role {ROLE}: nothing of it is applied", []).append(
                host.name
            )
        return told
    made = plan.of(host.name, host.settings, told)
    run.power[host.name] = made
    for words in made.doubts:
        run.doubts.setdefault(words, []).append(host.name)
    if made.is_empty:
        run.notes.setdefault(f"has neither an NVIDIA card nor is it a Jetson: the role {ROLE} has nothing to do", []).append(host.name)
    for one in made.apart:
        run.notes.setdefault(f"power.{one.key} is skipped: {one.why}", []).append(host.name)
    kind = "power:jetson/" if made.jetson else "jetson:"
    run.apart[host.name] = frozenset(f"{kind}{one.setting}" for one in made.apart)
    return told


def check(run: running.Run, loaded: inventory.Inventory, hosts: Sequence[inventory.Host], circuits: Circuits) -> None:
    """Every host of a circuit that bears less than they may draw leaves the run, with limits that would fit."""
    _tell_names(run, hosts)
    by_name = {host.name: host for host in hosts}
    planned = {name for name in run.names if name in run.power and _is_meant(run, name)}
    for circuit, one in circuits.items():
        members = loaded.selection(one.hosts).hosts
        if planned & set(members):
            loads = [_load(run, loaded, by_name, name) for name in members]
            _check_sum(run, by_name, loads, one.usable_w, f"circuit {circuit} bears {one.usable_w:g} W{_source(one)}")


def remember(run: running.Run) -> None:
    """What this run saw of every host's cards, and the limits that their nodes proved. A check writes nothing."""
    if run.options.check:
        return
    found = {}
    for name, told in run.told.items():
        old = {card.uuid: card.applied_w for card in run.sighted[name].cards} if name in run.sighted else {}
        cards = tuple(_seen(run, name, card, old.get(card.uuid)) for card in told.gpus if card.vendor == "nvidia" and card.uuid)
        found[name] = sightings.Sighting(cards=cards, jetson=is_tegra(told))
    sightings.keep(run.reach.project.state, found)


def _seen(run: running.Run, name: str, card: facts.Gpu, before_w: float | None) -> sightings.Card:
    """A limit counts as applied when its resource was ok or changed."""
    made = run.power.get(name)
    applied_w = before_w
    if made is not None:
        one = next((one for one in made.cards if one.card.uuid == card.uuid), None)
        kind = run.counts[name].resources.get(f"power:{card.uuid}/limit_w") if name in run.counts else None
        if one is not None and (kind in {"ok", "changed"} or one.limit_w is None):
            applied_w = one.limit_w
    return sightings.Card(
        uuid=card.uuid,
        bus=card.bus,
        name=card.name,
        min_w=card.power_min_w,
        max_w=card.power_max_w,
        default_w=card.power_default_w,
        applied_w=applied_w,
    )


def _check_sum(run: running.Run, by_name: Mapping[str, inventory.Host], loads: Sequence[budget.Load], budget_w: float, fed: str) -> None:
    gaps = [f"{load.host}: {'; '.join(load.gaps)}" for load in loads if load.gaps]
    gaps += [f"{load.host}: {load.unknown}" for load in loads if load.unknown]
    if gaps:
        more = f" and {len(gaps) - _MOST_NAMED} more" if len(gaps) > _MOST_NAMED else ""
        run.seen.warn(f"{fed}; not counted in the sum: {', '.join(gaps[:_MOST_NAMED])}{more}")
    if budget.total_w(loads) > budget_w:
        for name in [load.host for load in loads if load.movable]:
            found = [card for card in run.told[name].gpus if card.vendor == "nvidia"]
            run.drop(name, proposal.over(name, by_name[name].settings.power, found, fed, loads, budget_w))


def _source(one: settings.Circuit) -> str:
    """What its watts come from, in brackets, where they are not the number that is written down."""
    fed = f"{one.budget_w:g} W" if one.budget_w is not None else f"{one.volts:g} V times {one.amps:g} A"
    if one.usable_percent != 100:
        return f" ({fed}, {one.usable_percent:g} % of it)"
    return f" ({fed})" if one.budget_w is None else ""


def _planned(host: inventory.Host, made: plan.Plan) -> budget.Load:
    return budget.load(host.name, made.cards, host.settings.power.base_load_w)


def _is_meant(run: running.Run, name: str) -> bool:
    """--tags may leave power out of a run: then nothing of it changes there."""
    only = run.only.get(name)
    return only is None or any(one.startswith(("power:", "power-policy:")) for one in only)


def _load(run: running.Run, loaded: inventory.Inventory, by_name: Mapping[str, inventory.Host], name: str) -> budget.Load:
    """A host of a circuit: as this run plans it, as this run sees it, or as it was last seen."""
    if name in run.names and name in run.power:
        return _planned(by_name[name], run.power[name])
    try:
        base_w = loaded.host(name).settings.power.base_load_w
    except errors.Problem as problem:
        return budget.Load(host=name, movable=False, unknown=f"its settings are wrong: {problem.message}")
    if name in run.told and ROLE not in loaded.host(name).settings.roles:
        found = [limits.CardPlan(card=card) for card in run.told[name].gpus if card.vendor == "nvidia"]
        return budget.load(name, found, base_w, movable=False)
    return _remembered(run.sighted.get(name), name, base_w)


def _remembered(seen: sightings.Sighting | None, name: str, base_w: float | None) -> budget.Load:
    if seen is None:
        return budget.Load(host=name, base_w=base_w, movable=False, unknown="this controller has never seen its cards")
    parts = []
    for card in seen.cards:
        watts = next((one for one in (card.applied_w, card.default_w, card.max_w) if one is not None), None)
        parts.append(budget.Part(uuid=card.uuid, shown=f"{card.name} {card.uuid[:12]}".strip(), watts=watts, min_w=card.min_w))
    return budget.Load(host=name, parts=tuple(parts), base_w=base_w, movable=False)


def _tell_names(run: running.Run, hosts: Sequence[inventory.Host]) -> None:
    """A product's name that no card was ever seen to have, and that is like one that was: a slip more often than not."""
    asked: dict[str, list[str]] = {}
    for host in hosts:
        for name in run.power[host.name].unmatched if host.name in run.power else ():
            asked.setdefault(name, []).append(host.name)
    if not asked:
        return
    seen = [card for one in run.power.values() for card in (row.card for row in one.cards)]
    seen += [
        facts.Gpu(bus="", vendor="nvidia", name=card.name) for one in sightings.read(run.reach.project.state).values() for card in one.cards
    ]
    products = sorted({cards.kind(card) for card in seen})
    for name, whose in asked.items():
        near = names.meant(name, products)
        if near and not any(cards.fits(name, card) for card in seen):
            run.doubts.setdefault(f"power.cards: no card is a '{name}'; {near}", []).extend(whose)
