"""Fetching the keys that hosts show and recording them, against real servers."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.unit.link import sshd
from wattherd import errors
from wattherd.link import hostkeys, keys, trust


def _fetch(ground: sshd.Ground, name: str) -> list[trust.Found]:
    return trust.fetch(ground.route(name), ground.library(), now=sshd.NOW)


def _states(found: list[trust.Found]) -> dict[str, str]:
    return {one.key_type: one.state for one in found}


def test_an_unknown_host_shows_all_its_keys_and_is_known_afterwards(ground: sshd.Ground) -> None:
    server = ground.start("titan", kinds=("ed25519", "ecdsa", "rsa"), known=False)
    found = _fetch(ground, "titan")
    assert _states(found) == {"ssh-ed25519": "unknown", "ecdsa-sha2-nistp256": "unknown", "ssh-rsa": "unknown"}
    assert {one.line + "\n" for one in found} == {server.known(index) for index in range(3)}
    assert {one.fingerprint for one in found} == {hostkeys.fingerprint(keys.KeyFiles().public(key)) for key in server.host_keys}
    assert {one.hop for one in found} == {"titan"}
    assert trust.record(ground.project, found) == found
    link = ground.open("titan")
    assert [way("echo in").receive(20) for way in (link.run, link.bulk)] == [b"in\n", b"in\n"]
    link.close()
    assert not any("Accepted" in line and "preauth" in line for line in server.log)


def test_fetching_logs_in_nowhere(ground: sshd.Ground) -> None:
    server = ground.start("titan", known=False)
    ground.authorized.write_text("")
    assert _states(_fetch(ground, "titan")) == {"ssh-ed25519": "unknown"}
    assert not any("Failed" in line for line in server.log)


def test_a_known_host_is_known_and_its_further_keys_may_be_added(ground: sshd.Ground) -> None:
    server = ground.start("titan", kinds=("ed25519", "rsa"), known=False)
    ground.know(server.known(1))
    assert _states(_fetch(ground, "titan")) == {"ssh-rsa": "known", "ssh-ed25519": "unknown"}


def test_a_changed_key_is_refused_and_replaced_only_when_told_so(ground: sshd.Ground) -> None:
    server = ground.start("titan", known=False)
    other = sshd.public_line(sshd.make_key(ground.home / "other", "rsa"))
    ground.project.parent.mkdir()
    before = f"# mine\n{server.token},elsewhere {other} comment\nelsewhere {other}\n@revoked * {other}\n"
    ground.project.write_text(before)
    found = _fetch(ground, "titan")
    assert [(one.state, one.where) for one in found] == [("changed", (f"{ground.project}:2",))]
    with pytest.raises(errors.Problem) as caught:
        trust.record(ground.project, found)
    assert caught.value.code == "host-key-changed"
    assert f"{ground.project}:2" in caught.value.message
    assert ground.project.read_text() == before
    assert trust.record(ground.project, found, replace=True) == found
    assert ground.project.read_text() == f"# mine\nelsewhere {other} comment\nelsewhere {other}\n@revoked * {other}\n{server.known()}"
    assert _states(_fetch(ground, "titan")) == {"ssh-ed25519": "known"}


def test_a_revoked_key_is_never_recorded(ground: sshd.Ground) -> None:
    server = ground.start("titan", known=False)
    ground.know(f"@revoked * {sshd.public_line(server.host_keys[0])}\n")
    found = _fetch(ground, "titan")
    assert _states(found) == {"ssh-ed25519": "revoked"}
    assert trust.record(ground.project, found, replace=True) == []


def test_the_first_jump_host_that_is_not_trusted_is_shown_first(ground: sshd.Ground) -> None:
    outer = ground.start("outer")
    inner = ground.start("inner", known=False)
    target = ground.start("titan", "ProxyJump outer,inner", known=False)
    first = _fetch(ground, "titan")
    assert [(one.hop, one.line + "\n") for one in first] == [(f"the jump host inner (127.0.0.1:{inner.port})", inner.known())]
    trust.record(ground.project, first)
    second = _fetch(ground, "titan")
    assert [one.line + "\n" for one in second] == [target.known()]
    ground.known_hosts.write_text("")
    assert [one.line + "\n" for one in _fetch(ground, "titan")] == [outer.known()]


def test_keys_come_through_a_proxy_command(ground: sshd.Ground) -> None:
    ground.start("bastion")
    server = ground.start("titan", f"ProxyCommand ssh -F {ground.config} -W %h:%p bastion", known=False, kinds=("ed25519", "ecdsa"))
    assert {one.line + "\n" for one in _fetch(ground, "titan")} == {server.known(0), server.known(1)}


def test_a_signed_host_is_known_by_its_authority(ground: sshd.Ground) -> None:
    certificate = ground.home / "titan" / "host_ed25519-cert.pub"
    server = ground.start("titan", options=[f"HostCertificate {certificate}"], known=False)
    authority = sshd.make_key(ground.home / "ca")
    sshd.keygen("-s", authority, "-I", "host", "-h", "-n", "127.0.0.1", f"{server.host_keys[0]}.pub")
    server.restart()
    ground.know(f"@cert-authority * {sshd.public_line(authority)}\n")
    found = _fetch(ground, "titan")
    assert [(one.state, one.line + "\n") for one in found] == [("known", server.known())]


def test_an_alias_is_recorded_as_the_name(ground: sshd.Ground) -> None:
    ground.start("titan", "HostKeyAlias the-titan", known=False)
    found = _fetch(ground, "titan")
    assert {one.name for one in found} == {"the-titan"}
    trust.record(ground.project, found)
    ground.open("titan").close()


def test_a_host_that_is_not_there_is_a_problem(ground: sshd.Ground) -> None:
    ground.host("titan", "HostName 127.0.0.1", f"Port {sshd.free_port()}")
    with pytest.raises(errors.Problem) as caught:
        _fetch(ground, "titan")
    assert caught.value.code == "unreachable"


def _found(number: int, state: hostkeys.State = "unknown") -> trust.Found:
    return trust.Found(f"host{number}", f"host{number}", "ssh-ed25519", f"AAAA{number}", "SHA256:x", state)


def test_recording_twice_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state" / "known_hosts"
    assert len(trust.record(path, [_found(1), _found(2), _found(1)])) == 3
    status = path.stat()
    assert trust.record(path, [_found(1), _found(2)]) == []
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (status.st_mtime_ns, status.st_ino)
    assert path.read_text() == "host1 ssh-ed25519 AAAA1\nhost2 ssh-ed25519 AAAA2\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_recording_from_many_threads_loses_no_line(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    threads = [threading.Thread(target=trust.record, args=(path, [_found(number)])) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(path.read_text().splitlines()) == sorted(_found(number).line for number in range(20))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["known_hosts", "known_hosts.lock"]


def test_a_file_without_a_last_line_end_keeps_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text("old ssh-ed25519 AAAA")
    trust.record(path, [_found(1)])
    assert path.read_text() == "old ssh-ed25519 AAAA\nhost1 ssh-ed25519 AAAA1\n"


def test_known_keys_are_not_written(tmp_path: Path) -> None:
    assert trust.record(tmp_path / "known_hosts", [_found(1, "known")]) == []
    assert not (tmp_path / "known_hosts").exists()
