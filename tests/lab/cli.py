"""The real command line against the lab: what a person types, run as a child, with what it printed."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wattherd.inventory import places

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Said:
    """What a command left: exit code, stdout and stderr together for people, and stdout alone for --json."""

    code: int
    words: str
    out: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    def host(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.document["hosts"][name]
        return found


@dataclass(frozen=True)
class Project:
    """An inventory of a test's own, with a state folder of its own; the checkout's roles and templates."""

    folder: pathlib.Path
    environment: Mapping[str, str]

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "invoke", *words]

    def invoke(self, *words: str, given: str | None = None, timeout_s: float = 900, **more: str) -> Said:
        done = subprocess.run(
            self.argv(*words),
            cwd=ROOT,
            env={**self.environment, **more},
            input=given,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Said(done.returncode, done.stdout + done.stderr, done.stdout)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """In the background, for tests that kill it. Its words go nowhere."""
        return subprocess.Popen(
            self.argv(*words),
            cwd=ROOT,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def write(self, name: str, text: str) -> pathlib.Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def hosts(self, **addresses: str) -> None:
        """Write inventory/hosts.yaml: one group `these`."""
        rows = "".join(f"        {name.replace('_', '-')}: {{ansible_host: {address}}}\n" for name, address in addresses.items())
        body = f"all:\n  children:\n    these:\n      hosts:\n{rows}"
        body += "  vars:\n    ansible_user: ops\n    ansible_timeout: 5\n"
        body += "    ansible_ssh_private_key_file: '{{ wattherd_cache }}/lab/id_ed25519'\n"
        self.write("inventory/hosts.yaml", body)

    def group(self, text: str) -> None:
        self.write("inventory/group_vars/all.yaml", text)


def project(folder: pathlib.Path, cache: pathlib.Path | None = None) -> Project:
    """`cache` gives the controller an empty one of its own; the lab's key is linked into it."""
    own = {"WATTHERD_STATE": str(folder / "state"), "WATTHERD_INVENTORY": str(folder / "inventory"), "COLUMNS": "200"}
    if cache is not None:
        cache.mkdir(parents=True, exist_ok=True)
        (cache / "lab").symlink_to(places.cache_dir() / "lab")
        own["WATTHERD_CACHE"] = str(cache)
    return Project(folder, {**os.environ, **own})
