"""Whom the link lets in and whom it refuses, against real servers."""

from __future__ import annotations

import contextlib
import logging
import shlex
import socket
import threading
import time
from collections.abc import Iterator
from concurrent import futures

import paramiko
import pytest
from paramiko import common

from tests.unit.link import sshd
from wattherd import errors
from wattherd.link import hostkeys, keys, noise, ssh


def _refusal(ground: sshd.Ground, wanted: str | sshd.Wanted, limit_s: float = 10.0) -> errors.Problem:
    with pytest.raises(errors.Problem) as caught:
        ground.open(wanted, limit_s).close()
    return caught.value


def _runs(ground: sshd.Ground, wanted: str | sshd.Wanted) -> bool:
    """Whether both ways into a host work."""
    link = ground.open(wanted)
    try:
        return all(way("echo through").receive(20) == b"through\n" for way in (link.run, link.bulk))
    finally:
        link.close()


def _sign(ground: sshd.Ground, server: sshd.Server, *options: str) -> None:
    """Give a server a certificate for its host key, signed by the ground's own authority."""
    authority = ground.home / "ca"
    if not authority.exists():
        sshd.make_key(authority)
    sshd.keygen("-s", authority, "-I", "host", "-h", *options, f"{server.host_keys[0]}.pub")


def test_a_known_host_with_a_good_key_runs_a_command(ground: sshd.Ground) -> None:
    ground.start("titan")
    link = ground.open("titan")
    channel = link.run("printf 'a\\0b\\r\\n'; printf oops >&2; exit 3")
    assert channel.receive(10) == b"a\0b\r\n"
    assert channel.receive(10) == b""
    assert channel.exit_status() == 3
    assert channel.stderr() == b"oops"
    link.close()


def test_the_project_s_own_file_makes_a_host_known(ground: sshd.Ground) -> None:
    server = ground.start("titan", known=False)
    ground.project.parent.mkdir()
    ground.project.write_text(server.known())
    assert _runs(ground, "titan")


def test_an_unknown_key_is_refused_with_the_command_that_records_it(ground: sshd.Ground) -> None:
    server = ground.start("titan", known=False)
    problem = _refusal(ground, "titan")
    assert problem.code == "host-key-unknown"
    assert "invoke trust --hosts titan" in problem.hint
    assert hostkeys.fingerprint(keys.KeyFiles().public(server.host_keys[0])) in problem.message


def test_checking_cannot_be_switched_off(ground: sshd.Ground) -> None:
    ground.start("titan", "StrictHostKeyChecking no", known=False)
    assert _refusal(ground, sshd.Wanted("titan", ssh_args=("-o", "StrictHostKeyChecking=no"))).code == "host-key-unknown"
    assert ground.known_hosts.read_text() == ""


def test_a_changed_key_is_refused_with_both_fingerprints_and_the_line(ground: sshd.Ground) -> None:
    server = ground.start("titan", known=False)
    other = sshd.make_key(ground.home / "other")
    ground.know(f"# a comment\n{server.token} {sshd.public_line(other)}\n")
    problem = _refusal(ground, "titan")
    assert problem.code == "host-key-changed"
    for key in (server.host_keys[0], other):
        assert hostkeys.fingerprint(keys.KeyFiles().public(key)) in problem.message
    assert f"{ground.known_hosts}:2" in problem.message
    assert f"ssh-keygen -R '{server.token}' -f {ground.known_hosts}" in problem.hint
    assert "invoke trust" not in problem.hint


def test_a_host_known_by_another_kind_of_key_has_changed(ground: sshd.Ground) -> None:
    server = ground.start("titan", known=False)
    ground.know(f"{server.token} {sshd.public_line(sshd.make_key(ground.home / 'other', 'ecdsa'))}\n")
    assert _refusal(ground, "titan").code == "host-key-changed"


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_the_kind_of_key_that_is_known_is_the_one_asked_for(ground: sshd.Ground, kind: str) -> None:
    kinds = ("ed25519", "ecdsa", "rsa")
    server = ground.start("titan", kinds=kinds, known=False)
    ground.know(server.known(kinds.index(kind)))
    assert _runs(ground, "titan")


