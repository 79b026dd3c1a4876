"""How much a served instance has been used since it began, from its own counters, which wake no model."""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping

from wattherd import machine as machines
from wattherd.node import tuning_choice
from wattherd.power import served


def observed(machine: machines.Machine, chosen: tuning_choice.Chosen) -> Mapping[str, Any]:
    """What the running server has done since it began: `since_s`, `busy_s`, `prefill_tokens`, `decode_tokens`. Empty where nobody knows.

    Read before the sweep, whose own tokens would count.
    """
    if chosen.server is None or not chosen.unit:
        return {}
    path = f"/metrics?model={chosen.server.model}&autoload=false" if chosen.server.model else "/metrics"
    status, text = served.Door(machine, chosen.server.url, chosen.server.key).get(path)
    if status != 200:
        return {}
    figures = {name: served.number(value) for name, value in re.findall(r"(?m)^llamacpp:(\w+) ([0-9.e+]+)$", text)}
    asked = machine.run(["systemctl", "show", "-p", "ExecMainStartTimestampMonotonic", "--value", "--", chosen.unit], timeout_s=20)
    begun = asked.text.strip()
    if not begun.isdigit() or "prompt_seconds_total" not in figures:
        return {}
    row: Dict[str, Any] = {
        "since_s": round(machine.monotonic_s() - int(begun) / 1e6),
        "busy_s": round(figures["prompt_seconds_total"] + figures.get("tokens_predicted_seconds_total", 0.0), 1),
        "prefill_tokens": round(figures.get("prompt_tokens_total", 0.0)),
        "decode_tokens": round(figures.get("tokens_predicted_total", 0.0)),
    }
    return row if row["since_s"] > 0 else {}
