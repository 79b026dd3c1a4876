"""Every card and board that the lab knows, as facts of a box that has it, and what one group-wide power policy comes to on each.

One file a box in tests/golden/power-hardware/: the facts, what is said, the resources. `invoke golden` rewrites them as all goldens.
Whether a card can have a setting at all is its node's finding: what such a card does with it is tested on the node's side.
"""

from __future__ import annotations

import json
import pathlib
import uuid
from collections.abc import Mapping
from typing import Any

import yaml

from tests import goldens
from tests.lab.simulated import figures
from wattherd import errors, plan, role
from wattherd.inventory import settings
from wattherd.powering import plan as powering
from wattherd.wire import facts, fields

FOLDER = goldens.FOLDER / "power-hardware"
_BOARDS = goldens.ROOT / "tests" / "cases" / "boards.yaml"
#: A name of no box: what is committed says nothing of a real card.
_SPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")


def boxes() -> Mapping[str, facts.Facts]:
    """By the id of the card or board."""
    rows = yaml.safe_load(_BOARDS.read_text())["boards"]
    return {
        **{name: _with_card(one) for name, one in figures.cards().items()},
        **{row["id"]: _board(row) for row in rows},
    }


def _with_card(one: figures.Card) -> facts.Facts:
    gpu = facts.Gpu(
        bus="0000:01:00.0",
        vendor="nvidia",
        name=one.name,
        uuid=f"GPU-{uuid.uuid5(_SPACE, one.id)}",
        compute_capability=one.compute_cap,
        memory_mib=one.memory_mib or 0,
        power_min_w=one.min_w,
        power_max_w=one.max_w,
        power_default_w=one.default_w,
    )
    machine = "aarch64" if one.id == "gb10" else "x86_64"
    return _box(one.id, machine, gpus=(gpu,), driver=one.driver)


def _board(row: Mapping[str, Any]) -> facts.Facts:
    modes = tuple(str(mode["name"]) for mode in row["modes"])
    return _box(row["id"], "aarch64", jetson=row["release"] or "", soc=row["soc"], power_modes=modes)


def _box(name: str, machine: str, **more: Any) -> facts.Facts:
    system = facts.System(hostname=name.replace("_", "-"), os_id="debian", os_version="12", init="systemd")
    return facts.Facts(system=system, cpu=facts.Cpu(machine), python=facts.Python("/usr/bin/python3", "3.11.2"), **more)


def render(name: str) -> str:
    """The text that the box's file should hold."""
    told = boxes()[name]
    given = settings.Settings.model_validate(yaml.safe_load((FOLDER / "policy.yaml").read_text()))
    host = role.Host(name=told.system.hostname, groups=(), settings=given, folders=(goldens.ROOT / "templates",), program=goldens.PROGRAM)
    shown = {key: value for key, value in fields.plain(told).items() if key in {"gpus", "driver", "jetson", "soc", "power_modes"}}
    document: dict[str, Any] = {"facts": shown}
    try:
        made = powering.of(host.name, given, told)
        document["said"] = [*made.doubts, *(f"power.{one.key} is skipped: {one.why}" for one in made.apart)]
        manifest = plan.manifest_for(host, told, plan.load_roles(goldens.ROOT / "roles"))
        document["policy"] = fields.plain(made.policy)
        # The first four are the same on every box; the goldens power-… have them whole.
        document["resources"] = [dict(one.spec) for one in manifest.resources if one.type in {"power", "jetson"}]
    except errors.Problem as problem:
        document["problem"] = problem.to_dict()
    return _text(document)


def _text(document: Mapping[str, Any]) -> str:
    """JSON with one line for each card, word and resource: a difference reads as one."""
    parts = []
    for key, value in document.items():
        if isinstance(value, list):
            rows = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in value)
            parts.append(f' "{key}": [\n{rows}\n ]')
        else:
            rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(held, ensure_ascii=False)}" for name, held in value.items())
            parts.append(f' "{key}": {{\n{rows}\n }}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def files() -> Mapping[str, pathlib.Path]:
    return {name: FOLDER / f"{name}.json" for name in boxes()}


def write() -> None:
    for name, path in files().items():
        path.write_text(render(name))
