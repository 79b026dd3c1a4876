"""Real sshd processes on the loopback, each with keys, folder and port of its own, and the ssh configuration that leads to them."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from wattherd.link import hostkeys, resolve, route, ssh

USER = pwd.getpwuid(os.getuid()).pw_name
NOW = 1_900_000_000.0
_START_S = 20.0
_TRIES = 5


def program() -> str:
    found = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if not found:
        pytest.fail("these tests need a real sshd: apt install openssh-server")
    return found


def keygen(*arguments: object) -> str:
    done = subprocess.run(["ssh-keygen", "-q", *map(str, arguments)], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.stdout


def make_key(path: Path, kind: str = "ed25519", *, passphrase: str = "", form: tuple[str, ...] = ()) -> Path:
    keygen("-t", kind, "-N", passphrase, "-C", path.name, *form, "-f", path)
    return path


def public_line(key: Path) -> str:
    """Type and base64 of a key's public half."""
    return " ".join(Path(f"{key}.pub").read_text().split()[:2])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def signal_process(number: int) -> None:
    """ProcessLookupError when there is no such process."""
    os.kill(number, 0)


class Server:
    """One sshd. It listens as soon as the constructor returns."""

    def __init__(self, folder: Path, authorized: Path, host_keys: Iterable[Path], options: Iterable[str]) -> None:
        self.host_keys = tuple(host_keys)
        self.log: list[str] = []
        self._folder = folder
        self._authorized = authorized
        self._options = tuple(options)
        for _ in range(_TRIES):
            self.port = free_port()
            if self._start():
                return
        pytest.fail(f"sshd did not start: {''.join(self.log)}")

    @property
    def token(self) -> str:
        return f"[127.0.0.1]:{self.port}"

    def known(self, index: int = 0) -> str:
        """The line of known_hosts that vouches for it."""
        return f"{self.token} {public_line(self.host_keys[index])}\n"

    def restart(self) -> None:
        """Let it read its files again, at the same port."""
        self.stop()
        if not self._start():
            pytest.fail(f"sshd did not start again: {''.join(self.log)}")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)

    def _start(self) -> bool:
        config = self._folder / "sshd_config"
        lines = [
            *self._options,
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            *(f"HostKey {key}" for key in self.host_keys),
            f"AuthorizedKeysFile {self._authorized}",
            *("PidFile none", "UsePAM no", "StrictModes no", "UseDNS no", "PrintMotd no", "MaxStartups 100", "LogLevel INFO"),
            *("PasswordAuthentication no", "KbdInteractiveAuthentication no", "PermitRootLogin prohibit-password"),
        ]
        config.write_text("\n".join(lines) + "\n")
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self.process = subprocess.Popen(
            [program(), "-D", "-e", "-f", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        told = threading.Event()
        threading.Thread(target=self._read, args=(self.process, told), daemon=True).start()
        return told.wait(_START_S) and self.process.poll() is None

    def _read(self, process: subprocess.Popen[str], told: threading.Event) -> None:
        """Sessions hold the stream open beyond the server's own end."""
        assert process.stderr
        with process.stderr as lines:
            for line in lines:
                self.log.append(line)
                if "Server listening" in line:
                    told.set()
        told.set()


@dataclass(frozen=True)
class Wanted:
    """What an inventory would say: the attributes of resolve.Wanted."""

    host: str
    port: int | None = None
    user: str | None = None
    private_key: str | None = None
    ssh_args: tuple[str, ...] = ()
    timeout_s: float | None = None


@dataclass
class Ground:
    """Where one test plays: a home folder with a key, an ssh configuration, known hosts, and the servers it started."""

    home: Path
    servers: list[Server] = field(default_factory=list)
    _blocks: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        make_key(self.key)
        self.authorized.write_text(f"{public_line(self.key)}\n")
        self.known_hosts.touch()
        self._write()

    @property
    def key(self) -> Path:
        return self.home / "id"

    @property
    def authorized(self) -> Path:
        return self.home / "authorized_keys"

    @property
    def known_hosts(self) -> Path:
        return self.home / "known_hosts"

    @property
    def project(self) -> Path:
        return self.home / "state" / "known_hosts"

    @property
    def config(self) -> Path:
        return self.home / "ssh_config"

    def start(self, name: str, *lines: str, options: Iterable[str] = (), kinds: Iterable[str] = ("ed25519",), known: bool = True) -> Server:
        """A server that ssh calls `name`. `lines` go into its Host block."""
        folder = self.home / name
        folder.mkdir()
        keys = [make_key(folder / f"host_{kind}", kind) for kind in kinds]
        server = Server(folder, self.authorized, keys, options)
        self.servers.append(server)
        if known:
            self.know(server.known())
        self.host(name, "HostName 127.0.0.1", f"Port {server.port}", *lines)
        return server

    def host(self, name: str, *lines: str) -> None:
        self._blocks.append("\n  ".join((f"Host {name}", *lines)))
        self._write()

    def know(self, text: str) -> None:
        with self.known_hosts.open("a") as handle:
            handle.write(text)

    def resolver(self, **environ: str) -> resolve.Resolver:
        return resolve.Resolver(self.config, {"HOME": str(self.home), "PATH": os.environ["PATH"], **environ})

    def route(self, wanted: str | Wanted) -> route.Route:
        said = Wanted(wanted) if isinstance(wanted, str) else wanted
        return self.resolver().resolve(said, said.host)

    def library(self) -> hostkeys.Library:
        return hostkeys.Library(self.project)

    def open(self, wanted: str | Wanted, limit_s: float = 10.0) -> ssh.SshLink:
        return ssh.open_link(self.route(wanted), self.library(), now=NOW, connect_timeout_s=limit_s)

    def close(self) -> None:
        for server in self.servers:
            server.stop()

    def _write(self) -> None:
        common = f"""Host *
  User {USER}
  IdentityFile {self.key}
  IdentityAgent none
  UserKnownHostsFile {self.known_hosts}
  GlobalKnownHostsFile /dev/null
"""
        self.config.write_text("\n".join((*self._blocks, common)))
