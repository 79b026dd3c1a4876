"""The common state in pyinfra's operations. Run by pyinfra, in an environment of its own."""

from __future__ import annotations

import os
from pathlib import Path

from pyinfra import host  # type: ignore[import-not-found]  # never installed beside Wattherd
from pyinfra.operations import apt, files, server, systemd  # type: ignore[import-not-found]

from benchmarks.noop import state

HERE = Path(__file__).resolve().parent.parent
FILES = os.environ["NOOP_FILES"]

server.user(name="user", user=state.USER, system=True, shell="/usr/sbin/nologin", create_home=False, ensure_home=False)  # noqa: S604 - a login shell
for folder in state.DIRECTORIES:
    files.directory(name=f"folder {folder}", path=folder, user="root", group=state.USER, mode="750")
apt.packages(name="packages", packages=list(state.PACKAGES), present=True)
for index in state.INDEXES:
    files.template(
        name=f"text {index}",
        src=str(HERE / "templates" / state.TEMPLATE),
        dest=state.conf(index),
        user="root",
        group=state.USER,
        mode="640",
        inventory_hostname=host.name,
        index=index,
        jinja_env_kwargs={"trim_blocks": True},
    )
for path, target in state.LINKS:
    files.link(name=f"link {path}", path=path, target=target)
files.put(name="sysctl", src=f"{FILES}/sysctl", dest=state.SYSCTL[0], user="root", group="root", mode="644")
for unit in state.UNITS:
    files.put(name=f"unit file {unit}", src=f"{FILES}/unit", dest=f"{state.UNIT_FOLDER}/{unit}", user="root", group="root", mode="644")
for unit in state.UNITS:
    systemd.service(name=f"unit {unit}", service=unit, running=True, enabled=True)
files.put(name="blob", src=f"{FILES}/blob", dest=state.BLOB, user="root", group=state.USER, mode="640")
