"""The machines between the controller and a host, fully resolved. Plain values: no file is read and nothing is opened here."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_PORT = 22


@dataclass(frozen=True)
class Hop:
    """One machine on the way. Tuples of algorithms are empty unless the user's configuration differs from ssh's own defaults."""

    label: str
    hostname: str
    port: int
    user: str
    identities: tuple[Path, ...] = ()
    default_identities: tuple[Path, ...] = ()
    certificates: tuple[Path, ...] = ()
    identities_only: bool = False
    agent: str = ""
    known_hosts: tuple[Path, ...] = ()
    revoked_keys: Path | None = None
    host_key_alias: str = ""
    address_family: str = "any"
    proxy_command: str = ""
    host_key_algorithms: tuple[str, ...] = ()
    kex_algorithms: tuple[str, ...] = ()
    ciphers: tuple[str, ...] = ()
    connect_timeout_s: float | None = None

    @property
    def known_as(self) -> tuple[str, int]:
        """The name and port that known_hosts is asked for: an alias stands without a port, as in OpenSSH."""
        return (self.host_key_alias.lower(), DEFAULT_PORT) if self.host_key_alias else (self.hostname.lower(), self.port)

    @property
    def address(self) -> str:
        host = f"[{self.hostname}]" if ":" in self.hostname else self.hostname
        return host if self.port == DEFAULT_PORT else f"{host}:{self.port}"


@dataclass(frozen=True)
class Route:
    """The way to one host of the inventory; the first of `machines` is the one that this controller dials."""

    name: str
    hops: tuple[Hop, ...]
    target: Hop
    client_kex: tuple[str, ...] = field(default=(), repr=False)
    """What the installed ssh offers unless told otherwise: the bulk channel chooses among it."""

    @property
    def machines(self) -> tuple[Hop, ...]:
        return (*self.hops, self.target)

    def title(self, hop: Hop) -> str:
        """How a message names this machine of the route."""
        where = "" if hop.label == hop.address else f" ({hop.address})"
        return f"{hop.label}{where}" if hop is self.target else f"the jump host {hop.label}{where}"
