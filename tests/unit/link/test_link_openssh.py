"""The configuration that is written for ssh, and what ssh's own words mean."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.unit.link import sshd
from wattherd import errors
from wattherd.link import algorithms, keys, openssh, route

_SUPPORTED = ("ed", "ec", "rsa-sha2-512", "rsa-sha2-256")
_PATH = route.Route(
    "titan",
    (
        route.Hop("bastion", "10.0.0.1", 2201, "bob", known_hosts=(Path("/etc/one"),), proxy_command="nc 10.0.0.1 2201 100%"),
        route.Hop("inner", "10.0.0.2", 22, "ivy", host_key_alias="in", agent="/run/agent"),
    ),
    route.Hop("titan", "fe80::1%eth0", 22, "ops", known_hosts=(Path('/home/x y/known "hosts"'),), ciphers=("aes256-ctr",)),
)


def _config(path: route.Route, *logins: keys.Login, project: Path = Path("/state/known_hosts")) -> str:
    agent_files = [Path("/tmp/key.pub") if login.agent_key else None for login in logins]
    stages = [openssh.Stage(hop, login, file, 7.2) for hop, login, file in zip(path.machines, logins, agent_files, strict=True)]
    return openssh.config(stages, project, ("sntrup761x25519-sha512@openssh.com", "curve25519-sha256"), fast_aes=True)


def _asked(config: Path, host: str) -> dict[str, str]:
    """What the real ssh understands."""
    done = subprocess.run(["ssh", "-G", "-F", str(config), host], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


def test_ssh_understands_a_block_for_every_machine(tmp_path: Path) -> None:
    """e08: nothing is left to be inherited."""
    config = tmp_path / "config"
    logins = keys.Login(Path("/k/one")), keys.Login(agent_key=b"x"), keys.Login(Path("/k/a b%c"), certificate=Path("/k/cert.pub"))
    config.write_text(_config(_PATH, *logins))
    first, second, target = (_asked(config, name) for name in ("wattherd-hop-0", "wattherd-hop-1", "wattherd-target"))
    assert (first["hostname"], first["port"], first["user"], first["identityfile"]) == ("10.0.0.1", "2201", "bob", "/k/one")
    assert (first["userknownhostsfile"], first["globalknownhostsfile"]) == ("/etc/one /state/known_hosts", "/dev/null")
    assert (first["proxycommand"], second["proxyjump"], target["proxyjump"]) == (
        "nc 10.0.0.1 2201 100%%",
        "wattherd-hop-0",
        "wattherd-hop-1",
    )
    assert (second["identityfile"], second["identityagent"], second["hostkeyalias"]) == ("/tmp/key.pub", "/run/agent", "in")
    assert (target["hostname"], target["identityfile"], target["certificatefile"]) == ("fe80::1%eth0", "/k/a b%%c", "/k/cert.pub")
    assert target["userknownhostsfile"] == '/home/x y/known "hosts" /state/known_hosts'
    assert (target["ciphers"], first["ciphers"].split(",")[0]) == ("aes256-ctr", "aes128-gcm@openssh.com")
    assert first["kexalgorithms"].split(",")[0] == "curve25519-sha256"
    assert (first["loglevel"], target["loglevel"]) == ("ERROR", "VERBOSE")
    for block in (first, second, target):
        assert (block["stricthostkeychecking"], block["batchmode"], block["connecttimeout"]) == ("true", "yes", "8")
        assert (block["identitiesonly"], block["controlmaster"], block["forwardagent"], block["serveraliveinterval"]) == (
            "yes",
            "false",
            "no",
            "15",
        )
        assert block["updatehostkeys"] == "false"


@pytest.mark.parametrize("user", ["ops\nProxyCommand touch /tmp/x", "${HOME}", "a\tb"])
def test_nothing_can_leave_its_line(user: str) -> None:
    path = route.Route("titan", (), route.Hop("titan", "10.0.0.1", 22, user))
    with pytest.raises(errors.Problem) as caught:
        _config(path, keys.Login())
    assert caught.value.code == "ssh-config"


@pytest.mark.parametrize(
    ("said", "stderr", "code"),
    [
        (b"ssh: connect to host 10.0.0.3 port 22: Connection refused\r\n", b"", "unreachable"),
        (b"ssh: Could not resolve hostname x: Name or service not known\r\n", b"", "unreachable"),
        (b"ssh: connect to host 10.0.0.3 port 22: Connection timed out\r\n", b"", "connect-timeout"),
        (b"Connection timed out during banner exchange\r\n", b"", "connect-timeout"),
        (b"ops@10.0.0.3: Permission denied (publickey).\r\n", b"", "auth-failed"),
        (
            b"No ED25519 host key is known for x and you have requested strict checking.\r\nHost key verification failed.\r\n",
            b"",
            "host-key-unknown",
        ),
        (b"@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\r\nHost key verification failed.\r\n", b"", "host-key-changed"),
        (b"@ WARNING: REVOKED HOST KEY DETECTED! @\r\nHost key verification failed.\r\n", b"", "host-key-revoked"),
        (b"kex_exchange_identification: Connection closed by remote host\r\n", b"Permission denied (publickey).\r\n", "auth-failed"),
        (b"channel 0: open failed: connect failed: x\r\nstdio forwarding failed\r\n", b"", "jump-failed"),
        (b'Authenticated to x ([x]:22) using "publickey".\r\nTimeout, server x not responding.\r\n', b"", "stream-cut"),
        (b'Authenticated to x ([x]:22) using "publickey".\r\n', b"out\nConnection to x closed by remote host.\r\n", "stream-cut"),
        (b"something new\r\n", b"", "bulk-failed"),
        (b"", b"", "bulk-failed"),
        (b'Authenticated to x ([x]:22) using "publickey".\r\nTransferred: sent 1\r\n', b"Permission denied", None),
        (b'Authenticated to x ([x]:22) using "publickey".\r\n', b"Connection to x closed by remote host.\r\nmore", None),
    ],
)
def test_what_ssh_says_becomes_a_problem(said: bytes, stderr: bytes, code: str | None) -> None:
    found = openssh.meaning(said, stderr, _PATH)
    assert (found.code if found else None) == code


def test_the_machine_that_ssh_names_is_the_one_to_blame() -> None:
    found = openssh.meaning(b"Connection closed by UNKNOWN port 65535\r\n", b"bob@10.0.0.1: Permission denied (publickey).\r\n", _PATH)
    assert found
    assert found.context["hop"] == "bastion"
    assert "the jump host bastion" in found.message


def test_what_ssh_repeats_from_a_host_cannot_steer_a_terminal() -> None:
    found = openssh.meaning(b"banner \x1b[2J\r\n", b"", _PATH)
    assert found
    assert found.message.isprintable()


def test_the_processor_decides_which_cipher_comes_first(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    for line, fast in (("flags\t\t: fpu aes avx", True), ("Features\t: fp asimd aes", True), ("flags : fpu vaes", False), ("", False)):
        info.write_text(f"{line}\n")
        assert algorithms.has_fast_aes(info) is fast
    assert algorithms.has_fast_aes(tmp_path / "absent")
    assert algorithms.bulk_ciphers(fast_aes=True)[0] == "aes128-gcm@openssh.com"
    assert algorithms.bulk_ciphers(fast_aes=False)[0] == "chacha20-poly1305@openssh.com"


@pytest.mark.parametrize(
    ("known", "explicit", "expected"),
    [
        ((), (), _SUPPORTED),
        (("ssh-rsa",), (), ("rsa-sha2-512", "rsa-sha2-256", "ed", "ec")),
        (("ec", "ssh-dss"), (), ("ec", "ed", "rsa-sha2-512", "rsa-sha2-256")),
        (("ed",), ("ec", "nonsense"), ("ec",)),
        (
            ("-cert-v01@openssh.com", "ec"),
            (),
            (*(f"{name}-cert-v01@openssh.com" for name in _SUPPORTED), "ec", "ed", "rsa-sha2-512", "rsa-sha2-256"),
        ),
    ],
)
def test_the_order_of_host_keys(known: tuple[str, ...], explicit: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert algorithms.host_keys(_SUPPORTED, known, explicit) == expected


def test_a_jump_over_two_hosts_uses_each_one_s_own_key(ground: sshd.Ground) -> None:
    """e08, for real: three machines, three keys, none in an agent."""
    for name in ("outer", "inner", "titan"):
        sshd.make_key(ground.home / f"key-{name}")
    for name, jump in (("outer", ()), ("inner", ()), ("titan", ("ProxyJump outer,inner",))):
        mine = ground.home / f"authorized-{name}"
        mine.write_text(f"{sshd.public_line(ground.home / f'key-{name}')}\n")
        ground.start(name, f"IdentityFile {ground.home}/key-{name}", *jump, options=[f"AuthorizedKeysFile {mine}"])
    link = ground.open("titan")
    assert [way("echo in").receive(30) for way in (link.run, link.bulk)] == [b"in\n", b"in\n"]
    link.close()
