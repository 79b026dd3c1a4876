"""Who listens on a TCP port of this node: /proc/net/tcp for the socket, /proc/*/fd for its process. Reads only."""

from __future__ import annotations

import contextlib
import errno
import re
from typing import Dict, List, Sequence, Set, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.records import dataclass
from wattherd.resources import systemd

_LISTEN = "0A"
_SOCKET = r"socket:\[([0-9]+)\]\Z"
_INIT = 1
_UNIT = r"\.(?:service|socket)\Z"


@dataclass(frozen=True)
class Holder:
    """`pid` 0 is a process that cannot be seen from here."""

    port: int
    pid: int = 0
    program: str = ""
    unit: str = ""

    @property
    def words(self) -> str:
        if not self.pid:
            return "a process that cannot be seen from here (another container?)"
        return f"process {self.pid} ({self.program}{' of ' if self.unit else ''}{self.unit})"


def held(machine: machines.Machine, ports: Sequence[int]) -> Tuple[Holder, ...]:
    """The holders of those of the ports that are listened on. Free ports, the usual case, cost two small files."""
    sockets = _listening(machine, set(ports))
    if not sockets:
        return ()
    pids = _processes(machine, set(sockets))
    found = {_holder(machine, port, pid) for inode, port in sockets.items() for pid in pids.get(inode, [])}
    unseen = {Holder(port) for inode, port in sockets.items() if inode not in pids}
    return tuple(sorted(found | unseen, key=lambda one: (one.port, one.pid)))


def foreign(machine: machines.Machine, ports: Sequence[int], seen: systemd.Seen) -> Tuple[Holder, ...]:
    """The holders that are not of this unit."""
    return tuple(one for one in held(machine, ports) if not _belongs(machine, one.pid, seen))


def check_free(machine: machines.Machine, label: str, ports: Sequence[int], unit: str, *, beside_ours: bool) -> None:
    """`port-in-use` when another holds one of them.

    `beside_ours`: before the run a port may still belong to another unit of Wattherd, which this run may take away.
    """
    if not held(machine, ports):
        return
    for one in foreign(machine, ports, systemd.look_one(machine, unit)):
        if beside_ours and systemd.started_with(machine, one.pid):
            continue
        raise errors.Problem(
            "port-in-use",
            f"{label} wants port {one.port}, which {one.words} holds",
            hint="stop that program, or give this one another port: this unit was left as it is",
            port=one.port,
            pid=one.pid or None,
            program=one.program or None,
            unit=one.unit or None,
        )


def check_addresses(label: str, addresses: Sequence[str]) -> None:
    """`address-missing` when one of them is none of this node's. Names are passed over: who binds them looks them up."""
    for address in dict.fromkeys(addresses):
        if not _may_bind(address):
            raise errors.Problem(
                "address-missing",
                f"{label} is to listen on {address}, which is no address of this node",
                hint="ip addr on the node shows its own; correct host: in the inventory (0.0.0.0 is all of them)",
                address=address,
            )


def _may_bind(address: str) -> bool:
    """The kernel is asked, on a port of its own choice: it alone knows every rule (aliases, ip_nonlocal_bind)."""
    import socket

    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        socket.inet_pton(family, address)
    except OSError:
        return True
    with contextlib.closing(socket.socket(family, socket.SOCK_STREAM)) as trial:
        try:
            trial.bind((address, 0))
        except OSError as error:
            return error.errno != errno.EADDRNOTAVAIL
    return True


def _belongs(machine: machines.Machine, pid: int, seen: systemd.Seen) -> bool:
    if pid and pid == seen.pid:
        return True
    if pid == _INIT:  # systemd itself listens for a socket unit
        return seen.name.endswith(".socket") and seen.running
    # Whole parts of a path; in a container the kernel may show the part above the container's own root too.
    return bool(seen.cgroup) and any(f"{seen.cgroup}/" in f"{path}/" for path in _cgroups(machine, pid))


def _holder(machine: machines.Machine, port: int, pid: int) -> Holder:
    units = [part for path in _cgroups(machine, pid) for part in path.split("/") if re.search(_UNIT, part)]
    return Holder(port, pid, machine.text(f"/proc/{pid}/comm").strip(), units[-1] if units else "")


def _cgroups(machine: machines.Machine, pid: int) -> List[str]:
    return [line.split(":", 2)[-1] for line in machine.text(f"/proc/{pid}/cgroup").splitlines()] if pid else []


def _listening(machine: machines.Machine, ports: Set[int]) -> Dict[str, int]:
    """Inode of the socket -> its port."""
    found: Dict[str, int] = {}
    for path in ("/proc/net/tcp", "/proc/net/tcp6") if ports else ():
        for line in machine.text(path).splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[3] == _LISTEN:
                port = int(words[1].rpartition(":")[2], 16)
                if port in ports:
                    found[words[9]] = port
    return found


def _processes(machine: machines.Machine, inodes: Set[str]) -> Dict[str, List[int]]:
    found: Dict[str, List[int]] = {}
    for pid in machine.names("/proc"):
        with contextlib.suppress(OSError):  # it may end while we look
            for name in machine.names(f"/proc/{pid}/fd") if pid.isdigit() else ():
                match = re.match(_SOCKET, machine.readlink(f"/proc/{pid}/fd/{name}") or "")
                if match and match.group(1) in inodes:
                    found.setdefault(match.group(1), []).append(int(pid))
    return found
