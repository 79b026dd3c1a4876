"""From what the inventory says of a host to an open link: local, or by SSH along its route.

Shares between all hosts of one command what is read once: ssh's answers, the known_hosts files and the private keys.
"""

from __future__ import annotations

import pathlib
import time
from dataclasses import dataclass

from wattherd.inventory import connection
from wattherd.link import hostkeys, keys, local, resolve, route, ssh, transport


@dataclass(frozen=True)
class _Wanted:
    """The inventory's connection in the words of the resolver."""

    host: str
    port: int | None
    user: str | None
    private_key: str | None
    ssh_args: tuple[str, ...]
    timeout_s: float | None


class Doors:
    """Opens links. Safe to share between threads; one per command."""

    def __init__(self, known_hosts: pathlib.Path) -> None:
        self.library = hostkeys.Library(known_hosts)
        self.files = keys.KeyFiles()
        self._resolver = resolve.Resolver()

    def route(self, wanted: connection.Connection, name: str) -> route.Route:
        key = str(wanted.key_file) if wanted.key_file else None
        limit_s = float(wanted.connect_timeout_s) if wanted.connect_timeout_s else None
        return self._resolver.resolve(_Wanted(wanted.host, wanted.port, wanted.user, key, wanted.arguments, limit_s), name)

    def open(self, wanted: connection.Connection, name: str) -> transport.Link:
        """Raises a Problem of the link's room; every key on the way is checked."""
        if wanted.local:
            return local.LocalLink(name)
        return ssh.open_link(self.route(wanted, name), self.library, now=time.time(), files=self.files)
