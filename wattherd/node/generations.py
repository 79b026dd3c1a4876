"""What this node was told to be: past manifests, what Wattherd created, and the run that is going on.

Everything is written whole (machine.write), so a power cut leaves the old record or the new one. Knows nothing of
resources beyond their entries.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
import time
from typing import Dict, List, Mapping, Optional, Tuple

from wattherd import errors, store
from wattherd import machine as machines
from wattherd.records import dataclass, field
from wattherd.wire import facts, fields, manifest

FOLDER = store.HOME + "/generations"
OWNED = store.HOME + "/owned.json"
JOURNAL = store.HOME + "/journal.json"
#: There while this node is past its newest generation: a run changed something and has not gone through whole.
UNSETTLED = store.HOME + "/unsettled"
#: Manifests are small; ten let any controller go back a good while.
KEEP = 10


@dataclass(frozen=True)
class Record:
    """One applied manifest."""

    number: int
    digest: str
    applied_at: str
    manifest: Mapping[str, object]


@dataclass(frozen=True)
class Summary:
    """A generation in one line: the release that it uses (and whether it is still on this node), and the units that serve."""

    number: int
    digest: str
    applied_at: str
    resources: int
    release: str = ""
    release_present: bool = False
    units: Tuple[str, ...] = ()


def summary(machine: machines.Machine, record: Record) -> Summary:
    rows = fields.objects(record.manifest, "resources")
    specs = {fields.text(row, "id"): fields.document(row.get("spec", {}), "spec") for row in rows}
    target = fields.text(specs.get(f"symlink:{store.CURRENT}", {}), "target", "")
    return Summary(
        number=record.number,
        digest=record.digest,
        applied_at=record.applied_at,
        resources=len(rows),
        release=posixpath.basename(target),
        release_present=bool(target) and machine.is_dir(target),
        units=tuple(name[len("unit:") :] for name in specs if name.startswith("unit:")),
    )


def stamp(now_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s))


def numbers(machine: machines.Machine) -> List[int]:
    found = [name[:-5] for name in machine.names(FOLDER) if name.endswith(".json")]
    return sorted(int(name) for name in found if name.isdigit())


def read(machine: machines.Machine, number: int) -> Record:
    body = machine.read(f"{FOLDER}/{number}.json")
    if body is None:
        have = ", ".join(str(one) for one in numbers(machine)) or "none"
        hint = "invoke history lists them"
        raise errors.Problem("generation-missing", f"this node has no generation {number} (it has: {have})", hint=hint)
    try:
        return fields.build(Record, fields.document(fields.parsed(body), "generation"))
    except ValueError as error:
        raise errors.Problem(
            "generation-missing", f"the record of generation {number} is damaged: {error}", hint="go back to another one"
        ) from error


def before(machine: machines.Machine) -> int:
    """Where a rollback leads that names no generation: what was last whole before what is there now."""
    present = numbers(machine)
    if present and is_unsettled(machine):
        return present[-1]
    if len(present) > 1:
        return present[-2]
    have = f"only {present[0]}, the current one" if present else "none"
    raise errors.Problem(
        "generation-missing",
        f"this node has no earlier generation to go back to (it has: {have})",
        hint="a whole deploy makes one; invoke history lists them",
    )


def latest(machine: machines.Machine) -> Optional[Record]:
    """The newest readable record; a broken file is passed over, never the end of a run."""
    for number in reversed(numbers(machine)):
        with contextlib.suppress(errors.Problem, ValueError):
            return read(machine, number)
    return None


def keep(machine: machines.Machine, body: bytes) -> facts.Generation:
    """Record an applied manifest (its canonical bytes) as a new generation, unless the newest one is the same."""
    digest = manifest.digest(body)
    newest = latest(machine)
    if newest is not None and newest.digest == digest:
        return facts.Generation(newest.number, newest.digest, newest.applied_at)
    present = numbers(machine)
    number = (present[-1] if present else 0) + 1
    record = Record(number, digest, stamp(machine.now_s()), json.loads(body))
    machine.make_dirs(FOLDER)
    machine.chmod(FOLDER, 0o700)
    machine.write(f"{FOLDER}/{number}.json", json.dumps(fields.plain(record), sort_keys=True).encode(), mode=0o600)
    for old in present[: -(KEEP - 1)]:
        machine.unlink(f"{FOLDER}/{old}.json")
    return facts.Generation(number, digest, record.applied_at)


@dataclass
class Owned:
    """The resources that Wattherd manages on this node, in the order of their manifest.

    `created` says that the thing was absent when Wattherd first met it: only such things are ever removed.
    """

    machine: machines.Machine
    rows: Dict[str, Dict[str, object]] = field(default_factory=dict)
    _written: bytes = b""

    @classmethod
    def load(cls, machine: machines.Machine) -> Owned:
        """A record that is lost or damaged is made anew from the last generation: then only what bears our mark counts as created."""
        body = machine.read(OWNED)
        with contextlib.suppress(ValueError, errors.Problem):
            rows = fields.document(fields.parsed(body or b""), "owned")
            return cls(machine, {key: dict(fields.document(row, key)) for key, row in rows.items()}, body or b"")
        newest = latest(machine)
        written = b"{}" if body is None and newest is None else b""
        entries = fields.objects(newest.manifest, "resources") if newest is not None else ()
        return cls(machine, {fields.text(entry, "id"): {"created": False, "entry": dict(entry)} for entry in entries}, written)

    def created(self, entry_id: str) -> bool:
        return self.rows.get(entry_id, {}).get("created") is True

    def entry(self, entry_id: str) -> manifest.Entry:
        return fields.build(manifest.Entry, fields.document(self.rows[entry_id].get("entry"), entry_id))

    def manage(self, entry: manifest.Entry, *, absent: bool) -> None:
        """Note an entry; `absent` (nothing was there) is remembered from the first meeting on."""
        created = self.created(entry.id) or absent
        self.rows[entry.id] = {"created": created, "entry": fields.plain(entry)}

    def forget(self, entry_id: str) -> None:
        self.rows.pop(entry_id, None)

    def save(self) -> None:
        body = json.dumps(self.rows, sort_keys=False, separators=(",", ":")).encode()
        if body != self._written:
            self.machine.write(OWNED, body, mode=0o600)
            self._written = body


def begin(machine: machines.Machine, verb: str, resource: str) -> None:
    """The journal: what is being done now. It stays behind when the run dies, and the next `hello` tells of it."""
    row = facts.Interrupted(started_at=stamp(machine.now_s()), resource=resource, verb=verb)
    machine.write(JOURNAL, json.dumps(fields.plain(row)).encode(), mode=0o600)


def finish(machine: machines.Machine) -> None:
    machine.unlink(JOURNAL)


def unsettle(machine: machines.Machine) -> None:
    """Before the first change of a run. What becomes a generation settles it again."""
    if not is_unsettled(machine):
        machine.write(UNSETTLED, b"", mode=0o600)


def settle(machine: machines.Machine) -> None:
    machine.unlink(UNSETTLED)


def is_unsettled(machine: machines.Machine) -> bool:
    return machine.exists(UNSETTLED)


def interrupted(machine: machines.Machine) -> Optional[facts.Interrupted]:
    body = machine.read(JOURNAL)
    if body is None:
        return None
    with contextlib.suppress(ValueError, errors.Problem):
        return fields.build(facts.Interrupted, fields.document(fields.parsed(body), "journal"))
    return facts.Interrupted(started_at="")
