"""`invoke power-tune`: one card per host goes through its power limits under the real model, and the knee of what was measured is told.

Owns which hosts, what their inventory gives to a sweep, and what of the result is written back into it. The nodes set and measure; where
the knee lies is for `policy.knee`.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from decimal import Decimal

from wattherd import errors, fleet, inventory
from wattherd.inventory import settings
from wattherd.policy import knee
from wattherd.role import CURRENT
from wattherd.serving import instance
from wattherd.verbs import access, ask, project, saving, tuned_file, watch
from wattherd.wire import fields

BENCH = f"{CURRENT}/bin/llama-bench"
SKIPPED = "skipped"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """`card` is a UUID or its beginning; `server` a served instance; `most_w` where the sweep begins. None leaves it to the node."""

    card: str = ""
    server: str | None = None
    floor_percent: float = 95.0
    weight: str = "both"
    steps: int = 8
    seconds_per_step: int = 10
    most_w: int | None = None
    hours_per_day: Decimal | None = None
    write: bool = False
    check: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What a sweep goes through: (UUID, name) of the cards that work together, `kind` limit_w or clocks_mhz, the values, and the load."""

    cards: tuple[tuple[str, str], ...]
    kind: str
    values: tuple[float, ...]
    load: str
    model: str
    build: str
    driver: str
    seconds: int
    before_w: float | None = None
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuned:
    """One host. `stopped` says why a sweep ended early, `not_restored` what could not be set back; `at` is when it ended (UTC)."""

    plan: Plan
    simulated: bool
    steps: tuple[knee.Step, ...] = ()
    advice: knee.Advice | None = None
    saved: saving.Saving | None = None
    use: saving.Use | None = None
    notes: tuple[str, ...] = ()
    stopped: str = ""
    not_restored: tuple[str, ...] = ()
    at: str = ""
    change: tuned_file.Change | None = None

    @property
    def status(self) -> str:
        return "failed" if self.stopped or self.not_restored else "ok"

    @property
    def best(self) -> knee.Step | None:
        """The step to set: the knee, or, where nothing below saves, the highest."""
        if self.advice is None:
            return None
        return self.advice.step or (self.advice.reference if self.advice.nothing_saves else None)


def power_tune(reach: access.Access, selection: project.Selection, options: Options, seen: watch.Watch) -> Mapping[str, fleet.Done[Tuned]]:
    loaded = reach.project.load(selection)
    for words in loaded.warnings:
        seen.warn(words)
    hosts = {host.name: host for host in project.hosts_of(loaded, selection, writes=True)}
    seen.phase("look" if options.check else "tune", list(hosts))

    def tell(name: str, _: fleet.Done[Tuned]) -> None:
        seen.done(name, fleet.Count().outcome())

    done = fleet.each(list(hosts), lambda name: _one(reach, hosts[name], options, seen), forks=reach.forks, on_done=tell)
    if options.write and not options.check:
        # One after the other, and after all sweeps: two hosts may share a file by a link.
        done = {name: _written(one, loaded, reach.project, name, options) for name, one in done.items()}
    return done


def _one(reach: access.Access, host: inventory.Host, options: Options, seen: watch.Watch) -> Tuned:
    order = {
        "verb": "power-tune",
        "check": options.check,
        "card": options.card,
        "steps": options.steps,
        "seconds_per_step": options.seconds_per_step,
        "most_w": options.most_w or 0,
        "program": BENCH,
        "account": instance.ACCOUNT,
        "servers": _servers(host, options.server),
    }
    opened = reach.open(host)
    try:
        simulated = opened.facts.simulated
        answer = opened.call(order, None, lambda message: seen.event(host.name, message))
    finally:
        opened.close()
    return _read(answer, host, options, simulated=simulated)


def _servers(host: inventory.Host, named: str | None) -> list[dict[str, object]]:
    """All instances of the host, so that none of them is taken for a stranger; the one to work with first."""
    served = list(host.settings.serve)
    preset = ""
    if named is not None:
        first, preset = ask.server_of(host, named)
        served = [first, *(one for one in served if one is not first)]
    else:
        served.sort(key=lambda one: one.router is None and one.kind != "chat")
    proxied = instance.is_proxied(host.settings)
    rows = [_server(one, host.settings, proxied=proxied) for one in served]
    if rows and preset:
        rows[0]["preset"] = preset
    return rows


def _server(one: settings.Serve, wanted: settings.Settings, *, proxied: bool) -> dict[str, object]:
    return {
        "name": one.name,
        "unit": instance.unit(one.name),
        "url": instance.place(one, proxied=proxied).url(),
        "flags_file": instance.flags_file(one.name),
        "key_file": instance.key_file(one),
        "proxy_url": f"http://127.0.0.1:{wanted.proxy.metrics_port}" if proxied else "",
        "chat": one.router is not None or one.kind == "chat",
    }


