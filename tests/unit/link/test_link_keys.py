"""Which keys are offered, in which order, and what an agent adds."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.link import sshd
from wattherd import errors
from wattherd.link import keys, route


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[str]:
    """A real ssh-agent without keys; its socket."""
    # The path of a socket must be short.
    address = f"/tmp/wattherd-agent-{os.getpid()}"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", address], stdout=subprocess.PIPE, cwd=tmp_path)
    assert process.stdout
    process.stdout.readline()
    yield address
    process.terminate()
    process.wait(10)
    process.stdout.close()


def _add(agent: str, key: Path, passphrase: str = "") -> None:
    """ssh-add asks a program for the passphrase."""
    asker = key.with_name("ask")
    asker.write_text(f"#!/bin/sh\necho '{passphrase}'\n")
    asker.chmod(0o700)
    environ = {**os.environ, "SSH_AUTH_SOCK": agent, "SSH_ASKPASS": str(asker), "SSH_ASKPASS_REQUIRE": "force"}
    subprocess.run(["ssh-add", "-q", str(key)], env=environ, check=True, stdin=subprocess.DEVNULL, capture_output=True)


def _offers(hop: route.Hop) -> list[str]:
    """Titles, shortened to what tells them apart."""
    talk = keys.Agent(hop.agent)
    try:
        found = list(keys.offers(hop, keys.KeyFiles(), talk))
    finally:
        talk.close()
    return [
        f"useless {Path(offer.title.split()[0]).name}"
        if isinstance(offer, keys.Useless)
        else f"agent {Path(offer.title.split()[0]).name}"
        if offer.login.agent_key
        else f"file {offer.login.private_key.name if offer.login.private_key else ''}{' signed' if offer.login.certificate else ''}"
        for offer in found
    ]


def _hop(*identities: Path, **more: object) -> route.Hop:
    return replace(route.Hop("titan", "titan", 22, "ops", identities=identities), **more)  # type: ignore[arg-type]  # each test says which


def test_named_keys_come_first_then_the_agent_s_then_the_usual_ones(tmp_path: Path, agent: str) -> None:
    named, held, usual = (sshd.make_key(tmp_path / name) for name in ("named", "held", "usual"))
    _add(agent, held)
    assert _offers(_hop(named, agent=agent, default_identities=(usual,))) == ["file named", "agent held", "file usual"]
    assert _offers(_hop(named, agent=agent, identities_only=True)) == ["file named"]
    assert _offers(_hop(named, agent="")) == ["file named"]


def test_no_key_is_offered_twice(tmp_path: Path, agent: str) -> None:
    named = sshd.make_key(tmp_path / "named")
    _add(agent, named)
    assert _offers(_hop(named, named, agent=agent, default_identities=(named,))) == ["file named"]


@pytest.mark.parametrize("form", [(), ("-m", "PEM")])
def test_a_key_with_a_passphrase_is_used_only_through_the_agent(tmp_path: Path, agent: str, form: tuple[str, ...]) -> None:
    locked = sshd.make_key(tmp_path / "locked", "ecdsa", passphrase="five words and then some", form=form)
    assert _offers(_hop(locked, agent=agent)) == ["useless locked"]
    _add(agent, locked, "five words and then some")
    assert _offers(_hop(locked, agent=agent, identities_only=True)) == ["agent locked"]


def test_the_public_half_alone_names_a_key_of_the_agent(tmp_path: Path, agent: str) -> None:
    held = sshd.make_key(tmp_path / "held")
    _add(agent, held)
    public = Path(f"{held}.pub").rename(tmp_path / "card.pub")
    held.unlink()
    assert _offers(_hop(public, agent=agent, identities_only=True)) == ["agent held"]
    assert _offers(_hop(public, agent="", identities_only=True)) == ["useless card.pub"]


def test_the_public_half_is_found_inside_a_locked_key(tmp_path: Path) -> None:
    locked = sshd.make_key(tmp_path / "locked", passphrase="five words and then some")
    beside = keys.KeyFiles().public(locked)
    Path(f"{locked}.pub").unlink()
    assert keys.KeyFiles().public(locked) == beside
    assert keys.KeyFiles().public(tmp_path / "absent") == b""


def test_a_certificate_beside_a_key_is_offered_before_the_plain_key(tmp_path: Path) -> None:
    authority, user = sshd.make_key(tmp_path / "ca"), sshd.make_key(tmp_path / "user")
    sshd.keygen("-s", authority, "-I", "user", "-n", "ops", f"{user}.pub")
    assert _offers(_hop(user)) == ["file user signed", "file user"]
    elsewhere = (tmp_path / "user-cert.pub").rename(tmp_path / "elsewhere.pub")
    assert _offers(_hop(user)) == ["file user"]
    assert _offers(_hop(user, certificates=(elsewhere,))) == ["file user signed", "file user"]


@pytest.mark.parametrize(
    "content", [b"", b"rubbish", b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n", b"\xff\0"]
)
def test_a_file_that_is_no_key_is_told_and_passed_over(tmp_path: Path, content: bytes) -> None:
    broken, good = tmp_path / "broken", sshd.make_key(tmp_path / "good")
    broken.write_bytes(content)
    assert _offers(_hop(broken, good)) == ["useless broken", "file good"]


def test_an_agent_that_is_gone_holds_no_keys_and_says_so(tmp_path: Path) -> None:
    talk = keys.Agent(str(tmp_path / "absent"))
    talk.close()
    assert talk.get_keys() == ()
    assert "does not answer" in talk.failure


def test_keys_are_read_once_for_a_fleet_and_again_when_they_change(tmp_path: Path) -> None:
    files, path = keys.KeyFiles(), sshd.make_key(tmp_path / "key")
    first = files.private(path)
    assert files.private(path) is first
    path.unlink()
    sshd.make_key(path)
    os.utime(path, ns=(1, 1))
    assert files.private(path) != first


def test_a_key_of_the_agent_opens_both_ways_and_never_leaves_it(ground: sshd.Ground, agent: str) -> None:
    _add(agent, ground.key)
    ground.key.unlink()
    ground.start("titan", f"IdentityAgent {agent}")
    link = ground.open("titan")
    assert [way("echo in").receive(20) for way in (link.run, link.bulk)] == [b"in\n", b"in\n"]
    link.close()


def test_a_certificate_in_the_agent_opens_both_ways(ground: sshd.Ground, agent: str) -> None:
    authority = sshd.make_key(ground.home / "ca")
    sshd.keygen("-s", authority, "-I", "user", "-n", sshd.USER, f"{ground.key}.pub")
    _add(agent, ground.key)
    ground.key.unlink()
    ground.authorized.write_text(f"cert-authority {sshd.public_line(authority)}\n")
    ground.start("titan", f"IdentityAgent {agent}")
    link = ground.open("titan")
    assert [way("echo in").receive(20) for way in (link.run, link.bulk)] == [b"in\n", b"in\n"]
    link.close()


def test_a_certificate_on_disk_opens_both_ways(ground: sshd.Ground) -> None:
    authority = sshd.make_key(ground.home / "ca")
    sshd.keygen("-s", authority, "-I", "user", "-n", sshd.USER, f"{ground.key}.pub")
    ground.authorized.write_text(f"cert-authority {sshd.public_line(authority)}\n")
    ground.start("titan")
    link = ground.open("titan")
    assert [way("echo in").receive(20) for way in (link.run, link.bulk)] == [b"in\n", b"in\n"]
    link.close()


@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_other_kinds_of_keys_open_both_ways(ground: sshd.Ground, kind: str) -> None:
    key = sshd.make_key(ground.home / "other", kind)
    ground.authorized.write_text(f"{sshd.public_line(key)}\n")
    ground.start("titan", f"IdentityFile {key}")
    link = ground.open("titan")
    assert [way("echo in").receive(20) for way in (link.run, link.bulk)] == [b"in\n", b"in\n"]
    link.close()


def test_a_locked_key_without_an_agent_is_told_with_the_way_out(ground: sshd.Ground) -> None:
    locked = sshd.make_key(ground.home / "locked", passphrase="five words and then some")
    ground.authorized.write_text(f"{sshd.public_line(locked)}\n")
    ground.key.unlink()
    ground.start("titan", f"IdentityFile {locked}")
    with pytest.raises(errors.Problem) as caught:
        ground.open("titan")
    assert caught.value.code == "auth-failed"
    assert "passphrase" in caught.value.message
    assert "ssh-add" in caught.value.hint


def test_too_many_keys_are_told(ground: sshd.Ground) -> None:
    for number in range(7):
        sshd.make_key(ground.home / f"k{number}")
    ground.start("titan", *(f"IdentityFile {ground.home}/k{number}" for number in range(7)))
    with pytest.raises(errors.Problem) as caught:
        ground.open("titan")
    assert caught.value.code == "auth-failed"
    assert "closed the connection" in caught.value.message
