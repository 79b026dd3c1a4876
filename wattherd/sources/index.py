"""Finding a release on a package index: which file, where, with which sha256. By pypi-simple, never by a build backend.

Honours the user's index as pip knows it. Imports pypi-simple and packaging, so it is itself imported late.
"""

from __future__ import annotations

import bisect
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pypi_simple
import requests
from packaging import utils as naming
from packaging import version as versions

from wattherd import errors
from wattherd.sources import spec, web

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,200}\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_KINDS = {".tar.gz": "an sdist (.tar.gz)", ".whl": "a wheel"}
_CONFIGURED = re.compile(r"^(global|download|install)\.index-url='(.*)'$", re.MULTILINE)
_NO_INDEX = "PIP_INDEX_URL (or pip's configuration) names the index; it usually ends in /simple"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One file of a release as the index offers it; sha256 '' and size 0 where the index does not say."""

    file_name: str
    url: str
    sha256: str
    size_bytes: int


def address(environ: Mapping[str, str] = os.environ) -> str:
    """PIP_INDEX_URL, else what `pip config` says (where there is a pip), else PyPI."""
    return environ.get("PIP_INDEX_URL") or _configured() or pypi_simple.PYPI_SIMPLE_ENDPOINT


def find(session: requests.Session, endpoint: str, release: spec.Release, suffix: str) -> Offer:
    """The release's .tar.gz or .whl. Of several wheels the one for any platform; a data file has no business in the others."""
    packages = [one for one in _packages(session, endpoint, release) if one.version and _FILE_NAME.match(one.filename)]
    fitting = [one for one in packages if one.filename.endswith(suffix)]
    wanted = naming.canonicalize_version(release.version)
    chosen = [one for one in fitting if naming.canonicalize_version(one.version or "") == wanted]
    if not chosen:
        raise _no_version(release, suffix, packages, fitting, web.host_of(endpoint))
    portable = [one for one in chosen if one.filename.endswith("-none-any.whl")]
    if len(chosen) > 1 and len(portable) != 1:
        names = ", ".join(sorted(one.filename for one in chosen))
        raise errors.Problem(
            "source-missing",
            f"{release} has several files and none of them for any platform: {names}",
            hint="download the wanted one and name it by path:",
        )
    found = (portable or chosen)[0]
    sha256 = found.digests.get("sha256", "").lower()
    return Offer(file_name=found.filename, url=found.url, sha256=sha256 if _SHA256.match(sha256) else "", size_bytes=found.size or 0)


def _configured() -> str:
    if importlib.util.find_spec("pip") is None:
        return ""
    # `list`, since `get` of older pips does not know every file that counts.
    argv = [sys.executable, "-m", "pip", "config", "list"]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = dict(_CONFIGURED.findall(done.stdout))
    return next((found[section] for section in ("global", "download", "install") if section in found), "")


def _packages(session: requests.Session, endpoint: str, release: spec.Release) -> list[pypi_simple.DistributionPackage]:
    host = web.host_of(endpoint)
    try:
        return pypi_simple.PyPISimple(endpoint, session=session).get_project_page(release.project, timeout=web.TIMEOUT_S).packages
    except pypi_simple.NoSuchProjectError:
        message = f"{host} has no project '{release.project}'"
        raise errors.Problem("source-missing", message, hint=f"look at the spelling; {_NO_INDEX}", source=str(release), host=host) from None
    except web.NOT_HTTP as error:
        raise web.problem(str(release), endpoint, error) from None
    except (ValueError, KeyError, TypeError, pypi_simple.UnsupportedRepoVersionError):
        message = f"{release} cannot be fetched: {host} does not answer as a package index"
        raise errors.Problem("source-unreachable", message, hint=_NO_INDEX, host=host) from None
    except OSError as error:  # requests' own errors are among these, and a missing certificate file
        raise web.problem(str(release), endpoint, error) from None


def _no_version(
    release: spec.Release,
    suffix: str,
    packages: Sequence[pypi_simple.DistributionPackage],
    fitting: Sequence[pypi_simple.DistributionPackage],
    host: str,
) -> errors.Problem:
    wanted = naming.canonicalize_version(release.version)
    others = sorted({one.filename for one in packages if naming.canonicalize_version(one.version or "") == wanted})
    if others:
        shown = ", ".join(others[:4]) + (f" and {len(others) - 4} more" if len(others) > 4 else "")
        return errors.Problem(
            "source-missing",
            f"{release} has no {_KINDS.get(suffix, f'file {suffix}').split(' ', 1)[1]} on {host}, only {shown}",
            hint="another version may have one",
            host=host,
        )
    near, newest = _nearest(release.version, [one.version for one in fitting or packages if one.version])
    hint = f"nearest: {', '.join(near)}; newest: {newest}" if near else f"the index lists no files of it; {_NO_INDEX}"
    return errors.Problem(
        "source-missing", f"{release.project} has no version {release.version} on {host}", hint=hint, source=str(release), host=host
    )


def _nearest(wanted: str, known: Sequence[str]) -> tuple[list[str], str]:
    """Two versions below and two above the wanted one, and the newest."""
    ordered = sorted({one for item in known if (one := _parsed(item)) is not None})
    asked = _parsed(wanted)
    at = bisect.bisect_left(ordered, asked) if asked is not None else len(ordered)
    return [str(one) for one in ordered[max(0, at - 2) : at + 2]], str(ordered[-1]) if ordered else ""


def _parsed(text: str) -> versions.Version | None:
    try:
        return versions.Version(text)
    except versions.InvalidVersion:
        return None
