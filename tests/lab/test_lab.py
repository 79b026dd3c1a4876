"""The lab itself, tried for real: what it promises to the tests that stand on it, and that it leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.lab import disk, fleet, image, network, nodes, places, processes
from wattherd.errors import Problem

pytestmark = pytest.mark.lab


def test_up_gives_three_nodes_that_answer_and_have_no_failed_unit(lab: fleet.Status) -> None:
    named = {node.name: node for node in lab.nodes}
    for name in places.NAMED:
        assert named[name].state == "up"
        assert _ssh("ops", named[name].address, "hostname; systemctl is-system-running; systemctl --failed --no-legend").stdout.split() == [
            name,
            "running",
        ]


def test_the_inventory_names_every_booted_node(lab: fleet.Status) -> None:
    written = yaml.safe_load(places.here().inventory.read_text())
    assert written["lab"]["hosts"] == {node.name: {"ansible_host": node.address} for node in lab.nodes if node.state == "up"}
    assert written["lab"]["vars"]["ansible_user"] == "ops"


def test_ops_is_root_without_a_password_and_carol_only_with_hers(lab: fleet.Status) -> None:
    address = lab.nodes[0].address
    assert _ssh("ops", address, "sudo -n id -un").stdout == "root\n"
    assert _ssh("carol", address, "sudo -n id -un").returncode
    assert _ssh("carol", address, "sudo -S -p '' id -un", "herd-lab\n").stdout == "root\n"
    assert _ssh("carol", address, "sudo -S -p '' id -un", "wrong\n").returncode


def test_nobody_gets_in_with_a_password(lab: fleet.Status) -> None:
    done = _ssh("carol", lab.nodes[0].address, "true", "", "-o", "PubkeyAuthentication=no")
    assert "Permission denied (publickey)" in done.stderr


def test_a_node_has_its_own_groups_and_cannot_set_the_clock(lab: fleet.Status) -> None:
    one, two = (Path("/proc", str(node.pid), "cgroup").read_text().splitlines() for node in lab.nodes[:2])
    assert one != two
    assert "Operation not permitted" in _ssh("root", lab.nodes[0].address, "date -s @0").stderr


def test_up_again_keeps_the_running_and_adds_the_missing(spare: places.Places) -> None:
    (first,) = fleet.up(1, lab=spare).nodes
    both = fleet.up(2, lab=spare).nodes
    assert both[0] == first
    assert [node.name for node in both] == ["titan", "atlas"]
    assert len(fleet.up(1, lab=spare).nodes) == 2


def test_a_power_cut_keeps_the_disk_and_a_reboot_starts_anew(spare: places.Places) -> None:
    fleet.up(1, lab=spare)
    boots = [_boot_id(spare)]
    nodes.run("titan", ["sh", "-c", "echo kept > /root/kept"], lab=spare)
    nodes.power_off("titan", lab=spare)
    assert not processes.of(nodes.root("titan", lab=spare)).any
    nodes.boot("titan", lab=spare)
    boots.append(_boot_id(spare))
    nodes.reboot("titan", lab=spare)
    boots.append(_boot_id(spare))
    assert len(set(boots)) == 3
    assert nodes.run("titan", ["cat", "/root/kept"], lab=spare).stdout == "kept\n"
    keys = (nodes.root("titan", lab=spare) / "etc/ssh/ssh_host_ed25519_key.pub").read_text()
    nodes.wipe("titan", lab=spare)
    assert not (nodes.root("titan", lab=spare) / "root/kept").exists()
    assert (nodes.root("titan", lab=spare) / "etc/ssh/ssh_host_ed25519_key.pub").read_text() == keys


def test_a_half_dead_node_is_cleaned_and_booted_again(spare: places.Places) -> None:
    (before,) = fleet.up(1, lab=spare).nodes
    processes.kill(processes.of(nodes.root("titan", lab=spare)).keepers)
    (after,) = fleet.up(1, lab=spare).nodes
    assert after.state == "up"
    assert after.pid != before.pid
    assert network.speaks(after.address)


def test_a_node_can_refuse_hang_or_vanish_and_come_back(spare: places.Places) -> None:
    (node,) = fleet.up(1, lab=spare).nodes
    nodes.stop_sshd("titan", lab=spare)
    with pytest.raises(ConnectionRefusedError):
        _greeting(node.address)
    nodes.start_sshd("titan", lab=spare)
    assert _greeting(node.address) == b"SSH-"
    nodes.freeze_sshd("titan", lab=spare)
    with pytest.raises(TimeoutError, match="timed out"):
        _greeting(node.address)
    nodes.thaw_sshd("titan", lab=spare)
    assert _greeting(node.address) == b"SSH-"
    nodes.block("titan", lab=spare)
    with pytest.raises(OSError, match=r"timed out|No route"):
        _greeting(node.address)
    nodes.unblock("titan", lab=spare)
    assert _greeting(node.address) == b"SSH-"


def test_shaping_limits_both_directions(spare: places.Places) -> None:
    (node,) = fleet.up(1, lab=spare).nodes
    nodes.shape("titan", "20mbit", lab=spare)
    for command, text in (("head -c 2000000 /dev/zero", ""), ("cat > /dev/null", "0" * 2_000_000)):
        began = time.monotonic()
        assert not _ssh("ops", node.address, command, text, "-o", "Compression=no").returncode
        assert time.monotonic() - began > 0.6  # 2 MB less the bucket's 256 kB take 0.7 s at 20 Mbit/s
    nodes.unshape("titan", lab=spare)
    assert "tbf" not in nodes.run("titan", ["tc", "qdisc"], lab=spare).stdout


def test_an_unknown_node_is_named_with_those_that_exist(spare: places.Places) -> None:
    fleet.up(1, lab=spare)
    with pytest.raises(Problem, match=r"no node titam \(it has: titan\)"):
        nodes.power_off("titam", lab=spare)


def test_down_leaves_nothing(spare: places.Places) -> None:
    limits = _limits()
    fleet.up(2, lab=spare)
    assert len(_traces(spare)) > 5  # so that an empty list below means something
    fleet.down(lab=spare)
    assert _traces(spare) == []
    assert _limits() == limits


@pytest.mark.parametrize("moment", ["bridge", "mount", "keeper", "leader", "answers"])
def test_up_killed_half_way_then_down_leaves_nothing(spare: places.Places, moment: str) -> None:
    reached: dict[str, Callable[[], bool]] = {
        "bridge": lambda: Path("/sys/class/net", spare.bridge).exists(),
        "mount": lambda: bool(_mounts(spare)),
        "keeper": lambda: any(_found(spare, folder).keepers for folder in disk.folders(spare)),
        "leader": lambda: any(_found(spare, folder).leader for folder in disk.folders(spare)),
        "answers": lambda: network.speaks(spare.address(11), timeout_s=0.05),
    }
    env = {**os.environ, "WATTHERD_LAB_NAME": spare.name}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.lab", "up", "--nodes", "3"], cwd=places.CHECKOUT, env=env, stdout=subprocess.DEVNULL
    ) as doomed:
        while not reached[moment]():
            assert doomed.poll() is None
        doomed.kill()
    assert doomed.returncode == -signal.SIGKILL
    fleet.down(lab=spare)
    assert _traces(spare) == []


def test_a_killed_make_leaves_no_half_image_and_no_process(lab: fleet.Status, tmp_path: Path) -> None:
    assert lab.nodes
    env = {**os.environ, "WATTHERD_CACHE": str(tmp_path)}
    code = "from tests.lab import image; image.make('bookworm', ['python3-minimal'])"
    with subprocess.Popen([sys.executable, "-c", code], cwd=places.CHECKOUT, env=env) as doomed:
        while not list(tmp_path.glob("lab/making-*/tree/etc")):
            assert doomed.poll() is None
        doomed.kill()
    own = places.here(env)
    _wait_until(lambda: not [words for words in _command_lines() if str(tmp_path) in words])
    assert not list(own.cache.glob("image-*"))
    image.remove_leftovers(own)
    assert sorted(path.name for path in own.cache.iterdir()) == ["image.lock"]


def _ssh(user: str, address: str, command: str, text: str = "", *options: str) -> subprocess.CompletedProcess[str]:
    argv = ["ssh", "-F", "none", "-i", str(places.here().key), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", *options]
    argv += ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", f"{user}@{address}", command]
    return subprocess.run(argv, check=False, capture_output=True, text=True, input=text, timeout=30)


def _greeting(address: str) -> bytes:
    with network.connection(address, timeout_s=1) as wire:
        return wire.recv(4)


def _boot_id(lab: places.Places) -> str:
    return nodes.run("titan", ["cat", "/proc/sys/kernel/random/boot_id"], lab=lab).stdout


def _found(lab: places.Places, folder: Path) -> processes.Found:
    assert folder.is_relative_to(lab.cache)
    return processes.of(folder / "root")


def _traces(lab: places.Places) -> list[str]:
    """Everything on this machine that has to do with this lab."""
    names = {lab.bridge, *(lab.link(name) for name in places.names(places.MOST_NODES))}
    traces = [link.name for link in Path("/sys/class/net").iterdir() if link.name in names]
    traces += _mounts(lab)
    traces += [words for words in _command_lines() if any(f"{folder}/" in words for folder in lab.disks)]
    traces += [words for words in _command_lines() if f"tests.lab.simulated.daemon {lab.name}" in words]
    traces += [
        str(path)
        for path in (*lab.disks, *lab.disks[0].parents[:1], lab.inventory, lab.run / "up" / lab.name, lab.run / f"gpu-{lab.name}")
        if path.exists()
    ]
    traces += [str(group) for depth in ("", "*/") for group in Path("/sys/fs/cgroup").glob(f"{depth}wattherd-lab/{lab.name}")]
    return traces + [str(path) for path in Path("/run/systemd/nspawn/propagate").glob(f"*{lab.machine('')}")]


def _mounts(lab: places.Places) -> list[str]:
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in points if any(Path(point).is_relative_to(folder) for folder in lab.disks)]


def _command_lines() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")


def _limits() -> list[str]:
    return [(Path("/proc/sys/fs/inotify") / name).read_text() for name in ("max_user_instances", "max_user_watches")]


def _wait_until(true: Callable[[], bool], timeout_s: float = 10) -> None:
    until = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < until
