"""What `ssh -G` and the inventory together make of a host."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from tests.unit.link import sshd
from wattherd import errors
from wattherd.link import arguments, resolve, route


def _refusal(ground: sshd.Ground, wanted: str | sshd.Wanted) -> errors.Problem:
    with pytest.raises(errors.Problem) as caught:
        ground.route(wanted)
    return caught.value


def test_the_user_s_configuration_counts_with_include_and_match(ground: sshd.Ground) -> None:
    included = ground.home / "more"
    included.write_text("Match host titan.example\n  Port 2222\n  ConnectTimeout 7\n  HostKeyAlias Old-Titan\n")
    ground.host("titan", "HostName titan.example", "User carol", f"Include {included}")
    found = ground.route("titan").target
    assert (found.hostname, found.port, found.user, found.connect_timeout_s) == ("titan.example", 2222, "carol", 7.0)
    assert found.known_as == ("old-titan", 22)
    assert found.identities == (ground.key,)
    assert found.known_hosts == (ground.known_hosts, Path("/dev/null"))


def test_the_inventory_comes_before_the_configuration(ground: sshd.Ground) -> None:
    key = sshd.make_key(ground.home / "other key %x")
    ground.host("titan", "HostName 10.0.0.1", "Port 2222", "User carol", "ConnectTimeout 7")
    found = ground.route(sshd.Wanted("titan", port=2022, user="ops", private_key=str(key), timeout_s=3.0)).target
    assert (found.port, found.user, found.connect_timeout_s) == (2022, "ops", 3.0)
    assert found.identities == (key, ground.key)


def test_common_arguments_are_read_as_ssh_reads_them(ground: sshd.Ground) -> None:
    other = ground.home / "other_config"
    other.write_text(f"Host titan\n  HostName 10.9.9.9\n  IdentityFile {ground.key}\n")
    known = ground.home / "kh"
    words = ("-C", "-qTA", "-o", "ControlMaster=auto", "-oControlPersist=60s", "-F", str(other), "-p2200", "-l", "dave", "-4")
    found = ground.route(sshd.Wanted("titan", ssh_args=(*words, "-o", f"UserKnownHostsFile={known}", "-J", "none"))).target
    assert (found.hostname, found.port, found.user, found.address_family) == ("10.9.9.9", 2200, "dave", "inet")
    assert found.known_hosts[0] == known


@pytest.mark.parametrize(
    "words", [("-L", "80:x:80"), ("-W", "x:1"), ("elsewhere",), ("--",), ("-p",), ("-o", "User=a\nProxyCommand=b"), ("-N9",)]
)
def test_other_arguments_are_refused_by_name(words: tuple[str, ...]) -> None:
    with pytest.raises(errors.Problem) as caught:
        arguments.read(words, "titan")
    assert caught.value.code == "ssh-config"
    assert "titan" in caught.value.message


def test_what_ssh_does_not_accept_is_told_in_its_own_words(ground: sshd.Ground) -> None:
    problem = _refusal(ground, sshd.Wanted("titan", ssh_args=("-o", "NoSuchThing=yes")))
    assert problem.code == "ssh-config"
    assert "nosuchthing" in problem.message


def test_a_host_that_looks_like_an_option_stays_a_host(ground: sshd.Ground) -> None:
    assert _refusal(ground, "-oProxyCommand=touch x").code == "ssh-config"
    assert _refusal(ground, "").code == "ssh-config"
    assert _refusal(ground, "a\nb").code == "ssh-config"


def test_jump_hosts_are_resolved_in_the_same_way_and_in_order(ground: sshd.Ground) -> None:
    ground.host("inner", "HostName 10.0.0.2", "User ivy")
    ground.host("outer", "HostName 10.0.0.1", "Port 2201", "HostKeyAlias outer-alias")
    ground.host("titan", "HostName 10.0.0.3", "ProxyJump outer,bob@inner:2202,[fe80::1]:2203")
    found = ground.route("titan")
    assert [(hop.label, hop.hostname, hop.port, hop.user) for hop in found.machines] == [
        ("outer", "10.0.0.1", 2201, sshd.USER),
        ("bob@inner:2202", "10.0.0.2", 2202, "bob"),
        ("[fe80::1]:2203", "fe80::1", 2203, sshd.USER),
        ("titan", "10.0.0.3", 22, sshd.USER),
    ]
    assert found.title(found.hops[0]) == "the jump host outer (10.0.0.1:2201)"
    assert found.title(found.target) == "titan (10.0.0.3)"
    assert found.hops[0].known_as == ("outer-alias", 22)


def test_the_first_jump_host_may_stand_behind_another(ground: sshd.Ground) -> None:
    ground.host("gate", "HostName 10.0.0.1")
    ground.host("inner", "HostName 10.0.0.2", "ProxyJump gate")
    ground.host("titan", "HostName 10.0.0.3")
    assert [hop.label for hop in ground.route(sshd.Wanted("titan", ssh_args=("-J", "inner"))).machines] == ["gate", "inner", "titan"]


def test_a_later_jump_host_s_own_way_does_not_count(ground: sshd.Ground) -> None:
    """As in ssh: it is reached through the one before it."""
    ground.host("gate", "HostName 10.0.0.1")
    ground.host("inner", "HostName 10.0.0.2", "ProxyCommand nc %h %p")
    ground.host("titan", "HostName 10.0.0.3", "ProxyJump gate,inner")
    found = ground.route("titan")
    assert [hop.label for hop in found.machines] == ["gate", "inner", "titan"]
    assert [hop.proxy_command for hop in found.machines] == ["", "", ""]


def test_jump_hosts_in_a_circle_are_told(ground: sshd.Ground) -> None:
    ground.host("one", "ProxyJump two")
    ground.host("two", "ProxyJump one")
    problem = _refusal(ground, "one")
    assert problem.code == "ssh-config"
    assert "circle" in problem.message


def test_every_hop_gets_the_key_and_the_known_hosts_of_the_inventory(ground: sshd.Ground) -> None:
    """e08-jump-host-does-not-inherit"""
    key, known = sshd.make_key(ground.home / "k"), ground.home / "kh"
    ground.host("bastion", "HostName 10.0.0.1")
    found = ground.route(
        sshd.Wanted("titan", private_key=str(key), ssh_args=("-J", "bastion", "-o", f"UserKnownHostsFile={known}"), timeout_s=4.0)
    )
    assert [key in hop.identities for hop in found.machines] == [True, True]
    assert [hop.known_hosts[0] for hop in found.machines] == [known, known]
    assert [hop.connect_timeout_s for hop in found.machines] == [4.0, 4.0]


def test_a_proxy_command_is_expanded(ground: sshd.Ground) -> None:
    ground.host("titan", "HostName 10.0.0.1", "Port 2022", "ProxyCommand nc -X 5 -x proxy:1080 %h %p # %r %n 100%%")
    assert ground.route("titan").target.proxy_command == f"nc -X 5 -x proxy:1080 10.0.0.1 2022 # {sshd.USER} titan 100%"
    ground.host("atlas", "ProxyCommand nc %Z")
    assert "%Z" in _refusal(ground, "atlas").message


def test_tokens_and_homes_in_paths_are_expanded(ground: sshd.Ground) -> None:
    key = sshd.make_key(ground.home / f"key-{sshd.USER}-10.0.0.1")
    ground.host("titan", "HostName 10.0.0.1", "IdentityFile ${PLACE}/key-%r-%h", "IdentityAgent ~/agent", "UserKnownHostsFile ~/a ~/b")
    found = ground.resolver(PLACE=str(ground.home)).resolve(sshd.Wanted("titan"), "titan").target
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert key in found.identities
    assert found.agent == str(home / "agent")
    assert found.known_hosts[:2] == (home / "a", home / "b")


def test_the_default_keys_come_into_play_only_where_none_is_named(ground: sshd.Ground) -> None:
    assert ground.route("titan").target.default_identities == ()
    empty = ground.home / "empty"
    empty.touch()
    found = resolve.Resolver(empty).resolve(sshd.Wanted("titan"), "titan").target
    usual = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ssh"
    assert found.identities == ()
    assert {path.parent for path in found.default_identities} <= {usual}
    assert all(path.is_file() for path in found.default_identities)


@pytest.mark.parametrize(
    ("line", "environ", "agent"),
    [
        ("IdentityAgent none", {"SSH_AUTH_SOCK": "/a"}, ""),
        ("IdentityAgent SSH_AUTH_SOCK", {"SSH_AUTH_SOCK": "/a"}, "/a"),
        ("IdentityAgent $OTHER", {"SSH_AUTH_SOCK": "/a", "OTHER": "/b"}, "/b"),
        ("IdentityAgent ${OTHER}/c", {"OTHER": "/b"}, "/b/c"),
    ],
)
def test_the_agent_is_the_one_that_ssh_would_ask(ground: sshd.Ground, line: str, environ: dict[str, str], agent: str) -> None:
    ground.host("titan", line)
    assert ground.resolver(**environ).resolve(sshd.Wanted("titan"), "titan").target.agent == agent


def test_algorithms_count_only_where_they_are_given(ground: sshd.Ground) -> None:
    plain = ground.route("titan").target
    assert (plain.ciphers, plain.kex_algorithms, plain.host_key_algorithms) == ((), (), ())
    ground.host("atlas", "Ciphers aes256-ctr", "KexAlgorithms curve25519-sha256", "HostKeyAlgorithms ssh-ed25519")
    found = ground.route("atlas").target
    assert (found.ciphers, found.kex_algorithms, found.host_key_algorithms) == (("aes256-ctr",), ("curve25519-sha256",), ("ssh-ed25519",))


def test_paths_of_known_hosts_may_have_blanks(ground: sshd.Ground) -> None:
    ground.host("titan", 'UserKnownHostsFile "/a b/known hosts" /c', "GlobalKnownHostsFile none")
    assert ground.route("titan").target.known_hosts == (Path("/a b/known hosts"), Path("/c"))


def test_a_missing_key_of_the_inventory_is_told(ground: sshd.Ground) -> None:
    problem = _refusal(ground, sshd.Wanted("titan", private_key=str(ground.home / "absent")))
    assert problem.code == "ssh-config"
    assert "ansible_ssh_private_key_file" in problem.hint


def test_a_missing_ssh_is_told_with_its_package(ground: sshd.Ground) -> None:
    with pytest.raises(errors.Problem) as caught:
        resolve.Resolver(ground.config, {"PATH": str(ground.home)}).resolve(sshd.Wanted("titan"), "titan")
    assert caught.value.code == "ssh-config"
    assert "openssh-client" in caught.value.hint


def test_the_configuration_may_come_from_the_environment(ground: sshd.Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    ground.host("titan", "HostName 10.7.7.7")
    monkeypatch.setenv(resolve.CONFIG_VARIABLE, str(ground.config))
    assert resolve.resolve(sshd.Wanted("titan"), "titan").target.hostname == "10.7.7.7"


def test_addresses_of_both_kinds_read_well() -> None:
    def hop(hostname: str, port: int) -> route.Hop:
        return route.Hop("x", hostname, port, "u")

    assert [hop("::1", 22).address, hop("::1", 23).address, hop("a.b", 22).address, hop("a.b", 23).address] == [
        "[::1]",
        "[::1]:23",
        "a.b",
        "a.b:23",
    ]
