"""The SSH link: Fabric connections along a route, every machine's key checked before anything is told to it.

The one file that imports fabric. Owns the order of steps and the time limits; what a key is worth is hostkeys' verdict, which key logs in
is login's business, and big files go by openssh.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import fabric
import paramiko

from wattherd import errors
from wattherd.link import certificates, control, dial, failures, handshake, hostkeys, keys, login, revocation, route, transport

if TYPE_CHECKING:
    from wattherd.link import openssh

CONNECT_TIMEOUT_S = 10.0
_KEEPALIVE_S = 15
_Source = socket.socket | dial.Proxy


def open_link(
    path: route.Route,
    library: hostkeys.Library,
    *,
    now: float,
    files: keys.KeyFiles | None = None,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
) -> SshLink:
    """Log in at every machine of the route. Whoever opens many links shares one library and one KeyFiles among them."""
    way = Way(path, library, now=now, files=files, connect_timeout_s=connect_timeout_s)
    try:
        for hop in path.machines:
            way.enter(hop)
    except BaseException:
        way.close()
        raise
    return SshLink(way)


class SshLink:
    """Implements transport.Link."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._bulk: openssh.Bulk | None = None
        self._starting = threading.Lock()

    def run(self, command: str) -> transport.Channel:
        return self._way.run(command)

    def bulk(self, command: str) -> transport.Channel:
        with self._starting:
            self._bulk = self._bulk or self._way.bulk()
        return self._bulk.run(command)

    def close(self) -> None:
        if self._bulk:
            self._bulk.close()
        self._way.close()


@dataclass(frozen=True)
class Seen:
    """A host key as shown in a key exchange, and every algorithm for which the machine has one."""

    key: bytes
    offered: tuple[str, ...]


@dataclass
class _Step:
    """One machine while we try to get to it."""

    hop: route.Hop
    title: str
    limit_s: float
    before: str
    started_s: float
    source: _Source | None = None
    reached: bool = False


