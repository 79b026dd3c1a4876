"""Which card of this node a sweep may have, what is turned on it, and what works on it meanwhile. Looks, and changes nothing.

A card that is free gets llama-bench; one that only our own server holds, while no client uses it, gets its load from that server; any
other is busy, and the message says with whom.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import List, Optional, Sequence, Tuple

from wattherd import errors, records
from wattherd import machine as machines
from wattherd.node import tuning_flags, tuning_job, tuning_range
from wattherd.power import load, reading, served
from wattherd.records import dataclass
from wattherd.resources import secret
from wattherd.wire import fields

#: More than this, with nobody seen to hold it, is somebody in a container or another machine's guest.
_BUSY_PERCENT = 10
#: What draws the screen of a workstation holds its card without working on it.
_SCREENS = frozenset({"Xorg", "Xwayland", "gnome-shell", "kwin_wayland", "kwin_x11", "sddm-greeter", "plasmashell", "mutter"})
_DEPLOY = "invoke deploy brings the release and the model; or name another instance with --server"


@dataclass(frozen=True)
class Chosen:
    """The cards that one load works on together (one, but for a server that spans several of a kind), and the range to go through."""

    cards: Tuple[reading.Card, ...]
    span: tuning_range.Range
    words: str
    model: str
    build: str
    driver: str
    epoch: str
    bench: load.Order
    unit: str = ""
    server: Optional[served.Server] = None
    others: Tuple[served.Server, ...] = ()


def choose(machine: machines.Machine, seen: reading.Look, job: tuning_job.Job) -> Chosen:
    """Raises `card-unknown`, `card-busy`, `card-lost`, `tune-load` (nothing to load it with) or `tune-unfit` (nothing to turn)."""
    if seen.fault:
        code = "driver-silent" if seen.fault_kind == "silent" else "power-failed"
        raise errors.Problem(code, f"no card can be read: {seen.fault}", hint=seen.fault_hint)
    if not seen.cards:
        if seen.board is not None:
            raise errors.Problem(
                "tune-unfit",
                "a Jetson has no power limit to sweep: its modes are whole sets of clocks",
                hint=f"set one by its name (power: mode:); this board has {', '.join(seen.board.modes) or 'none that could be read'}",
            )
        raise errors.Problem("card-unknown", "this host has no NVIDIA card", hint="choose hosts that have one: invoke power-status")
    if not job.servers:
        raise errors.Problem("tune-load", "this host serves no model, so there is nothing to load a card with", hint=_DEPLOY)
    card = _card(seen, job)
    unit_holds = _ours(card, job)
    return _by_server(machine, seen, job, card, unit_holds) if unit_holds else _by_bench(machine, seen, job, card)


# -- which card


def _card(seen: reading.Look, job: tuning_job.Job) -> reading.Card:
    if job.card:
        found = [one for one in seen.cards if one.uuid == job.card or one.uuid.startswith(job.card)]
        if len(found) != 1:
            words = "there is no such card here" if not found else f"{len(found)} cards begin so"
            raise errors.Problem("card-unknown", f"--card {job.card}: {words}", hint=f"this host has {_listed(seen.cards)}")
        why = _why_not(found[0], job, named=True)
        if why is not None:
            raise why
        return found[0]
    problems = [(one, _why_not(one, job, named=False)) for one in seen.cards]
    free = [one for one, why in problems if why is None]
    if not free:
        if len(problems) == 1 and problems[0][1] is not None:
            raise problems[0][1]
        words = "; ".join(f"{one.shown}: {why.message}" for one, why in problems if why is not None)
        raise errors.Problem("card-busy", f"no card of this host is free for a sweep: {words}", hint=_LATER)
    # A card that nobody holds first: llama-bench there disturbs no server.
    return min(free, key=lambda one: (bool(_ours(one, job)), one.index))


_LATER = "try again when it is idle, or choose another one: --card UUID"


def _why_not(card: reading.Card, job: tuning_job.Job, *, named: bool) -> Optional[errors.Problem]:
    """`named`: the user chose it, so a screen that hangs on it is his to know of."""
    if card.fault:
        return errors.Problem("card-lost", f"it cannot be read: {card.fault}", hint="invoke doctor tells more")
    if card.mig:
        return errors.Problem("tune-unfit", "it is split into MIG instances, which share one power limit", hint="choose another card")
    units = {one.unit for one in job.servers}
    strangers = [one for one in card.holders if one.unit not in units and not (named and one.name in _SCREENS)]
    if strangers:
        return errors.Problem("card-busy", f"held by {', '.join(_who(one) for one in strangers[:4])}", hint=_LATER)
    if not card.holders and (card.utilization_percent or 0) > _BUSY_PERCENT:
        words = f"somebody works on it who is not seen here (load {card.utilization_percent} %), perhaps in a container"
        return errors.Problem("card-busy", words, hint=_LATER)
    return None


def _who(one: reading.Holder) -> str:
    name = one.name or "a process"
    user = f" of {one.user}" if one.user else ""
    return f"{name}{user} (process {one.pid}{f', {one.unit}' if one.unit else ''})"


def _listed(cards: Sequence[reading.Card]) -> str:
    return ", ".join(f"{one.uuid} ({one.name or 'a card'})" for one in cards if one.uuid) or "no card that can be read"


def _ours(card: reading.Card, job: tuning_job.Job) -> Tuple[tuning_job.Wanted, ...]:
    held = {one.unit for one in card.holders}
    return tuple(one for one in job.servers if one.unit in held)


# -- what works on it


def _by_bench(machine: machines.Machine, seen: reading.Look, job: tuning_job.Job, card: reading.Card) -> Chosen:
    server = job.servers[0]
    started = tuning_flags.read(machine, server.flags_file, server.preset)
    if started is None:
        raise errors.Problem("tune-load", f"{server.name} is not deployed on this host, so there is no model to work with", hint=_DEPLOY)
    for what, path in (("release of llama.cpp", job.program), ("model", started.model)):
        # A release, and a model, are links into the store: what counts is where they lead to.
        if not machine.exists(_led(machine, path)):
            raise errors.Problem("tune-load", f"this host has no {what} yet ({path} is not there)", hint=_DEPLOY)
    pinned = {"CUDA_VISIBLE_DEVICES": card.uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    order = load.Order(job.program, started.model, started.options, pinned, job.account)
    return _chosen(machine, seen, job, (card,), order, "llama-bench", started.model)


def _by_server(
    machine: machines.Machine, seen: reading.Look, job: tuning_job.Job, card: reading.Card, holding: Sequence[tuning_job.Wanted]
) -> Chosen:
    able = [one for one in holding if one.chat]
    if not able:
        raise errors.Problem(
            "card-busy",
            f"held by {holding[0].name}, which answers no prompts (an embedding or reranking server)",
            hint=f"systemctl stop {holding[0].unit} on the host for the while: then llama-bench is used",
        )
    first = able[0]
    cards = _spanned(seen, job, card, first.unit)
    server = _server(machine, first)
    others = tuple(_server(machine, one) for one in holding if one.unit != first.unit)
    started = tuning_flags.read(machine, first.flags_file, first.preset)
    if started is not None and started.preset:
        server = _loaded(machine, server)
    if not served.Serving(machine, server, others).is_idle():
        raise errors.Problem("card-busy", f"clients are using {first.name} now", hint="try again in a quieter hour")
    model = server.model or (started.model if started is not None else first.name)
    order = load.Order(job.program, model)
    words = f"the running server {first.name}"
    return records.replace(_chosen(machine, seen, job, cards, order, words, model), unit=first.unit, server=server, others=others)


def _spanned(seen: reading.Look, job: tuning_job.Job, card: reading.Card, unit: str) -> Tuple[reading.Card, ...]:
    """Every card that this server works on: a limit on one of them alone would measure the others' waiting."""
    cards = tuple(one for one in seen.cards if any(holder.unit == unit for holder in one.holders))
    for one in cards:
        why = _why_not(one, job, named=True)
        if why is not None:
            raise errors.Problem(why.code, f"{unit} works on {one.shown} too: {why.message}", hint=why.hint)
    if any((one.name, one.limits.min_w, one.limits.max_w) != (card.name, card.limits.min_w, card.limits.max_w) for one in cards):
        raise errors.Problem(
            "tune-unfit",
            f"{unit} works on cards of several kinds at once: {', '.join(one.shown for one in cards)}",
            hint=f"systemctl stop {unit} on the host for the while, then choose one: --card UUID (llama-bench is used)",
        )
    return cards


