"""Where a served instance lives on its node: its folder and files, its units, its socket behind the front proxy, and how the node asks it.

For the roles that make all this and the commands that name it to a node; no other place spells these names. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wattherd.resources.flagging import trial

if TYPE_CHECKING:
    from wattherd.inventory import settings

#: The account of every server, and the group that may reach their sockets. As it, the node tries options.
ACCOUNT = trial.ACCOUNT
FOLDER = "/etc/wattherd/serve"
#: The front proxy's: its configuration, its unit, and the sockets on which it takes orders.
PROXY_FOLDER = "/etc/wattherd/proxy"
PROXY_TLS = f"{PROXY_FOLDER}/tls"
PROXY_UNIT = "wattherd-proxy.service"
PROXY_RUNTIME = "wattherd-proxy"
PROXY_MASTER = f"/run/{PROXY_RUNTIME}/master.sock"
PROXY_ADMIN = f"/run/{PROXY_RUNTIME}/admin.sock"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a server listens: on its own address, or behind the front proxy on a socket. `door` is unix:/PATH.sock or ADDRESS:PORT."""

    listen: tuple[tuple[str, str], ...]
    socket: bool
    local_only: bool
    door: str

    def url(self, path: str = "") -> str:
        """As the node itself asks it."""
        return f"{self.door}:{path}" if self.socket else f"http://{self.door}{path}"


def place(server: settings.Serve, *, proxied: bool) -> Place:
    if proxied:
        path = socket(server.name)
        return Place(listen=(("--host", path), ("--port", str(server.port))), socket=True, local_only=True, door=f"unix:{path}")
    address = f"[{server.own_address}]" if ":" in server.own_address else server.own_address
    return Place(
        listen=(("--host", server.host), ("--port", str(server.port))),
        socket=False,
        local_only=server.is_local,
        door=f"{address}:{server.port}",
    )


def is_proxied(wanted: settings.Settings) -> bool:
    return "proxy" in wanted.roles


def unit(name: str) -> str:
    return f"llama@{name}.service"


def watchdog_unit(name: str) -> str:
    return f"llama-watchdog@{name}.service"


def presets_unit(name: str) -> str:
    return f"llama-presets@{name}.service"


def runtime(name: str) -> str:
    """The folder of its socket, below /run."""
    return f"wattherd/llama-{name}"


def socket(name: str) -> str:
    """Where its llama-server listens behind the front proxy."""
    return f"/run/{runtime(name)}/llama.sock"


def flags_file(name: str) -> str:
    return f"{FOLDER}/{name}.flags"


def presets_file(name: str) -> str:
    return f"{FOLDER}/{name}.ini"


def key_file(server: settings.Serve) -> str:
    """The file with its API key; empty where none is asked for."""
    return f"{FOLDER}/{server.name}.env" if server.api_key is not None else ""


def client_file(name: str, preset: str = "") -> str:
    """What clients on the node itself need: of the instance, or of one model of its router."""
    return f"{FOLDER}/{name}-{preset}.client" if preset else f"{FOLDER}/{name}.client"


def certificate_file(server: settings.Serve) -> str:
    """Its certificate and key, for the front proxy alone; empty without TLS."""
    return f"{PROXY_TLS}/{server.name}.pem" if server.tls is not None else ""
