"""This machine's control groups, for what a simulated card does to real processes: it slows a server, and a hung driver holds a caller.

cgroup v1: groups of the lab's own in the cpu and freezer hierarchies. cgroup v2: the process's own group, where it has a cpu.max; nothing
there makes a process that cannot be killed.
"""

from __future__ import annotations

import contextlib
import functools
import time
from pathlib import Path

from tests.lab import cgroups, places

_PERIOD_US = 50_000
#: The kernel takes no smaller quota.
_LEAST_US = 1000
#: Against the 1024 of everything else: what holds a card does not wait for what else runs here.
_SHARES, _WEIGHT = 65_536, 10_000
_NO_QUOTA = -1
_FREEZING_S = 1.0
_MOMENT_S = 0.002


def how() -> str:
    """In words, how servers are slowed here; the words begin with "not" where they cannot be."""
    if _mount("cpu"):
        return "by cpu.cfs_quota_us (cgroup v1)"
    unified = _unified()
    if unified and "cpu" in (unified / "cgroup.controllers").read_text().split():
        return "by cpu.max of the server's own group (cgroup v2)"
    return "not: this machine gives the lab neither cgroup v1's cpu controller nor v2's"


def slow(lab: places.Places, node: str, pid: int, cores: float | None) -> bool:
    """Let a process have so many cores, before all else that wants them; None is no throttle at all. False where that cannot be done."""
    quota = None if cores is None else max(_LEAST_US, round(cores * _PERIOD_US))
    mount = _mount("cpu")
    if mount is None:
        return _slow_own(pid, quota)
    group = _folder(mount, lab, node) / f"gpu-{pid}"
    group.mkdir(parents=True, exist_ok=True)
    _write(group / "cpu.shares", str(_SHARES))
    _write(group / "cpu.cfs_period_us", str(_PERIOD_US))
    return _write(group / "cpu.cfs_quota_us", str(_NO_QUOTA if quota is None else quota)) and _write(group / "cgroup.procs", str(pid))


def free(lab: places.Places, node: str, pid: int) -> None:
    """Take the process's group away; one that still runs is as all others then."""
    mount = _mount("cpu")
    if mount is None:
        _slow_own(pid, None)
    else:
        _empty(_folder(mount, lab, node) / f"gpu-{pid}", mount)


def sweep(lab: places.Places, node: str, keep: set[int]) -> None:
    """Take away the node's groups but these."""
    mount = _mount("cpu")
    if mount:
        for group in _folder(mount, lab, node).glob("gpu-*"):
            if int(group.name.removeprefix("gpu-")) not in keep:
                _empty(group, mount)


def freeze(lab: places.Places, node: str, pid: int) -> bool:
    """From now on this process cannot even be killed."""
    mount = _mount("freezer")
    if mount is None:
        return False
    group = _folder(mount, lab, node) / "hung"
    group.mkdir(parents=True, exist_ok=True)
    return _write(group / "cgroup.procs", str(pid)) and _write(group / "freezer.state", "FROZEN") and _is_frozen(group)


def _is_frozen(group: Path) -> bool:
    """Wait for it: the kernel answers before its processes have stopped, and one of them may take a lock in between and keep it."""
    until = time.monotonic() + _FREEZING_S
    while (group / "freezer.state").read_text().strip() != "FROZEN":
        if time.monotonic() > until:
            return False
        time.sleep(_MOMENT_S)
    return True


def thaw(lab: places.Places, node: str) -> None:
    """Let all frozen processes of a node go on, or die if they were killed meanwhile."""
    mount = _mount("freezer")
    group = _folder(mount, lab, node) / "hung" if mount else None
    if mount and group and group.is_dir():
        _write(group / "freezer.state", "THAWED")
        _empty(group, mount)


def release(lab: places.Places, node: str) -> None:
    """Nothing of this node is slowed or frozen any more."""
    thaw(lab, node)
    mount = _mount("cpu")
    if mount:
        for group in _folder(mount, lab, node).glob("gpu-*"):
            _empty(group, mount)


def remove(lab: places.Places, node: str) -> None:
    """The node's groups too; its processes are gone."""
    release(lab, node)
    for mount in filter(None, (_mount("cpu"), _mount("freezer"))):
        _remove_empty(_folder(mount, lab, node))


def remove_all(lab: places.Places) -> None:
    """What is left of a lab whose nodes are gone."""
    for mount in filter(None, (_mount("cpu"), _mount("freezer"))):
        for folder in (mount / cgroups.PARENT / lab.name).glob("*/"):
            for group in folder.glob("*/"):
                if (group / "freezer.state").exists():
                    _write(group / "freezer.state", "THAWED")
                _empty(group, mount)
            _remove_empty(folder)


def _remove_empty(folder: Path) -> None:
    """A node's folder, and those of the lab and of all labs with the last one."""
    for path in (folder, folder.parent, folder.parent.parent):
        with contextlib.suppress(OSError):
            path.rmdir()


def _folder(mount: Path, lab: places.Places, node: str) -> Path:
    return mount / cgroups.PARENT / lab.name / lab.machine(node)


def _empty(group: Path, mount: Path) -> None:
    """Its processes go to the top of the hierarchy, where they came from."""
    with contextlib.suppress(OSError):
        for pid in (group / "cgroup.procs").read_text().split():
            _write(mount / "cgroup.procs", pid)
        group.rmdir()


def _slow_own(pid: int, quota: int | None) -> bool:
    folder = _own(pid)
    limit = folder / "cpu.max" if folder else None
    if folder and quota is not None:
        _write(folder / "cpu.weight", str(_WEIGHT))
    return bool(limit and limit.is_file() and _write(limit, f"{'max' if quota is None else quota} {_PERIOD_US}"))


def _own(pid: int) -> Path | None:
    """The process's own group of cgroup v2; never the top one."""
    unified = _unified()
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        own = next((line.partition("::")[2] for line in lines if line.startswith("0::")), "")
        return unified / own.lstrip("/") if unified and own not in {"", "/"} else None
    return None


def _write(path: Path, text: str) -> bool:
    """False where the process has just ended, or the machine does not let it."""
    try:
        path.write_text(text)
    except OSError:
        return False
    return True


@functools.cache
def _mount(controller: str) -> Path | None:
    """Where cgroup v1's hierarchy of this controller is mounted."""
    for where, kind, options in _mounts():
        if kind == "cgroup" and controller in options:
            return where
    return None


@functools.cache
def _unified() -> Path | None:
    return next((where for where, kind, _ in _mounts() if kind == "cgroup2"), None)


def _mounts() -> list[tuple[Path, str, list[str]]]:
    rows = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [(Path(row[1]), row[2], row[3].split(",")) for row in rows]
