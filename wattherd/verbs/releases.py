"""Finished builds on the controller: which fingerprints a deploy wants, who builds, and what the cache already has."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from wattherd import errors
from wattherd.wire import facts, fields, manifest


def wanted_builds(manifests: Mapping[str, manifest.Manifest], only: Mapping[str, list[str] | None]) -> dict[str, list[str]]:
    """fingerprint -> hosts that want it, both in first-seen order. Tags may leave a host's build out."""
    found: dict[str, list[str]] = {}
    for host, wanted in manifests.items():
        limit = only.get(host)
        for entry in wanted.resources:
            if entry.type == "build" and (limit is None or entry.id in limit):
                found.setdefault(fields.text(entry.spec, "fingerprint"), []).append(host)
    return found


def build_entry(wanted: manifest.Manifest, fingerprint: str) -> manifest.Entry:
    for entry in wanted.resources:
        if entry.type == "build" and entry.spec.get("fingerprint") == fingerprint:
            return entry
    raise errors.Problem("release-not-built", f"{wanted.host} wants no build {fingerprint[:12]}")


def builders(named: Sequence[str], lacking: Sequence[str]) -> list[str]:
    """Who may build, best first: hosts that the inventory names as builders, then the others in order."""
    return sorted(lacking, key=lambda host: host not in named)


def receivers(
    fingerprint: str, told: Mapping[str, facts.Facts], named: Sequence[str], find: Callable[[str], facts.Built | None]
) -> tuple[facts.Built | None, list[str]]:
    """Who of one kind would be sent the release, and the release where it is somewhere already. What nobody has the first builder makes."""
    without = [name for name, one in told.items() if one.build(fingerprint) is None]
    held = (one.build(fingerprint) for one in told.values())
    built = (find(fingerprint) or next((one for one in held if one is not None), None)) if without else None
    compiles = builders(named, without)[:1] if built is None else []
    return built, [name for name in without if name not in compiles]


def lacking(built: facts.Built, system: facts.System) -> str:
    """What a file of the release needs and this host has in an older version, in words; empty when nothing is known to be."""
    for kind, name, there in (("GLIBC_", "glibc", system.libc), ("GLIBCXX_", "libstdc++", system.libstdcxx)):
        needed = next((one[len(kind) :] for one in built.versions if one.startswith(kind)), "")
        if needed and there and _numbers(needed) > _numbers(there):
            return f"needs {name} {needed}, and {system.hostname} has {there}"
    return ""


def check_receiver(built: facts.Built, system: facts.System) -> None:
    """`release-does-not-run` before a byte moves: any file of the release may need a newer C or C++ library than this host has."""
    words = lacking(built, system)
    if words:
        raise errors.Problem(
            "release-does-not-run",
            f"release {built.fingerprint[:12]} {words}: nothing was copied",
            hint="build it on a host with the oldest distribution of the group: llama_cpp: {builder: HOST}",
        )


def _numbers(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", text)]


@dataclass
class Shop:
    """The controller's cache of releases: FINGERPRINT.json beside DIGEST.tar.gz. `built_on` is this run's own work."""

    folder: pathlib.Path
    built_on: dict[str, list[str]] = field(default_factory=dict)

    def path(self, built: facts.Built) -> pathlib.Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"{built.digest}.tar.gz"

    def find(self, fingerprint: str) -> facts.Built | None:
        """The cached release, its bytes read and compared: a damaged file is thrown away and counts as absent."""
        record = self.folder / f"{fingerprint}.json"
        with contextlib.suppress(OSError, ValueError, errors.Problem):
            built = fields.build(facts.Built, fields.document(json.loads(record.read_bytes()), record.name))
            if _digest(self.path(built)) == built.digest:
                return built
            self.path(built).unlink()
        return None

    def keep(self, built: facts.Built) -> facts.Built:
        record = self.folder / f"{built.fingerprint}.json"
        temporary = record.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(fields.plain(built), sort_keys=True))
        temporary.rename(record)
        return built


def _digest(path: pathlib.Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
