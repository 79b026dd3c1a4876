"""From an inventory host to the machines that a connection passes: addresses, users, keys and the files that know the hosts.

Owns how the user's own ssh configuration is read: `ssh -G` answers (with Include and Match), what the inventory says comes first,
and every jump host is resolved in the same way. Opens no connection. StrictHostKeyChecking is not read: keys are always checked.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from wattherd import errors
from wattherd.link import ahead, arguments, noise, route, tokens

CONFIG_VARIABLE = "WATTHERD_SSH_CONFIG"
_ANSWER_S = 20.0
_HOPS_AT_MOST = 8
_DEFAULTS = ("ssh", "-G", "-F", os.devnull, "--", "localhost")
_ALGORITHMS = ("hostkeyalgorithms", "kexalgorithms", "ciphers")
_Settings = Mapping[str, tuple[str, ...]]


class Wanted(Protocol):
    """What the inventory says about the way to a host."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int | None: ...
    @property
    def user(self) -> str | None: ...
    @property
    def private_key(self) -> str | None: ...
    @property
    def ssh_args(self) -> tuple[str, ...]: ...
    @property
    def timeout_s(self) -> float | None: ...


def resolve(connection: Wanted, name: str, *, config: Path | None = None) -> route.Route:
    """One host on its own. Whoever resolves many keeps a Resolver, which asks ssh once per jump host."""
    return Resolver(config).resolve(connection, name)


class Resolver:
    """Asks ssh, and remembers the answers. Safe to share between threads."""

    def __init__(self, config: Path | None = None, environ: Mapping[str, str] | None = None) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        given = self._environ.get(CONFIG_VARIABLE, "")
        self._config = config or (Path(given).expanduser() if given else None)
        self._answers: dict[ahead.Question, _Settings] = {}
        self._locks: dict[ahead.Question, threading.Lock] = {}
        self._ahead: ahead.Ahead | None = None

    def foresee(self, connections: Iterable[tuple[Wanted, str]]) -> None:
        """Begin to ask about hosts that will be resolved soon. Returns at once; what is wrong is told by `resolve`."""
        questions: dict[ahead.Question, None] = {_DEFAULTS: None}
        for connection, name in connections:
            with contextlib.suppress(errors.Problem):
                said, _, options = _options(connection, name)
                questions[self._question(connection.host, said.config, options)] = None
        self._ahead = ahead.Ahead([*questions], self._environ, _ANSWER_S)

    def resolve(self, connection: Wanted, name: str) -> route.Route:
        said, key, options = _options(connection, name)
        asker = _Asker(self, said, (*((key,) if key else ()), *said.identities), connection.timeout_s)
        settings = asker.ask(connection.host, options)
        target = asker.machine(settings, connection.host, name)
        hops = asker.before(settings, (connection.host,))
        return route.Route(name, hops, target, _list(self.defaults(), "kexalgorithms"))

    def settings(self, host: str, config: str, options: Iterable[str]) -> _Settings:
        """What ssh would use for this host."""
        return self._ask(self._question(host, config, options))

    def _question(self, host: str, config: str, options: Iterable[str]) -> ahead.Question:
        if not host or not host.isprintable():
            raise _problem(f"{host!r} is not a host name", "look at ansible_host in the inventory, and at ProxyJump in ~/.ssh/config")
        chosen = config or (str(self._config) if self._config else "")
        return ("ssh", "-G", *(("-F", chosen) if chosen else ()), *options, "--", host)

    def defaults(self) -> _Settings:
        """What ssh uses where no file and no option says anything."""
        return self._ask(_DEFAULTS)

    def tokens(self, settings: _Settings, asked: str) -> tokens.Tokens:
        hostname, port, user, alias = (_one(settings, key) for key in ("hostname", "port", "user", "hostkeyalias"))
        return tokens.for_machine(asked=asked, hostname=hostname, port=port, user=user, alias=alias, environ=self._environ)

    def _ask(self, argv: ahead.Question) -> _Settings:
        """Many threads may want one answer (the defaults, a jump host): one asks, the others wait for it."""
        with self._locks.setdefault(argv, threading.Lock()):
            if argv not in self._answers:
                known = self._ahead.answer(argv) if self._ahead else None
                self._answers[argv] = _settings(_answer(argv, self._environ) if known is None else known)
            return self._answers[argv]