def test_a_revoked_key_is_refused_even_where_it_is_known(ground: sshd.Ground) -> None:
    server = ground.start("titan")
    ground.know(f"@revoked * {sshd.public_line(server.host_keys[0])}\n")
    problem = _refusal(ground, "titan")
    assert problem.code == "host-key-revoked"
    assert f"{ground.known_hosts}:2" in problem.message


@pytest.mark.parametrize("form", ["text", "binary"])
def test_a_key_on_the_user_s_own_list_of_revoked_keys_is_refused(ground: sshd.Ground, form: str) -> None:
    listed = ground.home / "revoked"
    server = ground.start("titan", f"RevokedHostKeys {listed}")
    if form == "text":
        listed.write_text(f"{sshd.public_line(server.host_keys[0])}\n")
    else:
        sshd.keygen("-k", "-f", listed, f"{server.host_keys[0]}.pub")
    assert _refusal(ground, "titan").code == "host-key-revoked"


def test_a_signed_host_key_needs_no_line_of_its_own(ground: sshd.Ground) -> None:
    certificate = ground.home / "titan" / "host_ed25519-cert.pub"
    server = ground.start("titan", options=[f"HostCertificate {certificate}"], known=False)
    _sign(ground, server, "-n", "127.0.0.1")
    ground.know(f"@cert-authority [127.0.0.1]:* {sshd.public_line(ground.home / 'ca')}\n")
    server.restart()
    assert _runs(ground, "titan")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("-n", "127.0.0.1", "-V", "20200101:20210101"), "it expired at 2021-01-01"),
        (("-n", "127.0.0.1", "-V", "20900101:20910101"), "it is valid only from 20"),
        (("-n", "elsewhere"), "it is for elsewhere, not for 127.0.0.1"),
        ((), "it names no host"),
    ],
)
def test_a_certificate_that_does_not_hold_is_refused_with_the_reason(ground: sshd.Ground, options: tuple[str, ...], reason: str) -> None:
    certificate = ground.home / "titan" / "host_ed25519-cert.pub"
    server = ground.start("titan", options=[f"HostCertificate {certificate}"], known=False)
    _sign(ground, server, *options)
    ground.know(f"@cert-authority * {sshd.public_line(ground.home / 'ca')}\n")
    server.restart()
    problem = _refusal(ground, "titan")
    assert problem.code == "host-key-unknown"
    assert reason in problem.message
    assert "invoke trust" not in problem.hint


def test_a_hashed_line_with_its_port_is_found(ground: sshd.Ground) -> None:
    ground.start("titan")
    sshd.keygen("-H", "-f", ground.known_hosts)
    assert ground.known_hosts.read_text().startswith("|1|")
    assert _runs(ground, "titan")


def test_an_alias_is_looked_up_without_the_port(ground: sshd.Ground) -> None:
    server = ground.start("titan", "HostKeyAlias The-Titan", known=False)
    ground.know(f"the-titan {sshd.public_line(server.host_keys[0])}\n")
    assert _runs(ground, "titan")


def test_a_wrong_user_is_told_with_the_keys_that_were_tried(ground: sshd.Ground) -> None:
    ground.start("titan")
    problem = _refusal(ground, sshd.Wanted("titan", user="nobody-of-that-name"))
    assert problem.code == "auth-failed"
    assert "nobody-of-that-name" in problem.message
    assert str(ground.key) in problem.message
    assert "no agent" in problem.message


def test_a_key_that_is_not_authorized_is_told(ground: sshd.Ground) -> None:
    ground.start("titan")
    ground.authorized.write_text("")
    problem = _refusal(ground, "titan")
    assert problem.code == "auth-failed"
    assert "it takes publickey" in problem.message


def test_without_any_key_the_hint_is_to_make_one(ground: sshd.Ground) -> None:
    ground.start("titan", "IdentityFile none")
    ground.key.rename(ground.home / "moved")
    problem = _refusal(ground, "titan")
    assert problem.code == "auth-failed"
    assert "there was no key to offer" in problem.message
    assert "ssh-keygen" in problem.hint


def test_a_closed_port_is_unreachable(ground: sshd.Ground) -> None:
    ground.host("titan", "HostName 127.0.0.1", f"Port {sshd.free_port()}")
    problem = _refusal(ground, "titan")
    assert problem.code == "unreachable"
    assert "refuses connections" in problem.message


