"""HAProxy in front of every served instance: it owns host and port, llama-server behind it listens on a socket that only it and root reach.

Comes after the role `server`, whose units it must not start before, and whose group it needs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from wattherd.role import Directory, Facts, Haproxy, Host, Package, Problem, Resource, Server, Unit, User, instance

ACCOUNT = "wattherd-proxy"
PROGRAM = "/usr/sbin/haproxy"
FOLDER = instance.PROXY_FOLDER
_FIRST_FREE_PORT = 1024
#: A stop waits so long for what runs, and this much longer until systemd kills. A change of it would restart the proxy.
_STOP_S = 600
_STOP_MARGIN_S = 30
#: A refused connection is tried again after a second: a server that fell is back within this many, or the client is told.
_RETRIES_LIMIT = 60

#: Paths that compute and take a slot. Everything that a client may do stands in these three lists; the rest of the server is closed.
WORK = (
    *("/v1/chat/completions", "/chat/completions", "/v1/completions", "/completions", "/completion"),
    *("/v1/responses", "/responses", "/v1/messages", "/infill"),
    *("/v1/embeddings", "/embeddings", "/embedding", "/v1/rerank", "/rerank", "/v1/reranking", "/reranking"),
    *("/v1/audio/transcriptions", "/audio/transcriptions"),
)
#: POST, without a slot.
ASIDE = (
    *("/tokenize", "/detokenize", "/apply-template", "/v1/messages/count_tokens"),
    *("/v1/chat/completions/input_tokens", "/chat/completions/input_tokens", "/v1/responses/input_tokens", "/responses/input_tokens"),
)
#: GET: these wake no sleeping server.
LOOK = ("/v1/models", "/models", "/props")


@dataclass(frozen=True, kw_only=True)
class Door:
    """One served port as the template needs it."""

    name: str
    bind: str
    address: str
    loopback: bool
    socket: str
    certificate: str
    router: bool
    slots: int
    look: tuple[str, ...]
    queue_length: int
    wait_s: int
    when_away: str
    retry_after_s: int
    retries: int
    request_timeout_s: int


def resources(host: Host, facts: Facts) -> Iterator[Resource]:
    del facts
    servers = host.settings.serve
    if not servers:
        return
    proxy = host.settings.proxy
    ports = (*(one.port for one in servers), proxy.metrics_port)
    _check(host, ports)
    yield Package(name="haproxy")
    yield User(name=ACCOUNT, comment="front proxy", home="/nonexistent")
    yield Directory(path=FOLDER)
    if any(one.tls for one in servers):
        yield Directory(path=instance.PROXY_TLS)
    for one in servers:
        if one.tls is not None:
            yield host.secret(
                one.tls.key, instance.certificate_file(one), form="pem", certificate=one.tls.certificate, owner=ACCOUNT, mode="0400"
            )
    doors = [door(server) for server in servers]
    unit = _unit(host, ports)
    yield Haproxy(
        folder=FOLDER,
        files=files(host, doors),
        beside=tuple(one.certificate for one in doors if one.certificate),
        binds=ports,
        unit=instance.PROXY_UNIT,
        socket=instance.PROXY_MASTER,
        program=PROGRAM,
        started_as=str(unit.wanted()["inputs"]),
    )
    yield unit


def _check(host: Host, ports: tuple[int, ...]) -> None:
    order = host.settings.roles
    if "server" not in order or order.index("server") > order.index("proxy"):
        where = "before the role server" if "server" in order else "without the role server"
        words = f"{host.name} has the role proxy {where}, whose servers it stands in front of"
        raise Problem("inventory-conflict", words, hint="roles: […, server, proxy]")
    if len(set(ports)) < len(ports):
        twice = next(port for index, port in enumerate(ports) if port in ports[:index])
        raise Problem(
            "inventory-conflict",
            f"{host.name}: port {twice} is wanted twice by what the front proxy serves",
            hint="give each instance under serve: a port of its own, apart from proxy.metrics_port",
        )


def _unit(host: Host, ports: tuple[int, ...]) -> Unit:
    text = host.text(
        "proxy/wattherd-proxy.service.j2",
        account=ACCOUNT,
        server_account=instance.ACCOUNT,
        program=PROGRAM,
        folder=FOLDER,
        runtime=instance.PROXY_RUNTIME,
        master_socket=instance.PROXY_MASTER,
        low_port=any(port < _FIRST_FREE_PORT for port in ports),
        stop_s=_STOP_S,
    )
    return Unit(
        name=instance.PROXY_UNIT,
        text=text,
        ready_url=f"http://127.0.0.1:{host.settings.proxy.metrics_port}/health",
        ready_timeout_s=60,
        stop_limit_s=_STOP_S + _STOP_MARGIN_S,
        ports=ports,
    )


def files(host: Host, doors: list[Door]) -> Mapping[str, str]:
    """File name -> text of everything that HAProxy reads, but for the keys."""
    made = {
        "haproxy.cfg": host.text(
            "proxy/haproxy.cfg.j2", doors=doors, work=WORK, aside=ASIDE, proxy=host.settings.proxy, admin_socket=instance.PROXY_ADMIN
        ),
        "proxy.lua": host.text("proxy/proxy.lua"),
        "403.http": _answer(host, 403, "Forbidden", "permission_error", "not open to clients"),
        "502.http": _answer(host, 502, "Bad Gateway", "server_error", "the server ended before it had answered"),
        "503.http": _answer(host, 503, "Service Unavailable", "unavailable_error", "not available"),
        "504.http": _answer(host, 504, "Gateway Timeout", "server_error", "the server did not answer in time"),
    }
    words = "the server is away or its queue is full; Retry-After says when to ask again"
    for one in doors:
        made[f"503-{one.name}.http"] = _answer(host, 503, "Service Unavailable", "unavailable_error", words, one.retry_after_s)
    return made


def _answer(host: Host, status: int, reason: str, kind: str, message: str, retry_after_s: int = 0) -> str:
    """A whole HTTP answer as llama-server words its errors."""
    body = json.dumps({"error": {"code": status, "message": message, "type": kind}}, separators=(",", ":"))
    text = host.text("proxy/error.http.j2", status=status, reason=reason, body=body, retry_after_s=retry_after_s)
    return "\r\n".join(text.rstrip("\n").split("\n"))


def door(server: Server) -> Door:
    return Door(
        name=server.name,
        bind=f"{server.host}:{server.port}" if server.host != "localhost" else f"127.0.0.1:{server.port}",
        address=server.own_address,
        loopback=server.is_local,
        socket=instance.socket(server.name),
        certificate=instance.certificate_file(server),
        router=server.router is not None,
        slots=sum(one.slots for one in server.presets),
        look=(*LOOK, "/metrics") if server.metrics else LOOK,
        queue_length=server.queue.length,
        wait_s=server.queue.wait_s,
        when_away=server.queue.when_away,
        retry_after_s=server.queue.retry_after_s,
        retries=max(1, min(server.queue.wait_s, _RETRIES_LIMIT)) if server.queue.when_away == "hold" else 1,
        request_timeout_s=server.request_timeout_s,
    )
