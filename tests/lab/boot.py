"""Power for one node: on, waiting until it answers, off in good order, and off like a power cut.

It works on a `disk.Disk` that others prepared. The keeper process outlives whoever called: it is nobody's child.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.lab import cgroups, commands, disk, network, places, processes
from tests.lab.simulated import groups
from wattherd.errors import Problem

READY_S = 120.0
_STILL_ANSWERS_S = 20.0
_SHUT_DOWN_S = 30.0
_ASK_AGAIN_S = 0.5
_GONE_S = 20.0
_POWER_OFF = signal.SIGRTMIN + 4  # systemd(1): to pid 1, it is `systemctl poweroff`
_CCACHE = "/var/cache/wattherd/ccache"

# systemd-nspawn ends with 133 where the node rebooted. Each start is moved to the node's own control groups first, by a child,
# so that this shell is not in them.
_KEEP = """
while :; do
    sh -c 'for group in $LAB_GROUPS; do echo $$ > "$group/cgroup.procs"; done; exec "$@"' start "$@"
    [ $? -eq 133 ] || exit 0
done
"""


def ensure(lab: places.Places, node: disk.Disk) -> None:
    """Leave a running node alone; a half dead one is cut off and booted again."""
    found = processes.of(node.root)
    if found.keepers and found.leader:
        network.connect(lab, node.node)
        if network.wait_for_ssh(node.address, _STILL_ANSWERS_S, lambda: True):
            return
    cut(lab, node.node, Path(node.folder))
    start(lab, node)
    wait_ready(node)


def start(lab: places.Places, node: disk.Disk) -> None:
    disk.mount(node)
    groups = cgroups.make(lab, node.node)
    if node.ccache:
        lab.ccache.mkdir(parents=True, exist_ok=True)
    env = {"PATH": commands.PATH, "LAB_GROUPS": " ".join(map(str, groups)), "LANG": "C.UTF-8"}
    with node.log.open("ab") as log:
        argv = ["setsid", "--fork", "sh", "-c", _KEEP, "lab-node", *_nspawn(lab, node)]
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd="/")


def wait_ready(node: disk.Disk, *, not_leader: int | None = None, timeout_s: float = READY_S) -> processes.Process:
    """Wait until the SSH server greets and systemd has started all it has to start. `not_leader` is the pid 1 of before a reboot."""
    until = time.monotonic() + timeout_s
    if not_leader is not None:
        _wait_for_end(node, not_leader, timeout_s)
    network.wait_for_ssh(node.address, until - time.monotonic(), lambda: bool(processes.of(node.root).keepers))
    leader = processes.of(node.root).leader
    if leader is None or not network.speaks(node.address, timeout_s=5):
        said = commands.tail(node.log.read_text(errors="replace")) if node.log.is_file() else ""
        state = "does not answer on its SSH port" if leader else "ended while it booted"
        raise Problem("lab-node-failed", f"{node.node} {state}: {said}", hint=f"its whole console is in {node.log}", node=node.node)
    # Until then pam_nologin turns ordinary users away.
    commands.run(
        [*enter(leader.pid), "systemctl", "is-system-running", "--wait"], check=False, timeout_s=max(1.0, until - time.monotonic())
    )
    return leader


def shut(lab: places.Places, name: str, folder: Path) -> None:
    """Off in good order, as far as the node is able to."""
    until = time.monotonic() + _SHUT_DOWN_S
    while (found := processes.of(folder / "root")).keepers and found.leader and time.monotonic() < until:
        groups.release(lab, name)  # what a simulated driver holds frozen could not end
        # Asked again and again: a pid 1 that is only just starting hears no signal yet.
        processes.kill((found.leader,), _POWER_OFF)
        if processes.wait_gone(found.keepers, _ASK_AGAIN_S):
            break
    cut(lab, name, folder)


def cut(lab: places.Places, name: str, folder: Path) -> None:
    """A power cut: every process of the node is killed at once. Nothing happens to one that is off."""
    until = time.monotonic() + _GONE_S
    # Again and again, because a keeper that is killed while it boots the node leaves what it had just started.
    while doomed := _all_of(lab, name, folder):
        processes.kill(doomed)
        groups.release(lab, name)
        processes.wait_gone(doomed, max(0.0, until - time.monotonic()))
        if time.monotonic() > until:
            numbers = ", ".join(str(process.pid) for process in doomed)
            raise Problem(
                "lab-node-failed", f"{name} does not end: killed processes are still there ({numbers})", hint="see `ps` for their state"
            )
    network.remove_link(lab, name)
    cgroups.remove(lab, name)
    groups.remove(lab, name)
    with contextlib.suppress(OSError):
        Path("/run/systemd/nspawn/propagate", lab.machine(name)).rmdir()  # systemd-nspawn's own leftover when it was killed


def enter(leader: int) -> tuple[str, ...]:
    """The words before a command that is to run inside the node, with the environment of a fresh root login."""
    environment = ("env", "-i", "HOME=/root", "LANG=C.UTF-8", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    return ("nsenter", "-t", str(leader), "-a", *environment)


def _all_of(lab: places.Places, name: str, folder: Path) -> tuple[processes.Process, ...]:
    """The keepers first, or they would boot it again."""
    found = processes.of(folder / "root")
    return tuple(dict.fromkeys((*found.keepers, *found.inside, *processes.alive(cgroups.members(lab, name)))))


def _nspawn(lab: places.Places, node: disk.Disk) -> Sequence[str]:
    return (
        *("systemd-nspawn", "--quiet", "-D", str(node.root), f"--machine={lab.machine(node.node)}", f"--hostname={node.node}"),
        *("--register=no", *(() if cgroups.given_by_systemd() else ("--keep-unit",)), f"--network-bridge={lab.bridge}"),
        *("--settings=no", "--resolv-conf=off", "--timezone=off", "--link-journal=no"),
        # The clock and the kernel are the whole machine's.
        "--drop-capability=CAP_SYS_TIME,CAP_SYS_MODULE",
        *((f"--bind={lab.ccache}:{_CCACHE}",) if node.ccache else ()),
        "--boot",
    )


def _wait_for_end(node: disk.Disk, leader: int, timeout_s: float) -> None:
    old = next((process for process in processes.of(node.root).inside if process.pid == leader), None)
    if old and not processes.wait_gone((old,), timeout_s):
        raise Problem("lab-node-failed", f"{node.node} did not go down within {timeout_s:.0f} s", hint=f"see {node.log}", node=node.node)