def test_a_name_without_an_address_is_unreachable(ground: sshd.Ground) -> None:
    problem = _refusal(ground, "titan.invalid", limit_s=5)
    assert problem.code == "unreachable"
    assert "titan.invalid" in problem.message


def test_a_listener_that_never_speaks_costs_no_more_than_the_limit(ground: sshd.Ground) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ground.host("titan", "HostName 127.0.0.1", f"Port {listener.getsockname()[1]}")
        started_s = time.monotonic()
        problem = _refusal(ground, "titan", limit_s=1.0)
        took_s = time.monotonic() - started_s
    assert problem.code == "connect-timeout"
    assert 0.9 < took_s < 2.5


def test_a_full_backlog_that_swallows_connections_costs_no_more_than_the_limit(ground: sshd.Ground) -> None:
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for taker in (first, second):
            taker.setblocking(False)
            taker.connect_ex(listener.getsockname())
        ground.host("titan", "HostName 127.0.0.1", f"Port {listener.getsockname()[1]}")
        started_s = time.monotonic()
        problem = _refusal(ground, "titan", limit_s=1.0)
        took_s = time.monotonic() - started_s
    assert problem.code == "connect-timeout"
    assert took_s < 3


def test_a_port_that_speaks_something_else_is_named(ground: sshd.Ground) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            end, _ = listener.accept()
            with end:
                end.sendall(b"220 mail.example ESMTP \x1b[31m\r\n" * 101)
                end.recv(1)

        threading.Thread(target=greet, daemon=True).start()
        ground.host("titan", "HostName 127.0.0.1", f"Port {listener.getsockname()[1]}")
        problem = _refusal(ground, "titan", limit_s=5)
    assert problem.code == "unreachable"
    assert "220 mail.example" in problem.message
    assert "\x1b" not in problem.message


def test_a_host_that_hangs_up_at_once_is_unreachable(ground: sshd.Ground) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            listener.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        ground.host("titan", "HostName 127.0.0.1", f"Port {listener.getsockname()[1]}")
        problem = _refusal(ground, "titan", limit_s=5)
    assert problem.code == "unreachable"
    assert "MaxStartups" in problem.hint


def test_a_peer_that_talks_nonsense_after_its_banner_is_unreachable(ground: sshd.Ground) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def babble() -> None:
            end, _ = listener.accept()
            with end, contextlib.suppress(ConnectionError):
                end.sendall(b"SSH-2.0-Babble\r\n" + bytes(range(256)) * 8)
                while end.recv(4096):
                    pass

        threading.Thread(target=babble, daemon=True).start()
        ground.host("titan", "HostName 127.0.0.1", f"Port {listener.getsockname()[1]}")
        problem = _refusal(ground, "titan", 3)
    assert problem.code in {"unreachable", "connect-timeout"}


def test_a_host_that_wants_more_than_a_key_is_told(ground: sshd.Ground) -> None:
    ground.start("titan", options=["KbdInteractiveAuthentication yes", "AuthenticationMethods publickey,keyboard-interactive"])
    problem = _refusal(ground, "titan")
    assert problem.code == "auth-failed"
    assert "wants more: keyboard-interactive" in problem.message


def test_a_host_that_takes_no_keys_is_told(ground: sshd.Ground) -> None:
    ground.start("titan", options=["PasswordAuthentication yes", "PubkeyAuthentication no"])
    problem = _refusal(ground, "titan")
    assert problem.code == "auth-failed"
    assert "it takes password" in problem.message


class _Doorman(paramiko.ServerInterface):
    """An SSH server with an own idea of logins, which sshd has not: it lets in without a key, or never answers."""

    def __init__(self, *, lets_in: bool) -> None:
        self._lets_in = lets_in
        self.done = threading.Event()

    def get_allowed_auths(self, username: str) -> str:
        return f"none,publickey for {username}" if self._lets_in else "publickey"

    def check_auth_none(self, username: str) -> int:
        return common.AUTH_SUCCESSFUL if self._lets_in and username else common.AUTH_FAILED

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        if not self._lets_in and username and key:
            self.done.wait(30)
        return common.AUTH_FAILED


