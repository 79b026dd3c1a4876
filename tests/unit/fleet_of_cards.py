"""A small herd of cards as nodes would tell of it, for tests of power-status: good ones, and one of each trouble."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from wattherd import errors, fleet
from wattherd.policy import idle
from wattherd.power import reading, wanted
from wattherd.verbs import idle_waste, power_chosen, power_rows, power_status, power_told, rests
from wattherd.wire import facts

EURO = idle_waste.Price(per_kwh=Decimal("0.31"), currency="EUR")
UUIDS = tuple(f"GPU-{digit * 8}-{digit * 4}-{digit * 4}-{digit * 4}-{digit * 12}" for digit in "123456789")
SERVER = reading.Holder(4242, "llama-server", 614, "llama", "llama@smol.service", "smollm2")
CAROL = reading.Holder(5151, "python3", 9000, "carol", "session-3.scope")


def card(number: int = 0, **changes: object) -> reading.Card:
    """An idle RTX 3090 under a limit of 280 W."""
    given: dict[str, object] = {
        "uuid": UUIDS[number],
        "bus": f"0000:0{number + 1}:00.0",
        "index": number,
        "name": "NVIDIA GeForce RTX 3090",
        "limits": reading.Limits(100.0, 350.0, 350.0, 280.0, 280.0),
        "draw": reading.Draw(21.4, "average", "nvml", 1.0),
        "clocks": reading.Clocks(210, 405, 2100, 9751),
        "pstate": 8,
        "utilization_percent": 0,
        "temperature_c": 35,
        "temperature_target_c": 83,
        "fan_percent": 30,
        "memory_used_mib": 1,
        "memory_total_mib": 24576,
        "persistence": True,
        "energy_mj": 1_000_000,
    }
    return reading.Card(**{**given, **changes})  # type: ignore[arg-type]


def seen(*gpus: facts.Gpu, simulated: bool = False) -> facts.Facts:
    python = facts.Python("/usr/bin/python3", "3.11.2")
    return facts.Facts(facts.System("node"), facts.Cpu("x86_64"), python, gpus=gpus, simulated=simulated)


def policy(*cards: reading.Card, limit_w: float = 280.0) -> wanted.Policy:
    return wanted.Policy(cards={one.uuid: wanted.CardPolicy(limit_w=limit_w) for one in cards})


def samples(*watts: float | None, busy: int | None = 0) -> tuple[idle.Sample, ...]:
    return tuple(idle.Sample(one, busy) for one in watts)


def rows(
    host: str,
    *cards: reading.Card,
    told: Mapping[str, object] | None = None,
    rest: Mapping[str, idle.Rest] | None = None,
    empty_w: Mapping[str, float] | None = None,
    want: power_chosen.Chosen | None = None,
    known: facts.Facts | None = None,
) -> tuple[power_rows.Row, ...]:
    """As the node would tell it, under its own policy unless `want` says otherwise."""
    given: dict[str, object] = {"policy": policy(*cards), "keeper": "active", "now_s": 1_800_000_000.0, **(told or {})}
    look = given.pop("look", None) or reading.Look(cards, driver="580.95.05", source="nvml")
    answer = power_told.Told(look=look, **given)  # type: ignore[arg-type]
    resting = rests.Resting(rest=rest or {}, empty_w=empty_w or {})
    return power_rows.rows(host, known or seen(), answer, want or power_chosen.of_node(answer), resting)


def well(*made: power_rows.Row, price: idle_waste.Price | None = EURO, **more: object) -> fleet.Done[power_status.Seen]:
    return fleet.Done(value=power_status.Seen(rows=made, driver="580.95.05", source="nvml", price=price, **more))  # type: ignore[arg-type]


def gone() -> fleet.Done[power_status.Seen]:
    return fleet.Done(problem=errors.Problem("connect-timeout", "no answer from 192.0.2.9:22 within 10 s", hint="is it on?"))


def picture() -> power_status.Picture:
    """One of everything: good, held, skipped, drifting, lost, a board, a host without cards, and one that is not there."""
    held = card(1, holders=(SERVER,), draw=reading.Draw(61.5, "average", "nvml", 1.0), pstate=2, temperature_c=44)
    hot = card(
        0,
        limits=reading.Limits(100.0, 350.0, 350.0, 350.0, 350.0),
        draw=reading.Draw(341.2, "average", "nvml", 1.0),
        utilization_percent=99,
        throttle=("sw_power_cap", "hw_thermal_slowdown"),
        binding=("sw_power_cap", "hw_thermal_slowdown"),
        temperature_c=91,
        pstate=2,
        holders=(CAROL,),
    )
    conflict = power_told.Drifted(
        owner=hot.uuid,
        setting="limit_w",
        wanted="280 W",
        found="350 W",
        count=7,
        last_day=7,
        last_s=1_800_000_000.0 - 720,
        is_open=True,
        in_conflict=True,
        writers=("lactd.service",),
    )
    laptop = card(0, name="NVIDIA GeForce RTX 4080 Laptop GPU", limits=reading.Limits(), draw=None, unknown={"limits": "Not Supported"})
    lost = reading.Card(UUIDS[1], "0000:02:00.0", 1, "NVIDIA GeForce RTX 3090", fault="GPU is lost")
    orin = reading.Board(
        "NVIDIA Jetson Orin NX",
        "15W",
        2,
        {"15W": 2, "25W": 3},
        draw=reading.Draw(5.1, "total", "ina3221", None, "module, not board input"),
        temperature_c=48.5,
    )
    at_rest = {held.uuid: idle.Rest(61.5, busy=False)}
    titan = rows("titan", card(0), held, rest=at_rest, empty_w={held.uuid: 21.3}, told={"highest": {UUIDS[0]: 41.0, UUIDS[1]: 66.0}})
    atlas = rows("atlas", hot, lost, rest={hot.uuid: idle.Rest(busy=True, why="at work")}, told={"drifts": (conflict,)})
    board = rows("orin", told={"look": reading.Look(board=orin), "policy": wanted.Policy(board=wanted.BoardPolicy(mode="15W"))})
    hosts = {"atlas": well(*atlas), "titan": well(*titan), "laptop": well(*rows("laptop", laptop)), "orin": well(*board), "web1": well()}
    return power_status.Picture(hosts={**hosts, "ghost": gone()})


def many(count: int = 30) -> power_status.Picture:
    """So many hosts with two good cards each, and one card that drifts."""
    hosts = {f"rig{number:02d}": well(*rows(f"rig{number:02d}", card(0), card(1))) for number in range(1, count + 1)}
    bad = rows("odd", card(0, limits=reading.Limits(100.0, 350.0, 350.0, 350.0, 350.0)), card(1))
    return power_status.Picture(hosts={**hosts, "odd": well(*bad)})