# -- the answer


def _read(answer: fields.Document, host: inventory.Host, options: Options, *, simulated: bool) -> Tuned:
    plan = _plan(fields.document(answer.get("plan"), "plan"))
    if options.check:
        return Tuned(plan=plan, simulated=simulated)
    steps = tuple(fields.build(knee.Step, row) for row in fields.objects(answer, "steps"))
    use = _use(fields.document(answer.get("observed", {}), "observed"))
    seen = use if use is not None and use.is_enough else None
    wish = knee.Wish(
        options.floor_percent,
        options.weight,
        float(seen.prefill_tokens) if seen is not None else 0.0,
        float(seen.decode_tokens) if seen is not None else 0.0,
    )
    stopped = fields.text(answer, "stopped", "")
    advice = knee.recommend(steps, wish)
    return Tuned(
        plan=plan,
        simulated=simulated,
        steps=steps,
        advice=advice,
        saved=_saved(advice, use, host, options),
        use=use,
        notes=(*plan.notes, *fields.texts(answer, "notes"), *advice.notes),
        stopped=stopped,
        not_restored=fields.texts(answer, "not_restored"),
        at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    )


def _plan(row: fields.Document) -> Plan:
    values = row.get("values", [])
    before_w = row.get("before_w")
    return Plan(
        cards=tuple((fields.text(one, "uuid"), fields.text(one, "name", "")) for one in fields.objects(row, "cards")),
        kind=fields.text(row, "kind"),
        values=tuple(float(one) for one in values if isinstance(one, int | float)) if isinstance(values, list) else (),
        load=fields.text(row, "load"),
        model=fields.text(row, "model"),
        build=fields.text(row, "build", ""),
        driver=fields.text(row, "driver", ""),
        seconds=fields.integer(row, "seconds"),
        before_w=float(before_w) if isinstance(before_w, int | float) else None,
        notes=fields.texts(row, "notes"),
    )


def _use(row: fields.Document) -> saving.Use | None:
    if "since_s" not in row:
        return None
    return saving.Use(
        since_s=fields.integer(row, "since_s"),
        busy_s=fields.number(row, "busy_s"),
        prefill_tokens=fields.integer(row, "prefill_tokens", 0),
        decode_tokens=fields.integer(row, "decode_tokens", 0),
    )


def _saved(advice: knee.Advice, use: saving.Use | None, host: inventory.Host, options: Options) -> saving.Saving | None:
    if advice.step is None:
        return None
    made = saving.saving(advice.reference_watts, advice.saving, use, options.hours_per_day)
    price = host.settings.price_per_kwh
    if price is None:
        return made
    return dataclasses.replace(made, cost=made.kwh * price, currency=host.settings.currency)


# -- the inventory


def _written(done: fleet.Done[Tuned], loaded: inventory.Inventory, here: project.Project, host: str, options: Options) -> fleet.Done[Tuned]:
    """A sweep that was cut short, or whose best is not known, writes nothing."""
    tuned = done.value
    if tuned is None or tuned.best is None or tuned.status != "ok":
        return done
    try:
        rows = {uuid: row_of(tuned, tuned.best, options.floor_percent) for uuid, _ in tuned.plan.cards}
        change = tuned_file.change(loaded.folder, here.root, host, rows, simulated=tuned.simulated)
        tuned_file.write(change)
    except errors.Problem as problem:
        return fleet.Done(problem=problem)
    except OSError as error:
        words = f"the inventory could not be written: {error}"
        return fleet.Done(problem=errors.Problem("permission", words, hint="nothing was changed there"))
    return fleet.Done(value=dataclasses.replace(tuned, change=change))


def row_of(tuned: Tuned, best: knee.Step, floor_percent: float) -> Mapping[str, object]:
    """As the inventory's `power_tuned` has it. Tokens per second and per joule are decode's, or prefill's where only that is known."""
    figure = best.decode or best.prefill
    setting: dict[str, object] = {"limit_w": _plain(best.value)} if best.kind == "limit_w" else {"clocks_mhz": f"0,{best.value:.0f}"}
    measured = {"tok_s": round(figure.tok_s, 2), "tok_j": round(figure.tok_j, 4)} if figure is not None and figure.tok_s > 0 else {}
    return {**setting, **measured, "floor_percent": _plain(floor_percent), "measured_at": tuned.at, "model": tuned.plan.model}


def _plain(value: float) -> float:
    return int(value) if value == int(value) else value


def status_of(done: fleet.Done[Tuned]) -> str:
    """A card that has nothing to tune, a Jetson among them, is skipped: no failure of a run over many hosts."""
    if done.value is not None:
        return done.value.status
    return SKIPPED if done.problem is not None and done.problem.code == "tune-unfit" else fleet.status_of(done.problem)