@contextlib.contextmanager
def _doorman(ground: sshd.Ground, *, lets_in: bool) -> Iterator[None]:
    key = paramiko.Ed25519Key.from_private_key_file(str(sshd.make_key(ground.home / "doorman")))
    keeper = _Doorman(lets_in=lets_in)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        ground.know(f"[127.0.0.1]:{port} {sshd.public_line(ground.home / 'doorman')}\n")
        ground.host("titan", "HostName 127.0.0.1", f"Port {port}")

        def serve() -> None:
            session = paramiko.Transport(listener.accept()[0])
            session.add_server_key(key)
            session.start_server(server=keeper, event=threading.Event())
            keeper.done.wait(30)
            session.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        keeper.done.set()
        thread.join(10)


def test_a_host_that_knows_its_peers_by_other_means_needs_no_key(ground: sshd.Ground) -> None:
    """As machines of a private mesh network do it."""
    with _doorman(ground, lets_in=True):
        link = ground.open("titan")
        assert link is not None
        link.close()


def test_a_login_that_is_never_answered_costs_no_more_than_the_limit(ground: sshd.Ground) -> None:
    with _doorman(ground, lets_in=False):
        started_s = time.monotonic()
        problem = _refusal(ground, "titan", 1.0)
        took_s = time.monotonic() - started_s
    assert (problem.code, "does not answer the login" in problem.message) == ("connect-timeout", True)
    assert took_s < 4


def test_a_jump_host_leads_to_a_host_and_both_keys_are_checked(ground: sshd.Ground) -> None:
    ground.start("bastion")
    server = ground.start("titan", "ProxyJump bastion")
    assert _runs(ground, "titan")
    ground.known_hosts.write_text(ground.servers[0].known())
    problem = _refusal(ground, "titan")
    assert (problem.code, problem.context["hop"]) == ("host-key-unknown", "titan")
    assert server.token in str(ground.route("titan").target.address) or server.port == ground.route("titan").target.port


def test_a_changed_key_of_a_jump_host_is_refused_and_named(ground: sshd.Ground) -> None:
    bastion = ground.start("bastion", known=False)
    ground.know(f"{bastion.token} {sshd.public_line(sshd.make_key(ground.home / 'other'))}\n")
    ground.start("titan", "ProxyJump bastion")
    problem = _refusal(ground, "titan")
    assert (problem.code, problem.context["hop"]) == ("host-key-changed", "bastion")
    assert "the jump host bastion" in problem.message
    assert not any("Accepted" in line for line in bastion.log)


def test_an_unknown_jump_host_is_refused_and_named(ground: sshd.Ground) -> None:
    ground.start("bastion", known=False)
    ground.start("titan", "ProxyJump bastion")
    problem = _refusal(ground, "titan")
    assert (problem.code, problem.context["hop"]) == ("host-key-unknown", "bastion")
    assert "invoke trust --hosts titan" in problem.hint


def test_two_jump_hosts_in_a_row_work_both_ways(ground: sshd.Ground) -> None:
    ground.start("outer")
    ground.start("inner")
    ground.start("titan", "ProxyJump outer,inner")
    assert _runs(ground, "titan")


def test_a_jump_host_that_lets_nothing_through_is_named(ground: sshd.Ground) -> None:
    ground.start("bastion", options=["AllowTcpForwarding no"])
    ground.start("titan", "ProxyJump bastion")
    problem = _refusal(ground, "titan")
    assert problem.code == "jump-failed"
    assert "the jump host bastion" in problem.message
    assert "AllowTcpForwarding" in problem.hint


def test_a_jump_host_that_cannot_reach_the_host_is_named(ground: sshd.Ground) -> None:
    ground.start("bastion")
    ground.host("titan", "HostName 127.0.0.1", f"Port {sshd.free_port()}", "ProxyJump bastion")
    problem = _refusal(ground, "titan")
    assert problem.code == "jump-failed"
    assert "cannot reach 127.0.0.1" in problem.message


def test_a_login_refused_by_a_jump_host_names_it(ground: sshd.Ground) -> None:
    ground.start("bastion", "User nobody-there")
    ground.start("titan", "ProxyJump bastion")
    problem = _refusal(ground, "titan")
    assert (problem.code, problem.context["hop"]) == ("auth-failed", "bastion")


