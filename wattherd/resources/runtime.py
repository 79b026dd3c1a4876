"""HAProxy's runtime interface: which workers run, and one command to each of them, through the master's socket.

A reload leaves the old worker at work until its last request has ended, so what is in flight is the sum over all of them. Reads and
says words; what to do about them belongs to haproxy.py and drain.py.
"""

from __future__ import annotations

import time
from typing import Dict, List, Mapping, Optional, Tuple

from wattherd import local
from wattherd import machine as machines
from wattherd.records import dataclass

#: How one worker stands to a server: nothing new gets to it; nobody keeps it away, but its health check failed last; requests get to it;
#: there is no such server.
HELD_BACK, AWAY, SERVED, ABSENT = "held back", "away", "served", "absent"

_LIMIT_S = 10.0
_TRIES = 10
_PAUSE_S = 0.25
#: Bits of srv_admin_state: maintenance and drain that were asked for, and not inherited.
_FORCED = 0x01 | 0x08
#: srv_op_state of a server that is up.
_RUNNING = "2"
#: The master's words for a process id that is none of its workers' (any more), a worker's for a backend that it does not have.
_NO_SUCH = ("Can't find the target", "Can't find backend")
_ANSWER_LIMIT_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Workers:
    """Process ids. `old` ones take no new connection and end with their last request."""

    new: Tuple[int, ...] = ()
    old: Tuple[int, ...] = ()

    @property
    def every(self) -> Tuple[int, ...]:
        return (*self.new, *self.old)


@dataclass(frozen=True)
class Server:
    """One row of `show stat`: its backend/name, requests at it and waiting for it alone."""

    name: str
    current: int
    queued: int


def workers(machine: machines.Machine, socket_path: str) -> Optional[Workers]:
    """None when no proxy answers there: none runs, or (`listens`) one that says nothing.

    A master that reloads does not answer for a moment: it is waited for while its socket is there.
    """
    for _ in range(_TRIES):
        answer = say(machine, socket_path, "show proc")
        if answer and parse_workers(answer).every:
            return parse_workers(answer)
        if not machine.exists(socket_path):
            break
        machine.wait(_PAUSE_S)
    return None


def parse_workers(text: str) -> Workers:
    found: Dict[str, List[int]] = {"# workers": [], "# old workers": []}
    part = ""
    for line in text.splitlines():
        words = line.split()
        if line.startswith("#"):
            part = line.strip()
        elif part in found and len(words) > 1 and words[0].isdigit() and words[1] == "worker":
            found[part].append(int(words[0]))
    return Workers(tuple(found["# workers"]), tuple(found["# old workers"]))


def listens(machine: machines.Machine, socket_path: str) -> bool:
    """Somebody has this socket open, whether he answers or not: a proxy that hangs is not one that is gone."""
    try:
        local.connect(machine.path(socket_path), _LIMIT_S).close()
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        return False
    except OSError:
        return True
    return True


def tell_worker(machine: machines.Machine, socket_path: str, pid: int, words: str) -> Optional[str]:
    """The worker's answer; None when it is gone."""
    return say(machine, socket_path, f"@!{pid} {words}")


def stats(machine: machines.Machine, socket_path: str, pid: int) -> Optional[Tuple[Server, ...]]:
    """The rows of every server and backend (the backend's own row is NAME/BACKEND): none when the worker is gone, None when unknown."""
    return parse_stats(tell_worker(machine, socket_path, pid, "show stat -1 6 -1") or "")


def parse_stats(text: str) -> Optional[Tuple[Server, ...]]:
    if not text.startswith("# "):
        return () if text.startswith(_NO_SUCH) else None
    header, *lines = text[2:].strip().splitlines()
    keys = header.split(",")
    return tuple(_server(dict(zip(keys, line.split(",")))) for line in lines)  # no column before those read here can hold a comma


def _server(row: Mapping[str, str]) -> Server:
    name = f"{row.get('pxname', '')}/{row.get('svname', '')}"
    return Server(name, _number(row, "scur"), _number(row, "qcur"))


def _number(row: Mapping[str, str], key: str) -> int:
    text = row.get(key, "")
    return int(text) if text.isdigit() else 0


def standing(machine: machines.Machine, socket_path: str, pid: int, server: str) -> str:
    """Whether somebody drains this BACKEND/SERVER, or keeps it in maintenance (`show stat` tells its health first); empty when unknown."""
    backend = server.partition("/")[0]
    return parse_standing(tell_worker(machine, socket_path, pid, f"show servers state {backend}") or "", server)


def parse_standing(text: str, server: str) -> str:
    keys: List[str] = []
    for line in text.splitlines():
        if line.startswith("# "):
            keys = line[2:].split()
        row = dict(zip(keys, line.split()))
        if f"{row.get('be_name')}/{row.get('srv_name')}" == server:
            if _number(row, "srv_admin_state") & _FORCED:
                return HELD_BACK
            return SERVED if row.get("srv_op_state") == _RUNNING else AWAY
    return ABSENT if keys or text.startswith(_NO_SUCH) else ""


def say(machine: machines.Machine, socket_path: str, words: str) -> Optional[str]:
    """One command, its whole answer; None when nobody answers, or does not come to an end."""
    import socket

    ends_s = time.monotonic() + _LIMIT_S
    try:
        with local.connect(machine.path(socket_path), _LIMIT_S) as link:
            link.sendall(f"{words}\n".encode("ascii"))
            link.shutdown(socket.SHUT_WR)
            parts: List[bytes] = []
            size = 0
            while size < _ANSWER_LIMIT_BYTES:
                part = link.recv(65536)
                if not part:
                    break
                parts.append(part)
                size += len(part)
                if time.monotonic() > ends_s:
                    return None
    except OSError:
        return None
    return b"".join(parts).decode("utf-8", "replace")
