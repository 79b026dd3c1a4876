"""Ansible and pyinfra at the same work: each in an environment of its own in the user's cache, never beside Wattherd.

Both get what their manuals advise for speed: as many forks as nodes, pipelining and a kept connection for Ansible, no gathered facts.
Ansible's apt module needs python3-apt on the nodes, which have no way out: it is downloaded here and taken away again afterwards.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
import venv
from collections.abc import Mapping
from pathlib import Path

from benchmarks.noop import contenders, herd, measure, state
from tests.lab import places
from wattherd.errors import Problem
from wattherd.inventory import places as folders

_ANSIBLE = "ansible-core>=2.19,<2.20"
_PYINFRA = "pyinfra>=3.10,<4"
_DEBS = ("python3-apt", "python-apt-common", "distro-info-data")
_RECAP = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)
_TOTAL = re.compile(r"Grand total\s+(\d+)\s+(\d+|-)\s+(\d+|-)\s+(\d+|-)")


def made_ready(found: herd.Herd, folder: Path, say: places.Say) -> list[contenders.Contender]:
    """Both tools, each of which has seen one node that has nothing left to change."""
    files = folder / "files"
    files.mkdir()
    (files / "blob").write_bytes(state.blob())
    (files / "unit").write_text(contenders.unit_text(found))
    (files / "sysctl").write_text(state.SYSCTL[1])
    say("installing the peers and what they need (not timed)")
    _install_apt_module(found, folder)
    return [_ansible(found, folder, files), _pyinfra(found, folder, files)]


def leave(found: herd.Herd) -> None:
    """Take from the nodes what the peers needed or left."""
    found.each(f"dpkg --purge {' '.join(_DEBS)} >/dev/null 2>&1; rm -rf /root/.ansible")


def _ansible(found: herd.Herd, folder: Path, files: Path) -> contenders.Contender:
    place = _environment(_ANSIBLE)
    ssh = " ".join(found.ssh)
    lines = [
        "[defaults]",
        f"forks = {len(found.nodes)}",
        "interpreter_python = /usr/bin/python3",
        f"local_tmp = {folder / 'ansible-tmp'}",
        "retry_files_enabled = False",
        "nocows = True",
        "[ssh_connection]",
        "pipelining = True",
        f"ssh_args = {ssh} -o ControlMaster=auto -o ControlPersist=60s",
        f"control_path_dir = {folder / 'cm'}",
    ]
    (folder / "ansible.cfg").write_text("\n".join(lines) + "\n")
    rows = "".join(f"{node.name} ansible_host={node.address} ansible_user=root\n" for node in found.nodes)
    (folder / "ansible.ini").write_text(f"[all]\n{rows}")
    given = {**state.variables(), "files": str(files), "templates": str(contenders.HERE / "templates")}
    (folder / "vars.json").write_text(json.dumps(given))
    playbook = str(contenders.HERE / "peer" / "site.yml")
    argv = (str(place / "bin/ansible-playbook"), "-i", str(folder / "ansible.ini"), playbook, "-e", f"@{folder / 'vars.json'}")
    env = {**_clean(), "ANSIBLE_CONFIG": str(folder / "ansible.cfg"), "LC_ALL": "C.UTF-8"}
    versions = {"ansible-core": _version(place, "ansible-core")}

    def hang_up() -> None:
        for socket in (folder / "cm").glob("*"):
            subprocess.run(["ssh", "-o", f"ControlPath={socket}", "-O", "exit", "node"], capture_output=True, check=False)

    return contenders.Contender("ansible", argv, folder, env, _ansible_objection, versions, repeat=1, hang_up=hang_up)


def _ansible_objection(ran: measure.Ran) -> str:
    rows = _RECAP.findall(ran.out)
    if ran.code or not rows:
        return f"exit status {ran.code}: {ran.out[-800:].strip()}"
    return "; ".join(f"{name}: changed={changed}" for name, changed, *others in rows if [changed, *others] != ["0", "0", "0"])


def _pyinfra(found: herd.Herd, folder: Path, files: Path) -> contenders.Contender:
    place = _environment(_PYINFRA)
    options = {
        "ssh_user": "root",
        "ssh_key": str(found.key),
        "ssh_known_hosts_file": str(found.known_hosts),
        "ssh_allow_agent": False,
        "ssh_look_for_keys": False,
    }
    hosts = [(node.name, {"ssh_hostname": node.address, **options}) for node in found.nodes]
    (folder / "pyinfra_hosts.py").write_text(f"hosts = {hosts!r}\n")
    deploy = str(contenders.HERE / "peer" / "pyinfra_deploy.py")
    argv = (str(place / "bin/pyinfra"), "-y", "--parallel", str(len(hosts)), str(folder / "pyinfra_hosts.py"), deploy)
    env = {**_clean(), "PYTHONPATH": str(contenders.CHECKOUT), "NOOP_FILES": str(files), "LC_ALL": "C.UTF-8"}
    versions = {"pyinfra": _version(place, "pyinfra")}
    return contenders.Contender("pyinfra", argv, folder, env, _pyinfra_objection, versions, repeat=1)


def _pyinfra_objection(ran: measure.Ran) -> str:
    """The last row of its table counts hosts by operation: in all, done, failed, without a change."""
    said = re.sub(r"\x1b\[[0-9;]*m", "", ran.out + ran.words)
    total = _TOTAL.search(said)
    if ran.code or total is None:
        return f"exit status {ran.code}: {said[-800:].strip()}"
    done, failed = total[2], total[3]
    return "" if done in {"0", "-"} and failed in {"0", "-"} else f"{done} operations changed something, {failed} failed"


def _environment(requirement: str) -> Path:
    """The tool's own virtual environment, made once."""
    place = folders.cache_dir() / "peers" / re.sub(r"[^\w.]+", "-", requirement)
    done = place / "ready"
    if not done.is_file():
        venv.create(place, with_pip=True, clear=True)
        _must([str(place / "bin/python"), "-m", "pip", "install", "--quiet", requirement])
        done.touch()
    return place


def _version(place: Path, name: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    return _must([str(place / "bin/python"), "-c", code]).strip()


def _install_apt_module(found: herd.Herd, folder: Path) -> None:
    debs = folder / "debs"
    debs.mkdir()
    _must(["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", *_DEBS], cwd=debs)
    body = io.BytesIO()
    with tarfile.open(mode="w", fileobj=body) as archive:
        for deb in sorted(debs.glob("*.deb")):
            archive.add(deb, deb.name)
    script = "python3 -c 'import apt' 2>/dev/null || { d=$(mktemp -d); tar -x -C $d && dpkg --install $d/*.deb >/dev/null; rm -r $d; }"
    found.each(script, body.getvalue())


def _clean() -> Mapping[str, str]:
    """This process's environment without what would lead another Python to our packages."""
    return {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}}


def _must(argv: list[str], cwd: Path | None = None) -> str:
    done = subprocess.run(argv, cwd=cwd, env=dict(_clean()), capture_output=True, text=True, check=False)
    if done.returncode:
        raise Problem("command-failed", f"{' '.join(argv[:4])}: {(done.stderr or done.stdout)[-600:].strip()}", hint=sys.executable)
    return done.stdout
