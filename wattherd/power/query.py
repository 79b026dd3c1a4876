"""`nvidia-smi --query-gpu`: one row a card, in columns that we name. A column that a driver does not know is left out, and remembered.

Names of columns change with the driver, and what comes back may differ from what was asked (clocks_throttle_reasons became
clocks_event_reasons): cells are found by their name, never by their place alone.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Dict, List, Mapping, Sequence, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.power import described, throttle, tool
from wattherd.wire import fields

#: Which columns a driver does not know; in Wattherd's own cache, since each question in vain costs a start of nvidia-smi.
MEMORY = "/var/cache/wattherd/columns.json"
#: Column -> the name of its cell.
CELLS: Mapping[str, str] = {
    "index": "index",
    "uuid": "uuid",
    "pci.bus_id": "bus",
    "name": "name",
    "driver_version": described.DRIVER,
    "compute_cap": described.CAPABILITY,
    "power.draw.average": described.AVERAGE,
    "power.draw.instant": described.INSTANT,
    "power.draw": described.PLAIN,
    "power.limit": "limits.requested_w",
    "enforced.power.limit": "limits.enforced_w",
    "power.default_limit": "limits.default_w",
    "power.min_limit": "limits.min_w",
    "power.max_limit": "limits.max_w",
    "clocks.current.sm": "clocks.sm_mhz",
    "clocks.current.memory": "clocks.memory_mhz",
    "clocks.max.sm": "clocks.sm_max_mhz",
    "clocks.max.memory": "clocks.memory_max_mhz",
    "pstate": "pstate",
    "utilization.gpu": "utilization_percent",
    "temperature.gpu": "temperature_c",
    "fan.speed": "fan_percent",
    "memory.used": "memory_used_mib",
    "memory.total": "memory_total_mib",
    "persistence_mode": "persistence",
    "mig.mode.current": "mig",
    "clocks_event_reasons.active": described.MASK,
}
#: Older drivers know these instead, or in part.
OLDER: Mapping[str, str] = {"clocks_event_reasons.active": "clocks_throttle_reasons.active"}
_SPELLINGS: Mapping[str, str] = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "clocks.max.mem": "clocks.max.memory",
}
#: 14 is a damaged infoROM of some card: a warning at the end of a whole answer.
_ANSWERED = (0, 14)
_INVALID = re.compile(r'Field "([^"]*)" is not a valid field to query')
_REASON = re.compile(r"clocks_(?:throttle|event)_reasons(_counters)?\.")
_TITLE = re.compile(r"[a-z][a-z0-9_.]*(?: \[[^\]]+\])?\Z", re.IGNORECASE)


def rows(
    machine: machines.Machine, columns: Sequence[str], *, driver: str, card: str = "", limit_s: float = tool.LIMIT_S
) -> Tuple[List[Dict[str, str]], machines.Result]:
    """The rows by column, of all cards or of one, and the answer itself; there are no rows where it failed: then its words say why.

    Raises `driver-silent`.
    """
    unknown = _remembered(machine, driver)
    wanted = [_known(name, unknown) for name in columns if _known(name, unknown)]
    which = ["-i", card] if card else []
    while True:
        done = tool.smi(machine, [*which, f"--query-gpu={','.join(wanted)}", "--format=csv"], limit_s=limit_s)
        invalid = _INVALID.search(done.words)
        bad = [name for name in wanted if invalid and canonical(name) == canonical(invalid.group(1))]
        if not bad:
            return (parse(done.text) if done.code in _ANSWERED else []), done
        unknown.append(bad[0])
        _remember(machine, driver, unknown)
        at = wanted.index(bad[0])
        wanted[at : at + 1] = [name for name in (_known(bad[0], unknown),) if name]


def _known(column: str, unknown: Sequence[str]) -> str:
    """The column, or what an older driver has instead of it; empty where this driver knows neither."""
    if column not in unknown:
        return column
    older = OLDER.get(column, "")
    return older if older not in unknown else ""


def canonical(column: str) -> str:
    """One name for a column that comes back as `power.draw [W]`, or under the name of another driver."""
    bare = re.sub(r"\s*\[[^\]]*\]\s*\Z", "", column.strip())
    return _SPELLINGS.get(bare, _REASON.sub(r"clocks_event_reasons\1.", bare))


def parse(text: str) -> List[Dict[str, str]]:
    """Rows by canonical column, from a CSV with its header. A line of another length is no row (a warning, a cut line)."""
    lines = text.splitlines()
    at = next((at for at, line in enumerate(lines) if line.strip() and all(_TITLE.match(one.strip()) for one in line.split(","))), None)
    if at is None:
        return []
    names = [canonical(name) for name in lines[at].split(",")]
    found = [[one.strip() for one in line.split(",")] for line in lines[at + 1 :]]
    return [dict(zip(names, cells)) for cells in found if len(cells) == len(names)]


def cells(row: Mapping[str, str]) -> Dict[str, str]:
    """A row under the names of `described`."""
    found: Dict[str, str] = {}
    for column, value in row.items():
        reason = re.match(r"clocks_event_reasons(_counters)?\.(.+)\Z", column)
        if column in CELLS:
            found[CELLS[column]] = value
        elif reason:
            found[(described.COUNTER if reason.group(1) else described.REASON) + throttle.spelled(reason.group(2))] = value
    return found


def _remembered(machine: machines.Machine, driver: str) -> List[str]:
    with contextlib.suppress(ValueError, OSError, errors.Problem):
        kept = fields.document(fields.parsed(machine.read(MEMORY) or b""), MEMORY)
        if driver and kept.get("driver") == driver:
            return list(fields.texts(kept, "unknown"))
    return []


def _remember(machine: machines.Machine, driver: str, unknown: Sequence[str]) -> None:
    if driver and machine.is_dir("/var/cache/wattherd"):
        with contextlib.suppress(OSError, errors.Problem):
            machine.write(MEMORY, json.dumps({"driver": driver, "unknown": list(unknown)}).encode(), mode=0o600)