def _server(machine: machines.Machine, wanted: tuning_job.Wanted) -> served.Server:
    key = secret.api_key(machine.text(wanted.key_file)) if wanted.key_file else ""
    return served.Server(wanted.name, wanted.url, wanted.preset, key, wanted.proxy_url)


def _loaded(machine: machines.Machine, server: served.Server) -> served.Server:
    """Of a router that model which is loaded: a sweep loads none."""
    status, text = served.Door(machine, server.url, server.key).get("/models")
    names: List[str] = []
    with contextlib.suppress(ValueError, errors.Problem):
        for row in fields.objects(fields.document(fields.parsed(text), "models"), "data") if status == 200 else ():
            state = row.get("status")
            if isinstance(state, dict) and state.get("value") == "loaded":
                names.append(fields.text(row, "id", ""))
    names = [one for one in names if tuning_job.WORD.match(one)]
    if not names:
        raise errors.Problem("tune-load", f"{server.name} has no model loaded", hint="invoke ask loads one; then run this again")
    name = server.model if server.model in names else names[0]
    return served.Server(server.name, server.url, name, server.key, server.proxy_url)


# -- what is turned


def _chosen(
    machine: machines.Machine,
    seen: reading.Look,
    job: tuning_job.Job,
    cards: Tuple[reading.Card, ...],
    order: load.Order,
    words: str,
    model: str,
) -> Chosen:
    span = tuning_range.of(machine, seen, job, cards)
    build = os.path.basename(machine.readlink(os.path.dirname(os.path.dirname(job.program))) or "")
    name = re.sub(r"\.gguf\Z", "", os.path.basename(model))
    return Chosen(cards, span, words, name, build, seen.driver, seen.epoch, order)


def _led(machine: machines.Machine, path: str) -> str:
    """Where a path leads to, through links of the node's own root, absolute ones included."""
    for _ in range(8):
        parts = path.split("/")
        for at in range(2, len(parts) + 1):
            front = "/".join(parts[:at])
            target = machine.readlink(front)
            if target is not None:
                path = os.path.normpath(os.path.join(os.path.dirname(front), target, *parts[at:]))
                break
        else:
            return path
    return path
