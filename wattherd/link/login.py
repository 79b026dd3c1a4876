"""One attempt to log in at one machine: offers keys until one is taken, and tells a refusal in full.

Plugs into paramiko as its authentication strategy. Knows nothing of how the connection came about or whose turn is next.
"""

from __future__ import annotations

import time

import paramiko

from wattherd import errors
from wattherd.link import keys, noise, route


class Attempt:
    """`login` is set once the machine has let us in."""

    def __init__(self, hop: route.Hop, title: str, files: keys.KeyFiles, limit_s: float) -> None:
        self.login: keys.Login | None = None
        self._hop = hop
        self._title = title
        self._files = files
        self._limit_s = limit_s
        self._tried: list[str] = []
        self._useless: list[str] = []

    def authenticate(self, transport: paramiko.Transport) -> None:
        """Called by paramiko once the host key has been accepted."""
        agent = keys.Agent(self._hop.agent)
        try:
            self._offer_all(transport, agent)
        finally:
            agent.close()

    def _offer_all(self, transport: paramiko.Transport, agent: keys.Agent) -> None:
        for offer in keys.offers(self._hop, self._files, agent):
            if isinstance(offer, keys.Useless):
                self._useless.append(f"{offer.title} {offer.reason}")
                continue
            try:
                taken = self._is_taken(transport, offer)
            except paramiko.BadAuthenticationType:
                break
            if taken:
                self.login = offer.login
                return
        if agent.failure:
            self._useless.append(agent.failure)
        self._without_key(transport)
        self.login = keys.Login()

    def _is_taken(self, transport: paramiko.Transport, offer: keys.Offer) -> bool:
        started_s = time.monotonic()
        try:
            further = transport.auth_publickey(self._hop.user, offer.key)
        except paramiko.BadAuthenticationType:
            self._tried.append(offer.title)
            raise
        except (paramiko.SSHException, OSError, EOFError) as error:
            self._tried.append(offer.title)
            if transport.is_active() and time.monotonic() - started_s >= self._limit_s:
                raise self._silent() from error
            if not transport.is_active():
                raise self._refused("it closed the connection then (each offered key counts; a server allows about six)") from error
            return False
        if further:
            self._tried.append(offer.title)
            raise self._refused(f"it took the key and wants more: {', '.join(further)}")
        return True

    def _without_key(self, transport: paramiko.Transport) -> None:
        """Some machines know their peer by other means and want no key (a private mesh network, for one)."""
        started_s = time.monotonic()
        try:
            further = transport.auth_none(self._hop.user)
        except paramiko.BadAuthenticationType as error:
            raise self._refused(f"it takes {noise.plain(', '.join(error.allowed_types))}") from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            late = transport.is_active() and time.monotonic() - started_s >= self._limit_s
            raise self._silent() if late else self._refused("") from error
        if further:
            raise self._refused(f"it wants {noise.plain(', '.join(further))}")

    def _silent(self) -> errors.Problem:
        return errors.Problem(
            "connect-timeout",
            f"{self._title} does not answer the login within {self._limit_s:g} s",
            hint="the machine may be out of memory, or its sshd waits for a name server; raise ansible_timeout if it is only slow",
            hop=self._hop.label,
        )

    def _refused(self, further: str) -> errors.Problem:
        tried = f"tried {', '.join(self._tried)}" if self._tried else "there was no key to offer"
        useless = f"; not usable: {', '.join(self._useless)}" if self._useless else ""
        agent = "" if self._hop.agent else "; no agent"
        more = f"; {further}" if further else ""
        return errors.Problem(
            "auth-failed",
            f"{self._title} refuses the user {self._hop.user}: {tried}{useless}{agent}{more}",
            hint=self._what_to_do(),
            hop=self._hop.label,
            user=self._hop.user,
        )

    def _what_to_do(self) -> str:
        if any("passphrase" in reason for reason in self._useless):
            return "add the key to an agent first: ssh-add"
        place = f"~{self._hop.user}/.ssh/authorized_keys on {self._hop.label}"
        if not self._tried:
            return f"make a key with ssh-keygen and put its .pub line into {place}, or name one in ansible_ssh_private_key_file"
        return f"put the .pub line of one of them into {place}, or correct ansible_user or ansible_ssh_private_key_file"
