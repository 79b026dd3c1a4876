"""The developer's commands of a checkout: check, test, golden. The demo and the lab are beside them in tests/lab."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import Any

from wattherd import errors
from wattherd.tasks.flags import Common, command

_CHECKS: tuple[tuple[str, ...], ...] = (
    ("ruff", "format", "--check", "."),
    ("ruff", "check", "."),
    ("mypy",),
    # Programs that ship as files and import each other by their plain names.
    ("mypy", "--strict", "--config-file=", "--python-version=3.10", "templates/server"),
    ("lint-imports",),
    (
        "vermin",
        "-t=3.8-",
        "--no-tips",
        "--violations",
        "-q",
        "--exclude",
        "file",  # our module of that name, not the built-in of Python 2
        "wattherd/node",
        "wattherd/resources",
        "wattherd/meters",
        "wattherd/power",
        "wattherd/policy",
        "wattherd/wire",
        "wattherd/gguf",
        "wattherd/machine.py",
        "wattherd/process.py",
        "wattherd/local.py",
        "wattherd/store.py",
        "wattherd/errors.py",
        "wattherd/units.py",
        "wattherd/records.py",
        "templates/server",
    ),
    ("pytest", "-m", "not lab", "-q"),
)


def _run(common: Common, argv: tuple[str, ...]) -> int:
    """Run a tool of this very environment, from the checkout's folder, with its own words on the terminal."""
    common.screen.say(f"$ {' '.join(argv)}", "dim")
    tool = pathlib.Path(sys.executable).parent / argv[0]
    if not tool.exists():
        raise errors.Problem("tool-missing", f"{argv[0]} is not in this environment", hint="pip install -c requirements.lock -e '.[dev]'")
    return subprocess.run([str(tool), *argv[1:]], cwd=common.root, check=False).returncode


@command(("verbose",))
def check(common: Common) -> int:
    """Format, lint, types, import contracts, node Python version, and the tests that need no lab."""
    return max(_run(common, argv) for argv in _CHECKS)


@command(("verbose",), help={"k": "only tests whose name matches"}, name="test")
def whole(common: Common, *, k: str = "") -> int:
    """Everything `check` does, then the lab: real nodes, a real build, a real model (root needed)."""
    if not k and (failed := max(_run(common, argv) for argv in _CHECKS)):
        return failed
    return _run(common, ("pytest", "-m", "lab and not quiet", *(("-k", k) if k else ())))


@command(("verbose",))
def golden(common: Common) -> int:
    """Rewrite tests/golden/*/manifest.json from host.yaml and facts.json. Read the difference, then commit it."""
    return subprocess.run([sys.executable, "-m", "tests.goldens"], cwd=common.root, check=False).returncode


TASKS: tuple[Any, ...] = (check, whole, golden)