def test_the_inventory_s_key_opens_the_jump_host_too(ground: sshd.Ground) -> None:
    """e08: ssh itself would give the jump host no key here."""
    key = sshd.make_key(ground.home / "inventory-key")
    ground.authorized.write_text(f"{sshd.public_line(key)}\n")
    ground.start("bastion")
    ground.start("titan", "ProxyJump bastion")
    assert _runs(ground, sshd.Wanted("titan", private_key=str(key)))


def test_a_proxy_command_works_both_ways(ground: sshd.Ground) -> None:
    ground.start("bastion")
    ground.start("titan", f"ProxyCommand ssh -F {ground.config} -W %h:%p bastion")
    assert _runs(ground, "titan")


def test_a_proxy_command_that_fails_tells_its_last_words_and_asks_nothing(ground: sshd.Ground) -> None:
    ground.start("bastion", known=False)
    ground.start("titan", f"ProxyCommand ssh -F {ground.config} -W %h:%p bastion")
    problem = _refusal(ground, "titan", limit_s=8)
    assert problem.code == "jump-failed"
    assert "Host key verification failed" in problem.message


def test_a_proxy_command_that_hangs_ends_in_time_and_is_gone(ground: sshd.Ground) -> None:
    witness = ground.home / "pid"
    ground.host("titan", f"ProxyCommand sh -c {shlex.quote(f'echo $$ > {witness}; exec sleep 1000')}")
    problem = _refusal(ground, "titan", limit_s=1.0)
    assert problem.code == "connect-timeout"
    with pytest.raises(ProcessLookupError):
        sshd.signal_process(int(witness.read_text()))


def test_an_algorithm_that_the_control_session_lacks_is_told_before_connecting(ground: sshd.Ground) -> None:
    ground.start("titan", "Ciphers chacha20-poly1305@openssh.com")
    problem = _refusal(ground, "titan")
    assert problem.code == "ssh-config"
    assert "chacha20-poly1305@openssh.com" in problem.message


def test_explicit_algorithms_are_kept(ground: sshd.Ground) -> None:
    ground.start("titan", "Ciphers aes256-ctr", "KexAlgorithms curve25519-sha256")
    assert _runs(ground, "titan")


def test_no_algorithm_in_common_is_told(ground: sshd.Ground) -> None:
    ground.start("titan", options=["Ciphers chacha20-poly1305@openssh.com"])
    problem = _refusal(ground, "titan")
    assert problem.code == "unreachable"
    assert "no algorithm in common" in problem.message


def test_what_a_login_prints_arrives_and_can_be_shown(ground: sshd.Ground) -> None:
    """e09: the noise stands before the command's own output; nothing of it can move the cursor of the reader's terminal."""
    noisy = r"""printf '\033[31mWARNING\033[0m: 3 updates\n'; exec sh -c "$SSH_ORIGINAL_COMMAND" """
    ground.start("titan", options=[f"ForceCommand {noisy}"])
    link = ground.open("titan")
    channel = link.run("echo marker")
    heard = b""
    while data := channel.receive(10):
        heard += data
    link.close()
    before, marker, _ = heard.partition(b"marker\n")
    assert marker
    assert noise.describe(before) == "ESC[31mWARNINGESC[0m: 3 updates"


def test_many_hosts_at_once_from_a_pool_of_threads(ground: sshd.Ground) -> None:
    ground.start("titan")
    library, files, path = ground.library(), keys.KeyFiles(), ground.route("titan")

    def visit(number: int) -> bytes:
        link = ssh.open_link(path, library, now=sshd.NOW, files=files, connect_timeout_s=30)
        try:
            return link.run(f"echo {number}").receive(30)
        finally:
            link.close()

    with futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(visit, range(24))) == [f"{number}\n".encode() for number in range(24)]


def test_no_threads_and_no_log_lines_stay_behind(
    ground: sshd.Ground, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    ground.start("titan", known=False)
    before = set(threading.enumerate())
    with caplog.at_level(logging.WARNING):
        assert _refusal(ground, "titan").code == "host-key-unknown"
        with socket.create_server(("127.0.0.1", 0)) as listener:
            ground.host("mute", "HostName 127.0.0.1", f"Port {listener.getsockname()[1]}")
            assert _refusal(ground, "mute", limit_s=0.5).code == "connect-timeout"
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive()
    assert not caplog.records
    assert capfd.readouterr().err == ""
