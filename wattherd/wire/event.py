"""What a node tells while it works: one JSON object a line, told apart by `event`.

`hello` opens, `end` closes every verb; a stream without `end` is a failure. The controller never trusts the words in them.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from wattherd import errors

PROTOCOL = 1

#: Events that close one resource; each counts in the recap under its own name (would_change counts as changed).
RESOURCE_EVENTS = ("ok", "changed", "would_change", "failed", "skipped")


def hello(facts: Mapping[str, Any]) -> Dict[str, Any]:
    return {"event": "hello", "protocol": PROTOCOL, "facts": dict(facts)}


def start(resource_id: str) -> Dict[str, Any]:
    return {"event": "start", "id": resource_id}


def ok(resource_id: str) -> Dict[str, Any]:
    return {"event": "ok", "id": resource_id}


def changed(resource_id: str, action: str, delta: Mapping[str, Any], *, check: bool, diff: str = "") -> Dict[str, Any]:
    """`action` is create, fix or remove; `delta` maps a state key to [was, wanted]."""
    message: Dict[str, Any] = {"event": "would_change" if check else "changed", "id": resource_id, "action": action, "delta": dict(delta)}
    if diff:
        message["diff"] = diff
    return message


def failed(resource_id: str, problem: errors.Problem) -> Dict[str, Any]:
    return {"event": "failed", "id": resource_id, "problem": problem.to_dict()}


def skipped(resource_id: str, reason: str) -> Dict[str, Any]:
    return {"event": "skipped", "id": resource_id, "reason": reason}


def progress(resource_id: str, words: str, done: float, total: float, unit: str = "") -> Dict[str, Any]:
    """Long work: `done` of `total` in `unit` ("bytes", "objects", "s"); total 0 means unknown."""
    return {"event": "progress", "id": resource_id, "words": words, "done": done, "total": total, "unit": unit}


def step(sweep_id: str, measured: Mapping[str, Any], done: int, total: int, left_s: float) -> Dict[str, Any]:
    """One step of a sweep of power limits, as it is measured: `done` of `total`, and about how many seconds the rest takes."""
    return {"event": "step", "id": sweep_id, "step": dict(measured), "done": done, "total": total, "left_s": left_s}


def note(words: str) -> Dict[str, Any]:
    """Something found that the operator should read, such as a run that was interrupted before."""
    return {"event": "note", "words": words}


def alive() -> Dict[str, Any]:
    """Heartbeat: sent when nothing else was for a while, so that silence means a dead link."""
    return {"event": "alive"}


def end(*, problem: Optional[errors.Problem] = None, **result: Any) -> Dict[str, Any]:
    message: Dict[str, Any] = {"event": "end", **result}
    if problem is not None:
        message["problem"] = problem.to_dict()
    return message
