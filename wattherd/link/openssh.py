"""The bulk way: the ssh program with a configuration of our own, for bytes that are too many for SSH in Python.

Owns that configuration: key, known hosts and time limit stand in it for every machine of the route, so that a jump host inherits nothing
by accident and asks nothing. Logs in with the keys that the control session found to work.
"""

from __future__ import annotations

import base64
import itertools
import math
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wattherd import errors
from wattherd.link import algorithms, certificates, keys, noise, process, route, transport

_TARGET = "wattherd-target"
_FAILED = 255
_ALIVE_S = 15
_ALIVE_TRIES = 4
_COMMON = f"""\
Host *
  BatchMode yes
  StrictHostKeyChecking yes
  UpdateHostKeys no
  VerifyHostKeyDNS no
  PreferredAuthentications publickey
  IdentitiesOnly yes
  NumberOfPasswordPrompts 0
  ControlMaster no
  ControlPath none
  ForwardAgent no
  ForwardX11 no
  ClearAllForwardings yes
  PermitLocalCommand no
  RequestTTY no
  EscapeChar none
  Compression no
  ServerAliveInterval {_ALIVE_S}
  ServerAliveCountMax {_ALIVE_TRIES}
"""

#: What ssh says and what it means, the telling lines first. A changed key is also "not verified".
_MEANINGS = (
    (r"REVOKED HOST KEY", "host-key-revoked"),
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED", "host-key-changed"),
    (r"Host key verification failed|No \S+ host key is known", "host-key-unknown"),
    (r"Permission denied|Too many authentication failures", "auth-failed"),
    (r"stdio forwarding failed|administratively prohibited|open failed", "jump-failed"),
    (r"not responding|Connection reset|Broken pipe|closed by remote host|Connection to \S+ closed", "stream-cut"),
    (r"[Cc]onnection timed out|Operation timed out|timed out during banner", "connect-timeout"),
    (r"Could not resolve|Connection refused|No route to host|Network is unreachable|kex_exchange|Connection closed by", "unreachable"),
)
_ENDED_BY_HOST = re.compile(r"Connection to [^\n]+ closed by remote host\.\r\n\Z")


class Bulk:
    """Starts ssh for one link. Its files live in a folder that only this user can read, until close()."""

    def __init__(self, path: route.Route, logins: tuple[keys.Login, ...], project: Path, limits_s: tuple[float, ...]) -> None:
        self._path = path
        self._folder = Path(tempfile.mkdtemp(prefix="wattherd-ssh-"))
        self._config = self._folder / "config"
        self._numbers = itertools.count(1)
        self._channels: list[process.ProcessChannel] = []
        stages = [
            Stage(hop, login, self._public_file(index, login), limit_s)
            for index, (hop, login, limit_s) in enumerate(zip(path.machines, logins, limits_s, strict=True))
        ]
        text = config(stages, project, path.client_kex, fast_aes=algorithms.has_fast_aes())
        self._config.touch(mode=0o600)
        self._config.write_text(text, encoding="utf-8")

    def run(self, command: str) -> transport.Channel:
        log = self._folder / f"log-{next(self._numbers)}"
        title = self._path.title(self._path.target)
        argv = ["ssh", "-F", str(self._config), "-E", str(log), "-T", "--", _TARGET, command]

        def explain(status: int, stderr: bytes) -> errors.Problem | None:
            said = log.read_bytes() if status == _FAILED and log.exists() else b""
            return meaning(said, stderr, self._path) if status == _FAILED else None

        try:
            channel = process.ProcessChannel(argv, title, explain=explain)
        except FileNotFoundError as error:
            raise errors.Problem("ssh-config", "the program ssh is not installed here", hint="apt install openssh-client") from error
        self._channels.append(channel)
        return channel

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _public_file(self, index: int, login: keys.Login) -> Path | None:
        """The public half of a key that only the agent has: ssh takes it as the name of that key."""
        if not login.agent_key:
            return None
        target = self._folder / f"key-{index}.pub"
        target.write_text(f"{certificates.blob_type(login.agent_key)} {base64.b64encode(login.agent_key).decode()}\n", encoding="ascii")
        return target


@dataclass(frozen=True)
class Stage:
    """One machine as ssh shall reach it. `agent_file` is the public half of a key that the agent holds."""

    hop: route.Hop
    login: keys.Login
    agent_file: Path | None
    limit_s: float


