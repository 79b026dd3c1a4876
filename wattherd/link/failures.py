"""From what sockets, paramiko and the ssh program report to a Problem that names the machine and what to do.

Owns the words. Knows nothing of how the connection is made; what a machine said is shown only after noise.plain.
"""

from __future__ import annotations

import socket

import paramiko

from wattherd import errors
from wattherd.link import noise, route

_PROHIBITED = 1
_CONNECT_FAILED = 2


def dialling(error: OSError, hop: route.Hop, title: str, limit_s: float) -> errors.Problem:
    """A connection that did not come about."""
    if isinstance(error, socket.gaierror):
        return _problem(
            "unreachable",
            f"{title}: the name {hop.hostname} has no address ({error.strerror})",
            "look at ansible_host, and at your name server",
            hop,
        )
    if isinstance(error, TimeoutError):
        return timeout(hop, title, limit_s, f"{hop.address} does not answer")
    if isinstance(error, ConnectionRefusedError):
        return _problem(
            "unreachable",
            f"{title} refuses connections at port {hop.port}",
            "start sshd there (systemctl start ssh), or correct ansible_port",
            hop,
        )
    reason = error.strerror or noise.plain(str(error)) or type(error).__name__
    return _problem("unreachable", f"{title} cannot be reached: {reason}", "is it switched on, and on this network?", hop)


def timeout(hop: route.Hop, title: str, limit_s: float, what: str) -> errors.Problem:
    return _problem(
        "connect-timeout",
        f"{title}: {what} within {limit_s:g} s",
        "is it switched on? a firewall may swallow packets, or the machine hangs; raise ansible_timeout if it is only slow",
        hop,
    )


def through(error: BaseException, hop: route.Hop, title: str, before: str, limit_s: float) -> errors.Problem:
    """A jump host that did not lead on."""
    if isinstance(error, paramiko.ChannelException) and error.code == _PROHIBITED:
        return _problem(
            "jump-failed",
            f"{before} does not let connections through to {hop.address}",
            "set AllowTcpForwarding yes in its sshd_config",
            hop,
        )
    if isinstance(error, paramiko.ChannelException) and error.code == _CONNECT_FAILED:
        reason = "refused, or no route from there"
        return _problem(
            "jump-failed",
            f"{before} cannot reach {hop.address} for {title} ({reason})",
            f"log in at the jump host and try: nc -z {hop.hostname} {hop.port}",
            hop,
        )
    return _problem(
        "jump-failed",
        f"{before} gave no way to {hop.address} within {limit_s:g} s ({_words(error)})",
        "is the machine behind it switched on?",
        hop,
    )


def proxy(said: bytes, status: int | None, hop: route.Hop, title: str) -> errors.Problem:
    """A ProxyCommand that ended, or never carried anything."""
    ending = "still runs" if status is None else f"ended with exit status {status}"
    words = noise.describe(said) or "nothing"
    return _problem(
        "jump-failed", f"{title}: its ProxyCommand {ending} and said: {words}", f"try it by hand: {noise.plain(hop.proxy_command)}", hop
    )


def handshake(error: BaseException, hop: route.Hop, title: str, limit_s: float, elapsed_s: float) -> errors.Problem:
    """A connection that carried no SSH session."""
    root = error.__context__ or error
    if isinstance(root, TimeoutError) or elapsed_s >= limit_s:
        return timeout(hop, title, limit_s, "it takes connections and then says nothing, or too little,")
    if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
        return _problem(
            "unreachable",
            f"{title}: no algorithm in common ({_words(error)})",
            "its sshd is very old or very strict; look at its Ciphers, KexAlgorithms and HostKeyAlgorithms",
            hop,
        )
    if isinstance(root, (EOFError, ConnectionError)):
        hint = "too many connections at once (MaxStartups in sshd_config), a firewall, or fail2ban"
        return _problem("unreachable", f"{title} closed the connection before the session began", hint, hop)
    return _problem(
        "unreachable",
        f"{title}: no SSH session comes about at port {hop.port}: {_words(error)}",
        "is this port sshd's? look at ansible_port",
        hop,
    )


def host_key_unknown(hop: route.Hop, title: str, name: str, shown: str, detail: str) -> errors.Problem:
    """`shown` is type and fingerprint; `name` is the inventory's, for the command that records the key."""
    if detail:
        message = f"{title} shows a certificate that does not prove it: {detail} ({shown})"
        return _problem("host-key-unknown", message, "renew the certificate on that machine, or look at the @cert-authority lines", hop)
    return _problem(
        "host-key-unknown",
        f"{title} is not known; it shows {shown}",
        f"compare the fingerprint, then record it: invoke trust --hosts {name}",
        hop,
    )


def host_key_changed(hop: route.Hop, title: str, shown: str, expected: tuple[tuple[str, str], ...], detail: str) -> errors.Problem:
    """`expected` are pairs of a fingerprint and the line that has it. Never offers to accept the new key."""
    lines = ", ".join(f"{print_} ({where})" for print_, where in expected)
    host, port = hop.known_as
    name = host if port == route.DEFAULT_PORT else f"[{host}]:{port}"
    files = dict.fromkeys(where.rpartition(":")[0] for _, where in expected)
    removal = "; ".join(f"ssh-keygen -R '{name}' -f {path}" for path in files)
    extra = f"; {detail}" if detail else ""
    return _problem(
        "host-key-changed",
        f"{title} shows another key than before: {shown}, known is {lines}{extra}; this may be an attack",
        f"find out why. Only if the change is expected (a new installation), remove the old line: {removal}",
        hop,
    )


def host_key_revoked(hop: route.Hop, title: str, shown: str, where: str) -> errors.Problem:
    return _problem(
        "host-key-revoked",
        f"{title} shows a revoked key: {shown}, revoked at {where}",
        "do not use this machine before it has new host keys",
        hop,
    )


def _words(error: BaseException) -> str:
    return noise.plain(str(error)) or type(error).__name__


def _problem(code: str, message: str, hint: str, hop: route.Hop) -> errors.Problem:
    return errors.Problem(code, message, hint=hint, hop=hop.label)