class Way:
    """The machines of a route that have let us in so far, and how to reach the next one."""

    def __init__(
        self,
        path: route.Route,
        library: hostkeys.Library,
        *,
        now: float,
        files: keys.KeyFiles | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        self._path = path
        self._library = library
        self._now = now
        self._files = files or keys.KeyFiles()
        self._connect_timeout_s = connect_timeout_s
        # Explicitly empty: ssh -G has already read the user's files, and Fabric's own must not add to them.
        self._config = fabric.Config(ssh_config=paramiko.SSHConfig(), lazy=True)
        self._connections: list[fabric.Connection] = []
        self._logins: list[keys.Login] = []
        self._source: _Source | None = None

    def enter(self, hop: route.Hop) -> None:
        """Connect to the next machine, check its key, log in."""
        step = self._step(hop)
        attempt = login.Attempt(hop, step.title, self._files, step.limit_s)
        policy = handshake.Policy(functools.partial(self._check, hop))
        with _explained(step):
            if not self._connections:
                self._source = step.source = self._first(step)
            connection = self._connection(step, attempt)
            # Fabric sets a policy that accepts any key, for each connection anew, jump hosts included.
            connection.client.set_missing_host_key_policy(policy)
            self._connections.append(connection)
            try:
                connection.open()
            finally:
                step.reached = connection.client.get_transport() is not None
        if not policy.passed or attempt.login is None:
            raise errors.Problem("internal", f"{step.title}: a session came about without a check of its host key")
        connection.transport.set_keepalive(_KEEPALIVE_S)
        self._logins.append(attempt.login)

    def run(self, command: str) -> transport.Channel:
        """Start a command on the last machine entered."""
        step = self._step(self._path.target)
        try:
            session = self._connections[-1].transport.open_session(timeout=step.limit_s)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise control.cut(step.title) from error
        return control.start(session, command, step.title, step.limit_s)

    def bulk(self) -> openssh.Bulk:
        """The same way once more, for the ssh program."""
        from wattherd.link import openssh

        limits_s = tuple(self._limit_s(hop) for hop in self._path.machines)
        return openssh.Bulk(self._path, tuple(self._logins), self._library.project, limits_s)

    def show(self, hop: route.Hop, wanted: Sequence[str]) -> Seen:
        """A key exchange with the next machine, without logging in; `wanted` are the kinds of key to ask for first."""
        step = self._step(hop)
        session: handshake.Transport | None = None
        try:
            with _explained(step):
                end = self._through(step) if self._connections else self._end_of_first(step)
                session = handshake.Transport(end, hop, wanted, step.title, step.limit_s)
                step.reached = True
                session.start_client(timeout=step.limit_s)
                return Seen(handshake.shown_key(session.get_remote_server_key()), session.offered)
        finally:
            if session:
                with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                    session.close()
            _release(step.source)

    def judge(self, hop: route.Hop, key: bytes) -> hostkeys.Verdict:
        return self._book(hop).verdict(*hop.known_as, key, self._now)

    def known_types(self, hop: route.Hop) -> tuple[str, ...]:
        return self._book(hop).key_types(*hop.known_as)

    def known(self, hop: route.Hop) -> tuple[hostkeys.Entry, ...]:
        return self._book(hop).entries(*hop.known_as)

    def close(self) -> None:
        # The first socket first: its end wakes the threads of all connections at once.
        if isinstance(self._source, socket.socket):
            with contextlib.suppress(OSError):
                self._source.shutdown(socket.SHUT_RDWR)
        for connection in reversed(self._connections):
            with contextlib.suppress(
                OSError, EOFError, paramiko.SSHException
            ):  # one inside another says goodbye, through a socket that is gone
                connection.client.close()
        _release(self._source)

    def _connection(self, step: _Step, attempt: login.Attempt) -> fabric.Connection:
        known = self.known_types(step.hop)

        def make(end: socket.socket, **_options: object) -> handshake.Transport:
            return handshake.Transport(end, step.hop, known, step.title, step.limit_s)

        options: dict[str, object] = {"auth_strategy": attempt, "transport_factory": make, "compress": False}
        options |= dict.fromkeys(("timeout", "banner_timeout", "auth_timeout", "channel_timeout"), step.limit_s)
        if step.source:
            options["sock"] = _end(step.source)
        return fabric.Connection(
            step.hop.hostname,
            user=step.hop.user,
            port=step.hop.port,
            config=self._config,
            gateway=self._connections[-1] if self._connections else None,
            forward_agent=False,
            connect_kwargs=options,
        )

    def _check(self, hop: route.Hop, key: bytes) -> None:
        """Raise unless this key is known for this machine."""
        title = self._path.title(hop)
        verdict = self.judge(hop, key)
        shown = f"{certificates.blob_type(key)} {hostkeys.fingerprint(key)}"
        if verdict.state == "revoked":
            raise failures.host_key_revoked(hop, title, shown, ", ".join(entry.where for entry in verdict.entries))
        if verdict.state == "changed":
            expected = tuple((hostkeys.fingerprint(entry.key), entry.where) for entry in verdict.entries)
            raise failures.host_key_changed(hop, title, shown, expected, verdict.detail)
        if verdict.state == "unknown":
            raise failures.host_key_unknown(hop, title, self._path.name, shown, verdict.detail)
        if hop.revoked_keys and revocation.is_revoked(key, hop.revoked_keys):
            raise failures.host_key_revoked(hop, title, shown, str(hop.revoked_keys))

    def _step(self, hop: route.Hop) -> _Step:
        index = self._path.machines.index(hop)
        before = self._path.title(self._path.machines[index - 1]) if index else ""
        return _Step(hop, self._path.title(hop), self._limit_s(hop), before, time.monotonic())

    def _limit_s(self, hop: route.Hop) -> float:
        return hop.connect_timeout_s or self._connect_timeout_s

    def _book(self, hop: route.Hop) -> hostkeys.Book:
        return self._library.book(hop.known_hosts)

    def _first(self, step: _Step) -> _Source:
        if step.hop.proxy_command:
            return dial.Proxy(step.hop.proxy_command)
        try:
            return dial.tcp(step.hop.hostname, step.hop.port, step.hop.address_family, step.limit_s)
        except OSError as error:
            raise failures.dialling(error, step.hop, step.title, step.limit_s) from error

    def _end_of_first(self, step: _Step) -> socket.socket:
        step.source = self._first(step)
        return _end(step.source)

    def _through(self, step: _Step) -> paramiko.Channel:
        gateway: paramiko.Transport = self._connections[-1].transport
        return gateway.open_channel("direct-tcpip", (step.hop.hostname, step.hop.port), ("", 0), timeout=step.limit_s)


@contextlib.contextmanager
def _explained(step: _Step) -> Iterator[None]:
    """Problems pass; everything else that a connection can raise becomes one."""
    try:
        yield
    except errors.Problem:
        raise
    except Exception as error:  # a strange peer makes paramiko's thread fail in any way, and the error comes out here
        if step.before and not step.reached:
            raise failures.through(error, step.hop, step.title, step.before, step.limit_s) from error
        elapsed_s = time.monotonic() - step.started_s
        if isinstance(step.source, dial.Proxy) and elapsed_s < step.limit_s and (said := step.source.last_words()) is not None:
            raise failures.proxy(said, step.source.exit_status(), step.hop, step.title) from error
        raise failures.handshake(error, step.hop, step.title, step.limit_s, elapsed_s) from error


def _end(source: _Source) -> socket.socket:
    return source.end if isinstance(source, dial.Proxy) else source


def _release(source: _Source | None) -> None:
    if source is not None:
        source.close()
