"""A master's socket that answers in HAProxy's recorded form: workers, their servers, and what each was told. A real unix socket."""

from __future__ import annotations

import contextlib
import os
import re
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.node import strict

_HEADER = "# pxname,svname,qcur,qmax,scur,smax,slim,stot,status,check_status,\n"

_PROCESSES = """\
#<PID>          <type>          <reloads>       <uptime>        <version>
217             master          0               0d00h00m11s     2.6.12
# workers
{new}# old workers
{old}# programs

"""


@dataclass
class Row:
    name: str
    current: int = 0
    queued: int = 0
    drained: bool = False
    up: bool = True


@dataclass
class Worker:
    pid: int
    rows: list[Row] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    old: bool = False
    mute: bool = False


@dataclass
class Proxy:
    """`said` are the commands that changed something. A `mute` one takes connections and answers nothing, as does a mute worker."""

    workers: list[Worker] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    mute: bool = False

    def answer(self, line: str) -> str:
        if self.mute or line == "show proc":
            return "" if self.mute else self._processes()
        found = re.match(r"@!([0-9]+) (.*)", line)
        worker = next((one for one in self.workers if found and one.pid == int(found[1])), None)
        if not found or worker is None:
            return "Can't find the target PID matching the prefix.\n"
        return "" if worker.mute else self._told(worker, found[2])

    def _told(self, worker: Worker, words: str) -> str:
        if words == "show stat -1 6 -1":
            rows = [
                f"{row.name.replace('/', ',')},{row.queued},0,{row.current},0,,0,{'DRAIN' if row.drained else 'UP'},,\n"
                for row in worker.rows
            ]
            return _HEADER + "".join(rows) + "\n"
        if words.startswith("show env "):
            name = words.rpartition(" ")[2]
            return f"{name}={worker.environment[name]}\n\n" if name in worker.environment else "Variable not found\n\n"
        if words.startswith("show servers state "):
            return self._states(worker, words.rpartition(" ")[2])
        if re.match(r"(disable|enable) frontend \S+\Z", words):
            self.said.append(f"{worker.pid} {words}")
            return "\n"
        change = re.match(r"set server (\S+) (state drain|state ready|health down)\Z", words)
        assert change, f"this proxy does not know {words}"
        self.said.append(f"{worker.pid} {change[2]}")
        for row in worker.rows:
            if row.name == change[1] and change[2].startswith("state"):
                row.drained = change[2] == "state drain"
        return "\n"

    @staticmethod
    def _states(worker: Worker, backend: str) -> str:
        """As version 1 of HAProxy's table: state 2 is running, 0 stopped, 8 a drain that was asked for."""
        servers = [row for row in worker.rows if row.name.startswith(f"{backend}/") and not row.name.endswith("/BACKEND")]
        if not servers:
            return "Can't find backend.\n"
        lines = [f"4 {backend} 1 {row.name.partition('/')[2]} - {2 if row.up else 0} {8 if row.drained else 0} 1 1 71\n" for row in servers]
        return (
            f"1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight srv_time\n{''.join(lines)}\n"
        )

    def _processes(self) -> str:
        return _PROCESSES.format(new=self._rows(old=False), old=self._rows(old=True))

    def _rows(self, *, old: bool) -> str:
        return "".join(
            f"{one.pid:<16}worker          {old:d}               0d00h00m07s     2.6.12\n" for one in self.workers if one.old is old
        )


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    proxy: Proxy


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        self.wfile.write(server.proxy.answer(self.rfile.readline().decode().strip()).encode())


@contextlib.contextmanager
def running(bench: strict.Bench, path: str, *workers: Worker) -> Iterator[Proxy]:
    real = Path(bench.machine.path(path))
    real.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(real.parent, os.O_PATH)
    server = _Server(f"/proc/self/fd/{handle}/{real.name}", _Handler)  # a test's own folder may be deeper than a socket's address is long
    server.proxy = Proxy(list(workers))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        os.close(handle)
        real.unlink()
