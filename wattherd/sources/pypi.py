"""A release's sdist or wheel in the cache: from the cache when it is there and sound, else from the user's package index.

Beside each file lies FILE.json with the release and the sha256 it was verified against; both can be copied to a machine that
has no network. Nothing of a package is ever run.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

from wattherd import errors
from wattherd.sources import cache as caches
from wattherd.sources import spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    path: Path
    sha256: str
    size_bytes: int


def sdist(release: spec.Release, cache: Path, on_bytes: caches.OnBytes, sha256: str = "") -> Fetched:
    """`sha256` is the inventory's; it stands in where the index publishes none, and nothing is downloaded when the two differ."""
    return _fetch(release, ".tar.gz", cache, on_bytes, sha256)


def wheel(release: spec.Release, cache: Path, on_bytes: caches.OnBytes, *, suffix: str = ".whl", sha256: str = "") -> Fetched:
    """Of a release with a wheel for each platform, `suffix` is how the wanted one's file name ends."""
    return _fetch(release, suffix, cache, on_bytes, sha256)


def mismatch(what: str, wanted: str, found: str, hint: str) -> errors.Problem:
    message = f"{what} has sha256 {found}, and the inventory wants {wanted}"
    return errors.Problem("digest-mismatch", message, hint=hint, wanted=wanted, found=found)


def _fetch(release: spec.Release, suffix: str, cache: Path, on_bytes: caches.OnBytes, sha256: str) -> Fetched:
    folder, memory = cache / "sources", caches.digests(cache)
    held = _held(release, suffix, folder, memory, on_bytes)
    if held is None:
        held = _download(release, suffix, folder, on_bytes, sha256)
        caches.remember_digest(held.path, held.sha256, memory)
        caches.write(_record_of(held.path), {"source": str(release), "sha256": held.sha256, "size_bytes": held.size_bytes})
    if sha256 and held.sha256 != sha256:
        hint = f"correct sha256 beside the source, or remove {held.path} if it came from an index that you do not trust"
        raise mismatch(str(release), sha256, held.sha256, hint)
    return held


def _download(release: spec.Release, suffix: str, folder: Path, on_bytes: caches.OnBytes, sha256: str) -> Fetched:
    # Only here: these two bring requests and pypi-simple, which a run with a warm cache never needs.
    from wattherd.sources import index, transfer, web

    session, endpoint = web.open_session(index.address())
    with session:
        offer = index.find(session, endpoint, release, suffix)
        if sha256 and offer.sha256 and offer.sha256 != sha256:
            raise mismatch(
                f"{release} on {web.host_of(endpoint)}", sha256, offer.sha256, "correct sha256 beside the source; nothing was downloaded"
            )
        wanted = offer.sha256 or sha256
        if not wanted:
            hint = "use an index that does, or download the file, check it and name it by path:"
            hint = f"write the sha256 that you trust beside the source, or {hint}" if suffix == ".tar.gz" else hint
            raise errors.Problem(
                "source-missing", f"{web.host_of(endpoint)} publishes no sha256 for {offer.file_name}, so it cannot be verified", hint=hint
            )
        with caches.on_disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
        target = folder / offer.file_name
        transfer.download(session, replace(offer, sha256=wanted), target, on_bytes)
    return Fetched(path=target, sha256=wanted, size_bytes=target.stat().st_size)


def _held(release: spec.Release, suffix: str, folder: Path, memory: caches.Memory, on_bytes: caches.OnBytes) -> Fetched | None:
    """What the cache has of the release, checked against its record. A file that no longer fits its record is gone afterwards."""
    for record in sorted(folder.glob(f"*{suffix}.json")):
        path = record.with_suffix("")
        said = _record(record)
        if said.get("source") != str(release) or not path.is_file():
            continue
        found = caches.digest(path, memory, on_bytes)
        if found == said.get("sha256"):
            return Fetched(path=path, sha256=found, size_bytes=path.stat().st_size)
        path.unlink(missing_ok=True)
    return None


def _record(path: Path) -> dict[str, object]:
    with contextlib.suppress(OSError, ValueError):
        loaded = json.loads(path.read_bytes())
        return loaded if isinstance(loaded, dict) else {}
    return {}


def _record_of(path: Path) -> Path:
    return path.with_name(path.name + ".json")
