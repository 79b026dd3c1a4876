"""The state that every tool is asked for, as plain data: 28 things on one node, all of them there already when a run is timed.

Each tool reads it in its own words: Wattherd's roles and Ansible's playbook as variables, pyinfra's deploy and the bare script by import.
"""

from __future__ import annotations

import random

USER = "appsvc"
ROOT = "/opt/app"
CONF = f"{ROOT}/conf"
DIRECTORIES = (ROOT, CONF, f"{ROOT}/data", f"{ROOT}/log")
PACKAGES = ("curl", "rsync", "sudo")
INDEXES = tuple(f"{number:02d}" for number in range(1, 13))
LINKS = ((f"{ROOT}/current", CONF), ("/usr/local/bin/appcurl", "/usr/bin/curl"))
SYSCTL = ("/etc/sysctl.d/90-app.conf", "net.ipv4.tcp_syncookies = 1\n")
UNITS = ("app-a.service", "app-b.service")
UNIT_FOLDER = "/etc/systemd/system"
UNIT_TEXT = """\
[Unit]
Description=Something small that runs, for measuring
[Service]
ExecStart=/bin/sleep infinity
[Install]
WantedBy=multi-user.target
"""
BLOB = f"{ROOT}/data/blob.bin"
BLOB_BYTES = 100_000_000
TEMPLATE = "app/app.conf.j2"

FOLDER_MODE, TEXT_MODE, PLAIN_MODE = "0750", "0640", "0644"


def conf(index: str) -> str:
    return f"{CONF}/f{index}.conf"


def variables() -> dict[str, object]:
    """For the tools that take variables: Wattherd's group_vars, Ansible's extra variables."""
    return {
        "app_user": USER,
        "app_folders": list(DIRECTORIES),
        "app_packages": list(PACKAGES),
        "app_indexes": list(INDEXES),
        "app_conf": CONF,
        "app_links": [{"path": path, "target": target} for path, target in LINKS],
        "app_sysctl": {"path": SYSCTL[0], "text": SYSCTL[1]},
        "app_units": list(UNITS),
        "app_unit_text": UNIT_TEXT,
        "app_blob": BLOB,
    }


def blob() -> bytes:
    """The same bytes wherever they are made, so that nobody has to carry them to the nodes."""
    return random.Random(28).randbytes(BLOB_BYTES)  # noqa: S311 - noise that does not compress, not a secret
