"""The SSH link: Fabric connections along a route, every machine's key checked before anything is told to it.

The one file that imports fabric. Owns the order of steps and the time limits; what a key is worth is hostkeys' verdict, which key logs in
is login's business, and big files go by openssh.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import fabric
import paramiko

from wattherd import errors
from wattherd.link import algorithms, certificates, control, dial, failures, hostkeys, keys, login, openssh, revocation, route, transport

CONNECT_TIMEOUT_S = 10.0
_KEEPALIVE_S = 15
#: How often the thread of an idle connection looks up. Paramiko's own tenth of a second is felt with 500 hosts.
_LOOK_UP_S = 0.5


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
            self._bulk = self._bulk or openssh.Bulk(self._way.path, tuple(self._way.logins), self._way.library.project, self._way.limits_s())
            return self._bulk.run(command)

    def close(self) -> None:
        if self._bulk:
            self._bulk.close()
        self._way.close()


@dataclasses.dataclass(frozen=True)
class Seen:
    """A host key as shown in a key exchange, and every kind of key that the machine has."""

    key: bytes
    offered: tuple[str, ...]


class Way:
    """The machines of a route that have let us in so far, and how to reach the next one."""

    def __init__(
        self, path: route.Route, library: hostkeys.Library, *, now: float, files: keys.KeyFiles | None = None, connect_timeout_s: float = CONNECT_TIMEOUT_S
    ) -> None:
        self.path = path
        self.library = library
        self.logins: list[keys.Login] = []
        self._now = now
        self._files = files or keys.KeyFiles()
        self._connect_timeout_s = connect_timeout_s
        # Explicitly empty: ssh -G has already read the user's files, and Fabric's own must not add to them.
        self._config = fabric.Config(ssh_config=paramiko.SSHConfig(), lazy=True)
        self._connections: list[fabric.Connection] = []
        self._sources: list[socket.socket | dial.Proxy] = []

    def enter(self, hop: route.Hop) -> None:
        """Connect to the next machine, check its key, log in."""
        limit_s = self._limit_s(hop)
        title = self.path.title(hop)
        attempt = login.Attempt(hop, title, self._files, limit_s)
        policy = _Policy(functools.partial(self.check, hop))
        options: dict[str, object] = {
            "timeout": limit_s,
            "banner_timeout": limit_s,
            "auth_timeout": limit_s,
            "channel_timeout": limit_s,
            "auth_strategy": attempt,
            "transport_factory": self._factory(hop, self._known_types(hop)),
        }
        if not self._connections:
            options["sock"] = self._first_socket(hop, limit_s)
        connection = fabric.Connection(
            hop.hostname,
            user=hop.user,
            port=hop.port,
            config=self._config,
            gateway=self._connections[-1] if self._connections else None,
            forward_agent=False,
            connect_kwargs=options,
        )
        # Fabric sets a policy that accepts any key, for each connection anew, jump hosts included.
        connection.client.set_missing_host_key_policy(policy)
        self._connections.append(connection)
        with self._explained(hop, limit_s, lambda: connection.client.get_transport() is not None):
            connection.open()
        if not policy.passed or attempt.login is None:
            raise errors.Problem("internal", f"{title}: a session came about without a check of its host key")
        connection.transport.set_keepalive(_KEEPALIVE_S)
        self.logins.append(attempt.login)

    def run(self, command: str) -> transport.Channel:
        """Start a command on the last machine entered."""
        title = self.path.title(self.path.target)
        limit_s = self._limit_s(self.path.target)
        try:
            session = self._connections[-1].transport.open_session(timeout=limit_s)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise errors.Problem(
                "stream-cut", f"the connection to {title} broke", hint="the machine may have restarted, or the network failed; run again"
            ) from error
        return control.start(session, command, title, limit_s)

    def show(self, hop: route.Hop, wanted: Sequence[str]) -> Seen:
        """A key exchange with the next machine, without logging in; `wanted` are the kinds of key to ask for, all where it is empty."""
        limit_s = self._limit_s(hop)
        started: list[_Transport] = []
        source: socket.socket | dial.Proxy | None = None
        with self._explained(hop, limit_s, lambda: bool(started)):
            if self._connections:
                end = self._connections[-1].transport.open_channel("direct-tcpip", (hop.hostname, hop.port), ("", 0), timeout=limit_s)
            else:
                end = self._first_socket(hop, limit_s)
                source = self._sources.pop()
            try:
                session = self._factory(hop, wanted)(end)
                started.append(session)
                session.start_client(timeout=limit_s)
                return Seen(_blob(session.get_remote_server_key()), session.offered)
            finally:
                for session in started:
                    session.close()
                end.close()
                _release(source)

    def check(self, hop: route.Hop, key: bytes) -> None:
        """Raise unless this key is known for this machine."""
        title = self.path.title(hop)
        verdict = self.judge(hop, key)
        shown = f"{certificates.blob_type(key)} {hostkeys.fingerprint(key)}"
        if verdict.state == "revoked":
            raise failures.host_key_revoked(hop, title, shown, ", ".join(entry.where for entry in verdict.entries))
        if verdict.state == "changed":
            expected = tuple((hostkeys.fingerprint(entry.key), entry.where) for entry in verdict.entries)
            raise failures.host_key_changed(hop, title, shown, expected, verdict.detail)
        if verdict.state == "unknown":
            raise failures.host_key_unknown(hop, title, self.path.name, shown, verdict.detail)
        if hop.revoked_keys and revocation.is_revoked(key, hop.revoked_keys):
            raise failures.host_key_revoked(hop, title, shown, str(hop.revoked_keys))

    def judge(self, hop: route.Hop, key: bytes) -> hostkeys.Verdict:
        return self._book(hop).verdict(*hop.known_as, key, self._now)

    def limits_s(self) -> tuple[float, ...]:
        return tuple(self._limit_s(hop) for hop in self.path.machines)

    def close(self) -> None:
        # From the first socket on: its end wakes the threads of all connections at once.
        for source in self._sources:
            if isinstance(source, socket.socket):
                with contextlib.suppress(OSError):
                    source.shutdown(socket.SHUT_RDWR)
        for connection in reversed(self._connections):
            connection.client.close()
        for source in self._sources:
            _release(source)

    def _limit_s(self, hop: route.Hop) -> float:
        return hop.connect_timeout_s or self._connect_timeout_s

    def _book(self, hop: route.Hop) -> hostkeys.Book:
        return self.library.book(hop.known_hosts)

    def _known_types(self, hop: route.Hop) -> tuple[str, ...]:
        return self._book(hop).key_types(*hop.known_as)

    def _first_socket(self, hop: route.Hop, limit_s: float) -> socket.socket:
        if hop.proxy_command:
            proxy = dial.Proxy(hop.proxy_command)
            self._sources.append(proxy)
            return proxy.end
        try:
            end = dial.tcp(hop.hostname, hop.port, hop.address_family, limit_s)
        except OSError as error:
            raise failures.dialling(error, hop, self.path.title(hop), limit_s) from error
        self._sources.append(end)
        return end

    def _factory(self, hop: route.Hop, known: Sequence[str]) -> Callable[..., _Transport]:
        def make(end: socket.socket, **_options: object) -> _Transport:
            return _Transport(end, hop, known, self.path.title(hop), self._limit_s(hop))

        return make

    @contextlib.contextmanager
    def _explained(self, hop: route.Hop, limit_s: float, has_socket: Callable[[], bool]) -> Iterator[None]:
        """Problems pass; everything else that a connection can raise becomes one."""
        started_s = time.monotonic()
        try:
            yield
        except (paramiko.SSHException, OSError, EOFError) as error:
            title = self.path.title(hop)
            index = self.path.machines.index(hop)
            if index and not has_socket():
                raise failures.through(error, hop, title, self.path.title(self.path.machines[index - 1]), limit_s) from error
            elapsed_s = time.monotonic() - started_s
            proxy = self._sources[-1] if self._sources and index == 0 else None
            if isinstance(proxy, dial.Proxy) and elapsed_s < limit_s and (proxy.exit_status() is not None or proxy.stderr()):
                raise failures.proxy(proxy.stderr(), proxy.exit_status(), hop, title) from error
            raise failures.handshake(error, hop, title, limit_s, elapsed_s) from error


class _Transport(paramiko.Transport):
    """Paramiko's transport with our choice of algorithms, and silent: what fails is raised, never logged from its thread."""

    _active_check_timeout = _LOOK_UP_S

    def __init__(self, end: socket.socket, hop: route.Hop, known: Sequence[str], title: str, limit_s: float) -> None:
        self._hop = hop
        self._known_types = known
        self.offered: tuple[str, ...] = ()
        super().__init__(end)
        self.banner_timeout = self.handshake_timeout = limit_s
        algorithms.demand(self.preferred_keys, "HostKeyAlgorithms", hop.host_key_algorithms, title)
        algorithms.demand(self.preferred_kex, "KexAlgorithms", hop.kex_algorithms, title)
        algorithms.demand(self.preferred_ciphers, "Ciphers", hop.ciphers, title)

    @property
    def preferred_keys(self) -> tuple[str, ...]:
        return algorithms.host_keys(super().preferred_keys, self._known_types, self._hop.host_key_algorithms)

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


class _Policy(paramiko.MissingHostKeyPolicy):
    """Asks for a verdict on every key: the client it is given to holds no keys of its own, so that all of them are missing there."""

    def __init__(self, check: Callable[[bytes], None]) -> None:
        self._check = check
        self.passed = False

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        self._check(_blob(key))
        self.passed = True


def _blob(key: paramiko.PKey) -> bytes:
    """The key as it was shown: with its certificate where it has one."""
    return key.public_blob.key_blob if key.public_blob else key.asbytes()


def _release(source: socket.socket | dial.Proxy | None) -> None:
    if source is not None:
        source.close()
