"""One hardened systemd unit per served instance: typed options become flags, and health is awaited as long as the model needs."""

from __future__ import annotations

from collections.abc import Iterator

from wattherd.role import Facts, Host, Model, Resource, Server, Unit, User, option_words, unit_word

ACCOUNT = "llama"
BINARY = "/opt/wattherd/current/bin/llama-server"
#: A slow disk at night: 100 MB/s for the weights, after a minute for everything else.
_READ_BYTES_PER_S = 100_000_000
_BASE_S = 60
_BURST = 5


def resources(host: Host, facts: Facts) -> Iterator[Resource]:
    del facts
    if host.settings.serve:
        yield User(name=ACCOUNT, comment="llama.cpp servers", home="/nonexistent")
    for server in host.settings.serve:
        yield _unit(host, server)


def _unit(host: Host, server: Server) -> Unit:
    model = host.model(server.model_names[0])
    limit_s = server.ready_timeout_s or ready_timeout_s(model)
    text = host.text(
        "server/llama.service.j2",
        server=server,
        flags=[unit_word(word) for word in flags(server, model)],
        binary=BINARY,
        account=ACCOUNT,
        start_limit_s=start_limit_s(server, model),
        burst=_BURST,
    )
    return Unit(
        name=f"llama@{server.name}.service",
        text=text,
        started_from=("symlink:/opt/wattherd/current", *model.artifact_ids()),
        ready_url=f"http://{_bracketed(server.own_address)}:{server.port}/health",
        ready_timeout_s=limit_s,
        ports=(server.port,),
    )


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def ready_timeout_s(model: Model) -> int:
    """Seconds that a start may take: a minute, and the time to read the weights from a slow disk."""
    return _BASE_S + model.size_bytes // _READ_BYTES_PER_S


def start_limit_s(server: Server, model: Model) -> int:
    """systemd counts starts in this interval; a start that fails late must still be counted, or a crash loop never ends."""
    return (_BURST + 1) * (server.restart_s + ready_timeout_s(model))


def flags(server: Server, model: Model) -> tuple[str, ...]:
    """The command line after the binary."""
    words = [word for option in option_words(server, model) for word in option]
    words += ["--alias", server.alias or server.name, "--host", server.host, "--port", str(server.port), "--sse-ping-interval", "5"]
    words += ["--metrics"] if server.metrics else []
    return (*words, "--offline", "--no-ui", *server.extra_flags)
