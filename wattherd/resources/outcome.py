"""What a builder leaves beside its work: what it was asked, how far it is, and how it ended.

Written by node/builder.py in its own unit, read by resources/build.py in whatever session looks next.
"""

from __future__ import annotations

import contextlib
import json
from typing import Optional, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.records import dataclass
from wattherd.wire import fields


@dataclass(frozen=True)
class Progress:
    """How far the builder is: `done` of `total` in `unit`; a total of 0 is unknown."""

    phase: str
    words: str
    done: int = 0
    total: int = 0
    unit: str = ""


def spec_path(folder: str) -> str:
    return folder + "/spec.json"


def progress_path(folder: str) -> str:
    return folder + "/progress.json"


def result_path(folder: str) -> str:
    return folder + "/result.json"


def read_progress(machine: machines.Machine, folder: str) -> Optional[Progress]:
    with contextlib.suppress(ValueError, errors.Problem):
        return fields.build(Progress, fields.document(json.loads(machine.read(progress_path(folder)) or b""), "progress"))
    return None


def read_result(machine: machines.Machine, folder: str) -> Tuple[Optional[errors.Problem], bool]:
    """(the problem that the builder told, if any; whether it told a result at all)."""
    with contextlib.suppress(ValueError, errors.Problem):
        told = fields.document(json.loads(machine.read(result_path(folder)) or b""), "result")
        if "problem" in told:
            return errors.Problem.from_dict(fields.document(told["problem"], "problem")), True
        return None, True
    return None, False
