"""How much of their context the servers of this node have needed, and what is at work: from their counters, which wake no model.

The largest context since the process began is llama-server's own high-water mark; what no server says stays out of the answer. A server
that may sleep is asked only where its build is known to sleep on (wattherd.policy.idle).
"""

from __future__ import annotations

import contextlib
import re
from typing import Any, Dict, List, Mapping, Optional

from wattherd import errors
from wattherd import machine as machines
from wattherd.policy import idle
from wattherd.resources import place, readiness, secret
from wattherd.wire import fields

_FIGURE = re.compile(r"^llamacpp:(\w+) ([0-9.]+(?:e[+-]?[0-9]+)?)$", re.MULTILINE)
_NAMES = {"n_tokens_max": "most_tokens", "requests_processing": "processing", "requests_deferred": "deferred"}
_BUILD = re.compile(r"b(\d{1,9})-")
_WORD = re.compile(r"[\w.:/-]{1,128}\Z", re.ASCII)


def measure(machine: machines.Machine, order: fields.Document) -> Mapping[str, Any]:
    """`servers`: objects with name, url, key_file, router, and whether it may sleep. Gives a row for each model that is asked, in order."""
    rows: List[Dict[str, Any]] = []
    for server in fields.objects(order, "servers"):
        url, headers = fields.text(server, "url"), authorization(machine, fields.text(server, "key_file", ""))
        name, router = fields.text(server, "name"), fields.flag(server, "router", default=False)
        pages = (
            {model: f"/metrics?model={model}&autoload=false" for model in _loaded(machine, url, headers)} if router else {"": "/metrics"}
        )
        may_sleep = fields.flag(server, "sleeps", default=True)
        build = _build(machine, url, headers) if may_sleep else 0
        for model, page in pages.items():
            if not (may_sleep and idle.wakes(page, build=build, router=router)):
                rows.append(_row(machine, f"{url}{page}", headers, name, model))
    return {"uses": rows}


def authorization(machine: machines.Machine, path: str) -> str:
    """The header line for a server whose API key lies in the file `path`; empty where none is asked for."""
    if not path:
        return ""
    key = secret.api_key(machine.text(place.plain_path("usage", path)))
    return f"Authorization: Bearer {key}\r\n" if key else ""


def _row(machine: machines.Machine, url: str, headers: str, name: str, model: str) -> Dict[str, Any]:
    status, text = readiness.fetch(url, root=machine.root, headers=headers)
    row: Dict[str, Any] = {"name": name, "model": model, "status": status}
    if status == readiness.READY:
        figures = {_NAMES[key]: _count(value) for key, value in _FIGURE.findall(text) if key in _NAMES}
        row.update({name: count for name, count in figures.items() if count is not None})
    return row


def _count(text: str) -> Optional[int]:
    """None for what is no count of anything: `1..2`, `1e999`."""
    with contextlib.suppress(ValueError, OverflowError):
        return int(float(text))
    return None


def _build(machine: machines.Machine, url: str, headers: str) -> int:
    """The number of the running build, from the page that wakes nothing in any; 0 is unknown."""
    status, text = readiness.fetch(f"{url}/props", root=machine.root, headers=headers)
    with contextlib.suppress(ValueError, errors.Problem):
        told = fields.text(fields.document(fields.parsed(text), "props"), "build_info", "") if status == readiness.READY else ""
        found = _BUILD.match(told)
        return int(found.group(1)) if found else 0
    return 0


def _loaded(machine: machines.Machine, url: str, headers: str) -> List[str]:
    """Of a router's models only those that are loaded: asking for another one's counters could load it."""
    status, text = readiness.fetch(f"{url}/models", root=machine.root, headers=headers)
    try:
        rows = fields.objects(fields.document(fields.parsed(text), "models"), "data") if status == readiness.READY else ()
    except (ValueError, errors.Problem):
        return []
    found: List[Optional[str]] = [fields.text(row, "id", "") for row in rows if _state(row) == "loaded"]
    return [one for one in found if one and _WORD.match(one)]


def _state(row: fields.Document) -> str:
    state = row.get("status")
    return fields.text(fields.document(state, "status"), "value", "") if isinstance(state, dict) else ""
