"""Where the controller keeps things of its own: state per project, and one cache for every project.

Owns the rules (Wattherd's variable, then XDG's, then the home folder); creates nothing and knows nothing of what lies there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from wattherd import errors


def state_dir(project_root: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """The project's own folder: known_hosts and builds.json. Checkouts of one name share it unless WATTHERD_PROJECT differs."""
    return _root("WATTHERD_STATE", "XDG_STATE_HOME", ".local/state", environ) / _project(project_root, environ)


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    return _root("WATTHERD_CACHE", "XDG_CACHE_HOME", ".cache", environ)


def _root(own: str, xdg: str, fallback: str, environ: Mapping[str, str]) -> Path:
    if environ.get(own):
        return Path(environ[own]).expanduser().absolute()
    base = environ.get(xdg, "")
    # The XDG specification: a relative path in these variables is invalid and has to be passed over.
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    return (Path(base) if base.startswith("/") else home / fallback) / "wattherd"


def _project(project_root: Path, environ: Mapping[str, str]) -> str:
    name = environ.get("WATTHERD_PROJECT") or project_root.resolve().name or "project"
    if "/" in name or name in {".", ".."}:
        raise errors.Problem("bad-flag", f"WATTHERD_PROJECT is {name!r}; it names one folder", hint="a plain word such as 'attic-cluster'")
    return name
