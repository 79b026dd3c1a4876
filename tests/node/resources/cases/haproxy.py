"""The four cases of HAProxy's configuration."""

from __future__ import annotations

from tests.node import strict
from wattherd.resources import base, haproxy

FOLDER = "/etc/wattherd/proxy"
SOCKET = "/run/wattherd-proxy/master.sock"
UNIT = "wattherd-proxy.service"
KEY = f"{FOLDER}/tls/smol.pem"
FILES = {"haproxy.cfg": "global\n    maxconn 10\n", "proxy.lua": "-- nothing\n", "503-smol.http": "HTTP/1.1 503 away\r\n\r\n"}


def wanted(bench: strict.Bench, **more: object) -> haproxy.Haproxy:
    given = {"files": FILES, "unit": UNIT, "socket": SOCKET, "owner": bench.me, "group": bench.my_group, **more}
    return haproxy.Haproxy(folder=FOLDER, **given)  # type: ignore[arg-type]


def settle(bench: strict.Bench) -> haproxy.Haproxy:
    """Everything written, nobody running yet."""
    bench.folder(FOLDER)
    one = wanted(bench)
    one.fix(bench.machine, base.delta(one.wanted(), None), bench.tell)
    return one


def absent(bench: strict.Bench) -> haproxy.Haproxy:
    bench.folder(FOLDER)
    return wanted(bench)


def drifted(bench: strict.Bench) -> haproxy.Haproxy:
    one = settle(bench)
    bench.put(f"{FOLDER}/proxy.lua", "-- somebody's own\n")
    return one


def settled(bench: strict.Bench) -> haproxy.Haproxy:
    return settle(bench)


def checked(bench: strict.Bench) -> haproxy.Haproxy:
    return drifted(bench)