def config(stages: Sequence[Stage], project: Path, client_kex: Sequence[str], *, fast_aes: bool) -> str:
    """The text of the configuration file: a block for each machine, the last being the target, then what holds for all."""
    kex, ciphers = algorithms.bulk_kex(client_kex), algorithms.bulk_ciphers(fast_aes=fast_aes)
    blocks = []
    for index, stage in enumerate(stages):
        name = _TARGET if index == len(stages) - 1 else f"wattherd-hop-{index}"
        lines = [f"Host {name}", *(f"  {line}" for line in _machine(stage, project, kex, ciphers))]
        # VERBOSE tells of the login, and goes into a file for the target; the ssh of a jump host would speak on the command's stderr.
        lines.append(f"  LogLevel {'VERBOSE' if name == _TARGET else 'ERROR'}")
        if index:
            lines.append(f"  ProxyJump wattherd-hop-{index - 1}")
        blocks.append("\n".join(lines) + "\n")
    return "\n".join((*blocks, _COMMON))


def meaning(said: bytes, stderr: bytes, path: route.Route) -> errors.Problem | None:
    """What went wrong when ssh ended with 255; None when that was the command's own exit status.

    ssh speaks into a file apart from the command's stderr. Two things come on stderr all the same: what the ssh of a jump host says (it is
    a child, and counts only until the login), and the one line that tells of an end that the host made.
    """
    before, login, after = said.decode("utf-8", "replace").partition("Authenticated to ")
    heard = stderr.decode("utf-8", "replace")
    ending = _ENDED_BY_HOST.search(heard)
    text = after + (ending.group() if ending else "") if login else before + heard
    code = next((code for pattern, code in _MEANINGS if re.search(pattern, text)), "" if login else "bulk-failed")
    if not code:
        return None
    names = {hop: (hop.hostname, hop.host_key_alias) for hop in path.hops}
    blamed = next((hop for hop, known in names.items() if any(name and name in text for name in known)), path.target)
    last = text.strip().splitlines()[-3:]
    return errors.Problem(
        code,
        f"{path.title(blamed)}: ssh ended with: {noise.describe('; '.join(last).encode())}",
        hint="the control session got through a moment ago: run again; if it stays, try ssh by hand with -v",
        hop=blamed.label,
    )


def _machine(stage: Stage, project: Path, kex: Sequence[str], ciphers: Sequence[str]) -> list[str]:
    hop = stage.hop
    key = stage.agent_file or stage.login.private_key
    lines = [
        f"HostName {_word(hop.hostname)}",
        f"Port {hop.port}",
        f"User {_word(hop.user)}",
        f"ConnectTimeout {max(1, math.ceil(stage.limit_s))}",
        f"AddressFamily {hop.address_family}",
        "UserKnownHostsFile " + " ".join(_word(file) for file in dict.fromkeys((*hop.known_hosts, project))),
        "GlobalKnownHostsFile /dev/null",
        f"IdentityFile {_word(key) if key else 'none'}",
        f"IdentityAgent {_word(hop.agent) if stage.agent_file else 'none'}",
        "KexAlgorithms " + ",".join(hop.kex_algorithms or kex),
        "Ciphers " + ",".join(hop.ciphers or ciphers),
    ]
    if stage.login.certificate:
        lines.append(f"CertificateFile {_word(stage.login.certificate)}")
    if hop.host_key_alias:
        lines.append(f"HostKeyAlias {_word(hop.host_key_alias)}")
    if hop.host_key_algorithms:
        lines.append("HostKeyAlgorithms " + ",".join(hop.host_key_algorithms))
    if hop.revoked_keys:
        lines.append(f"RevokedHostKeys {_word(hop.revoked_keys)}")
    if hop.proxy_command:
        lines.append("ProxyCommand " + _checked(hop.proxy_command).replace("%", "%%"))
    return lines


def _word(value: str | Path) -> str:
    """One quoted word of ssh_config: percent tokens stand for themselves, and nothing ends the line."""
    text = _checked(str(value)).replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _checked(text: str) -> str:
    if not text.isprintable() or "${" in text:
        raise errors.Problem("ssh-config", f"{noise.plain(text)!r} cannot stand in an ssh configuration", hint="rename that file or value")
    return text
