"""From what the inventory says of a host to an open link: local, or by SSH along its route.

Shares between all hosts of one command what is read once: ssh's answers, the known_hosts files and the private keys.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from wattherd.inventory import connection
from wattherd.link import hostkeys, keys, resolve, route, ssh, transport

if TYPE_CHECKING:
    from wattherd.link import trust


class Doors:
    """Opens links. Safe to share between threads; one per command."""

    def __init__(self, known_hosts: pathlib.Path) -> None:
        self.library = hostkeys.Library(known_hosts)
        self.files = keys.KeyFiles()
        self._resolver = resolve.Resolver()

    def foresee(self, ways: Iterable[tuple[connection.Connection, str]]) -> None:
        """These hosts will be opened soon: what can be found out beside the caller's other work is begun. Contacts none of them."""
        self._resolver.foresee((wanted, name) for wanted, name in ways if not wanted.local)

    def route(self, wanted: connection.Connection, name: str) -> route.Route:
        return self._resolver.resolve(wanted, name)

    def open(self, wanted: connection.Connection, name: str) -> transport.Link:
        """Raises a Problem of the link's room; every key on the way is checked."""
        if wanted.local:
            from wattherd.link import local

            return local.LocalLink(name)
        return ssh.open_link(self.route(wanted, name), self.library, now=time.time(), files=self.files)

    def fetch_keys(self, wanted: connection.Connection, name: str) -> list[trust.Found]:
        """The keys that a host shows, or those of the first jump host on the way that is not trusted yet."""
        from wattherd.link import trust

        return trust.fetch(self.route(wanted, name), self.library, now=time.time(), files=self.files)
