"""The key exchange: paramiko's transport with our choice of algorithms, and a policy that asks for a verdict on every key.

Owns what is offered and what was shown. Knows nothing of logins; a verdict is raised by whoever is asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import paramiko

from wattherd.link import algorithms, route

#: How often the thread of an idle connection looks up. Paramiko's own tenth of a second is felt with 500 hosts.
_LOOK_UP_S = 0.5


class Transport(paramiko.Transport):
    """Silent: what fails is raised to whoever waits, never logged from its thread."""

    _active_check_timeout = _LOOK_UP_S

    def __init__(self, end: object, hop: route.Hop, wanted: Sequence[str], title: str, limit_s: float) -> None:
        self._hop = hop
        self._wanted = tuple(wanted)
        self.offered: tuple[str, ...] = ()
        super().__init__(end)  # type: ignore[arg-type]  # a socket or a channel: paramiko takes both
        self.banner_timeout = self.handshake_timeout = limit_s
        algorithms.demand(self.preferred_keys, "HostKeyAlgorithms", hop.host_key_algorithms, title)
        algorithms.demand(self.preferred_kex, "KexAlgorithms", hop.kex_algorithms, title)
        algorithms.demand(self.preferred_ciphers, "Ciphers", hop.ciphers, title)

    @property
    def preferred_keys(self) -> tuple[str, ...]:
        return algorithms.host_keys(super().preferred_keys, self._wanted, self._hop.host_key_algorithms)

    @property
    def preferred_kex(self) -> tuple[str, ...]:
        return algorithms.only(super().preferred_kex, self._hop.kex_algorithms)

    @property
    def preferred_ciphers(self) -> tuple[str, ...]:
        return algorithms.only(super().preferred_ciphers, self._hop.ciphers)

    def _really_parse_kex_init(self, message: paramiko.Message, ignore_first_byte: bool = False) -> dict[str, list[str]]:
        parsed: dict[str, list[str]] = super()._really_parse_kex_init(message, ignore_first_byte)  # type: ignore[misc]  # not in the stubs
        if not ignore_first_byte:
            self.offered = tuple(parsed["server_key_algo_list"])
        return parsed

    def _log(self, level: int, msg: object, *args: object) -> None:
        pass


class Policy(paramiko.MissingHostKeyPolicy):
    """To a client that holds no keys of its own every host key is a missing one, and so comes here."""

    def __init__(self, check: Callable[[bytes], None]) -> None:
        self._check = check
        self.passed = False

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:  # noqa: ARG002 - paramiko's signature
        self._check(shown_key(key))
        self.passed = True


def shown_key(key: paramiko.PKey) -> bytes:
    """The key as the machine showed it: with its certificate where it has one."""
    return key.public_blob.key_blob if key.public_blob else key.asbytes()