class _Asker:
    """One route in the making: the options of its inventory host, carried along its jump hosts."""

    def __init__(self, resolver: Resolver, said: arguments.Said, keys: tuple[Path, ...], timeout_s: float | None) -> None:
        self._resolver = resolver
        self._said = said
        self._keys = keys
        self._timeout_s = timeout_s

    def ask(self, host: str, options: Iterable[str]) -> _Settings:
        return self._resolver.settings(host, self._said.config, options)

    def before(self, settings: _Settings, passed: tuple[str, ...]) -> tuple[route.Hop, ...]:
        """The jump hosts in front of a machine. The first of them may itself stand behind others; the rest are reached through it."""
        jump = _one(settings, "proxyjump")
        hops: list[route.Hop] = []
        for spec in jump.split(",") if jump not in {"", "none"} else ():
            way = (*passed, spec)
            if spec in passed or len(way) > _HOPS_AT_MOST:
                raise _problem(f"the jump hosts lead in a circle: {' -> '.join(way)}", "look at the ProxyJump lines in ~/.ssh/config")
            user, host, port = _destination(spec)
            answer = self.ask(host, (*_port_and_user(port, user), *self._said.inherited))
            hops.extend(() if hops else self.before(answer, way))
            hop = self.machine(answer, host, spec)
            # ssh gives a jump host no key of the host behind it (and then fails): here that key comes last among the named ones.
            hops.append(replace(hop, identities=_distinct((*hop.identities, *self._keys)), proxy_command="" if hops else hop.proxy_command))
        return tuple(hops)

    def machine(self, settings: _Settings, asked: str, label: str) -> route.Hop:
        defaults = self._resolver.defaults()
        expand = self._resolver.tokens(settings, asked)
        named = settings.get("identityfile") != defaults.get("identityfile")
        identities = _existing(expand.path(value) for value in settings.get("identityfile", ()) if value != "none")
        explicit = [() if settings.get(key) == defaults.get(key) else _list(settings, key) for key in _ALGORITHMS]
        command = _one(settings, "proxycommand")
        if _one(settings, "proxyusefdpass") == "yes":
            raise _problem(f"{label}: ProxyUseFdpass is not supported", "use ProxyJump for this host, or a ProxyCommand that passes bytes")
        return route.Hop(
            label=label,
            hostname=_one(settings, "hostname") or asked,
            port=int(_one(settings, "port") or route.DEFAULT_PORT),
            user=_one(settings, "user"),
            identities=identities if named else (),
            default_identities=() if named else identities,
            certificates=_existing(expand.path(value) for value in settings.get("certificatefile", ()) if value != "none"),
            identities_only=_one(settings, "identitiesonly") == "yes",
            agent=expand.agent(_one(settings, "identityagent")),
            known_hosts=_distinct((*_files(_one(settings, "userknownhostsfile")), *_files(_one(settings, "globalknownhostsfile")))),
            revoked_keys=_revoked(_one(settings, "revokedhostkeys")),
            host_key_alias=_one(settings, "hostkeyalias"),
            address_family=_one(settings, "addressfamily") or "any",
            proxy_command="" if command in {"", "none"} else expand.command(command),
            host_key_algorithms=explicit[0],
            kex_algorithms=explicit[1],
            ciphers=explicit[2],
            connect_timeout_s=self._timeout_s or _seconds(_one(settings, "connecttimeout")),
        )


def _options(connection: Wanted, name: str) -> tuple[arguments.Said, Path | None, tuple[str, ...]]:
    """What the inventory says to ssh about a host."""
    said = arguments.read(connection.ssh_args, name)
    key = _named_key(connection.private_key, name)
    named = ("-o", f'IdentityFile="{_escaped(key)}"') if key else ()
    return said, key, (*_port_and_user(connection.port, connection.user), *named, *said.words)


def _answer(argv: tuple[str, ...], environ: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            argv, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_ANSWER_S, check=False
        )
    except FileNotFoundError as error:
        raise _problem("the program ssh is not installed here", "install it: apt install openssh-client") from error
    except subprocess.TimeoutExpired as error:
        raise _problem(f"ssh -G {argv[-1]} gave no answer in {_ANSWER_S:.0f} s", "a Match exec line in ~/.ssh/config may hang") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line and not line.startswith(("Warning", "Pseudo-terminal"))]
        reason = noise.plain(lines[0] if lines else f"exit status {done.returncode}")
        raise _problem(f"ssh does not accept its configuration for {argv[-1]}: {reason}", f"try it: {' '.join(argv)}")
    return done.stdout


def _settings(text: str) -> _Settings:
    settings: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        settings[key] = (*settings.get(key, ()), value)
    return settings


def _one(settings: _Settings, key: str) -> str:
    return settings.get(key, ("",))[0]


def _list(settings: _Settings, key: str) -> tuple[str, ...]:
    return tuple(part for part in _one(settings, key).split(",") if part)


def _files(value: str) -> tuple[Path, ...]:
    """The paths of a known hosts line, which ssh -G prints unquoted: a blank before a slash divides, any other may be part of a name."""
    parts = value.replace(" /", "\0/").replace(" none", "\0none").split("\0")
    return tuple(Path(part) for part in parts if part not in {"", "none"})


def _revoked(value: str) -> Path | None:
    return None if value in {"", "none"} else Path(value).expanduser()


def _port_and_user(port: int | None, user: str | None) -> tuple[str, ...]:
    return (*(("-p", str(port)) if port else ()), *(("-l", user) if user else ()))


def _named_key(private_key: str | None, name: str) -> Path | None:
    path = Path(private_key).expanduser() if private_key else None
    if path and not path.is_file():
        raise _problem(f"{name}: there is no key file {noise.plain(str(path))}", "look at ansible_ssh_private_key_file in the inventory")
    return path


def _destination(spec: str) -> tuple[str | None, str, int | None]:
    """`[user@]host[:port]`, the host in brackets when it has colons itself."""
    user, _, place = spec.strip().removeprefix("ssh://").rstrip("/").rpartition("@")
    host, _, port = place.rpartition(":") if place.count(":") == 1 or "]:" in place else (place, "", "")
    if port and not port.isdecimal():
        raise _problem(f"the jump host {noise.plain(spec)!r} has no port that is a number", "write [user@]host[:port]")
    return user or None, host.strip("[]"), int(port) if port else None


def _seconds(value: str) -> float | None:
    return float(value) if value.isdecimal() else None


def _escaped(path: Path) -> str:
    return str(path).replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')


def _existing(paths: Iterable[Path]) -> tuple[Path, ...]:
    return _distinct(path for path in paths if path.is_file())


def _distinct(paths: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(paths))


def _problem(message: str, hint: str) -> errors.Problem:
    return errors.Problem("ssh-config", message, hint=hint)
