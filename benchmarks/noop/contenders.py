"""Wattherd and the bare script, each made ready for one herd: its files in a folder, its command, and how to read that nothing changed.

Neither leans on the inventory that ships: both log in as root with the lab's key, at the same nodes, for the same state.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
import yaml

from benchmarks.noop import herd as herds
from benchmarks.noop import measure, state
from wattherd.errors import Problem
from wattherd.verbs import starting

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
_TRUST = "/var/tmp/bare-digests.json"  # noqa: S108 - on a lab node, written by root
_MAKE_BLOB = f"""
test -s {state.BLOB} || python3 -c '
import random, sys
with open("{state.BLOB}", "wb") as stream:
    stream.write(random.Random(28).randbytes({state.BLOB_BYTES}))'
chown root:{state.USER} {state.BLOB} && chmod {state.TEXT_MODE} {state.BLOB}
"""


@dataclass(frozen=True)
class Contender:
    """`objection` says why a run was no converge without a change; empty when it was one."""

    name: str
    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    objection: Callable[[measure.Ran], str]
    versions: Mapping[str, str] = field(default_factory=dict)
    repeat: int | None = None
    hang_up: Callable[[], None] = lambda: None

    def run(self, herd: herds.Herd) -> measure.Cost:
        """One converge that must change nothing."""
        leaders = [node.leader for node in herd.nodes]
        ran = measure.run(self.argv, cwd=self.cwd, env=self.env, leaders=leaders, hang_up=self.hang_up)
        objection = self.objection(ran)
        if objection:
            raise Problem("resource-failed", f"{self.name}: {objection}", hint=ran.words[-1500:].strip())
        return ran.cost


def wattherd(herd: herds.Herd, folder: Path) -> Contender:
    """A project as `invoke init` makes it, with the benchmark's two roles; deployed once, so that the next run finds all done."""
    root = folder / "project"
    starting.init(root)
    shutil.copytree(HERE / "roles", root / "roles", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(HERE / "templates", root / "templates", dirs_exist_ok=True)
    hosts = {node.name: {"ansible_host": node.address} for node in herd.nodes}
    login = {"ansible_user": "root", "ansible_ssh_private_key_file": str(herd.key)}
    _yaml(root / "inventory/hosts.yaml", {"all": {"children": {"herd": {"hosts": hosts, "vars": login}}}})
    blob = {"blob_sha256": hashlib.sha256(state.blob()).hexdigest(), "blob_bytes": state.BLOB_BYTES}
    _yaml(root / "inventory/group_vars/all.yaml", {"roles": ["base", "app", "blob"], **state.variables(), **blob})
    env = {
        **os.environ,
        "PYTHONPATH": str(CHECKOUT),
        "WATTHERD_INVENTORY": str(root / "inventory"),
        "WATTHERD_STATE": str(folder / "state"),
        "WATTHERD_PROJECT": "noop",
    }
    book = folder / "state" / "noop" / "known_hosts"
    book.parent.mkdir(parents=True)
    shutil.copy(herd.known_hosts, book)
    argv = (sys.executable, "-m", "invoke", "deploy", "--hosts", "all", "--json")
    first = measure.run((*argv, "--skip-tags", "blob"), cwd=root, env=env)
    if first.code:
        raise Problem("resource-failed", "wattherd: the first deploy failed", hint=first.words[:1500].strip())
    herd.each(_MAKE_BLOB)
    made = Contender("wattherd", argv, root, env, _wattherd_objection)
    measure.run(argv, cwd=root, env=env)  # takes the blob over: from here on nothing is left to change
    return made


def remove(contender: Contender, herd: herds.Herd) -> None:
    """Lent nodes go back as they came."""
    herd.each(f"rm -f {state.BLOB} {_TRUST}")
    words = ["remove" if word == "deploy" else word for word in contender.argv]
    measure.run((*words, "--yes"), cwd=contender.cwd, env=contender.env)


def _wattherd_objection(ran: measure.Ran) -> str:
    try:
        hosts = json.loads(ran.out)["hosts"]
    except (ValueError, KeyError):
        return f"no answer (exit status {ran.code})"
    other = {name: one for name, one in hosts.items() if one["status"] != "ok" or one["changed"]}
    return "; ".join(f"{name} is {one['status']}: {one['changes'] or one['problem']}" for name, one in other.items())


def bare(herd: herds.Herd, folder: Path) -> Contender:
    """Each node's text is finished beforehand: rendering is part of a tool's price, and the bare script has none."""
    units = unit_text(herd)
    blob = hashlib.sha256(state.blob()).hexdigest()
    texts = folder / "bare"
    texts.mkdir()
    plan: dict[str, dict[str, str]] = {}
    for node in herd.nodes:
        wanted = json.dumps(_wanted(node.name, units, blob))
        path = texts / f"{node.name}.py"
        path.write_text((HERE / "check.py").read_text() + f"\n\ncheck({wanted!r}, {_TRUST!r})\n")
        plan[node.name] = {"address": node.address, "text": str(path)}
    (folder / "plan.json").write_text(json.dumps({"key": str(herd.key), "nodes": plan}))
    return Contender("bare", (sys.executable, str(HERE / "bare.py"), str(folder / "plan.json")), folder, dict(os.environ), _bare_objection)


def unit_text(herd: herds.Herd) -> str:
    """The unit files are as Wattherd writes them everywhere: with the digest of what they start from."""
    (text,) = set(herd.each(f"cat {state.UNIT_FOLDER}/{state.UNITS[0]}").values())
    return text


def _wanted(name: str, unit_text: str, blob: str) -> dict[str, list[object]]:
    """The common state for one node."""
    template = jinja2.Environment(keep_trailing_newline=True, trim_blocks=True, autoescape=False).from_string(  # noqa: S701 - not HTML
        (HERE / "templates" / state.TEMPLATE).read_text()
    )
    confs = {state.conf(index): template.render(inventory_hostname=name, index=index) for index in state.INDEXES}
    files: list[object] = [[path, state.TEXT_MODE, "root", state.USER, _sha256(text)] for path, text in confs.items()]
    files.append([state.SYSCTL[0], state.PLAIN_MODE, "root", "root", _sha256(state.SYSCTL[1])])
    files += [[f"{state.UNIT_FOLDER}/{unit}", state.PLAIN_MODE, "root", "root", _sha256(unit_text)] for unit in state.UNITS]
    files.append([state.BLOB, state.TEXT_MODE, "root", state.USER, blob])
    return {
        "files": files,
        "folders": [[path, state.FOLDER_MODE, "root", state.USER] for path in state.DIRECTORIES],
        "links": [list(link) for link in state.LINKS],
        "users": [state.USER],
        "packages": list(state.PACKAGES),
        "units": list(state.UNITS),
    }


def _bare_objection(ran: measure.Ran) -> str:
    try:
        answers = json.loads(ran.out)
    except ValueError:
        return f"no answer (exit status {ran.code})"
    return "; ".join(f"{name}: {', '.join(answer['wrong'])}" for name, answer in answers.items() if answer["wrong"])


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _yaml(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document, sort_keys=False))
