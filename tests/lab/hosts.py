"""`inventory/lab.yaml`: all booted nodes as the group `lab`, in the shape that Ansible and Wattherd both read."""

from __future__ import annotations

import yaml

from tests.lab import commands, disk, places, processes

_TOP = "# Written by lab.up with every node that is up, removed by lab.down. Do not edit: git does not keep it.\n"


def write(lab: places.Places) -> None:
    disks = disk.every(lab)
    found = processes.of_all(tuple(node.root for node in disks))
    hosts = {node.node: {"ansible_host": node.address} for node in disks if found[node.root].leader}
    variables = {"ansible_user": "ops", "ansible_ssh_private_key_file": "{{ wattherd_cache }}/lab/id_ed25519"}
    document = {"lab": {"hosts": hosts, "vars": variables}}
    commands.write(lab.inventory, _TOP + yaml.safe_dump(document, sort_keys=False))


def remove(lab: places.Places) -> None:
    lab.inventory.unlink(missing_ok=True)
