"""Every field case of tests/cases/ssh.yaml, one test each, named after the case. The cases' own text is the input where it can be."""

from __future__ import annotations

import ast
import re
import shlex
import time
from pathlib import Path

import pytest
import yaml

from tests.unit.link import sshd
from wattherd import errors
from wattherd.link import boot, hostkeys, noise

_CASES = Path(__file__).parents[2] / "cases" / "ssh.yaml"


def _inputs() -> dict[str, str]:
    cases = yaml.safe_load(_CASES.read_text("utf-8"))["cases"]
    return {case["id"]: case["input"] for case in cases}


def test_every_case_has_its_test() -> None:
    wanted = {f"test_{name.replace('-', '_')}" for name in _inputs()}
    assert wanted
    assert wanted <= {name for name in globals() if name.startswith("test_e")}


def test_e07_hashed_known_hosts_with_port(tmp_path: Path) -> None:
    key = sshd.public_line(sshd.make_key(tmp_path / "key"))
    hashes = re.findall(r"^\|1\|\S+", _inputs()["e07-hashed-known-hosts-with-port"], re.MULTILINE)
    known = tmp_path / "known_hosts"
    known.write_text("".join(f"{names} {key}\n" for names in (*hashes, f"[{hashes[0]}]:7999")))
    book = hostkeys.Library(tmp_path / "project").book([known])
    assert len(hashes) == 2
    assert [entry.line for entry in book.entries("node1.example", 22)] == [1]
    assert [entry.line for entry in book.entries("node1.example", 2222)] == [2]
    assert book.entries("node1.example", 7999) == ()
    assert [(broken.line, "port stands outside the hash" in broken.reason) for broken in book.broken] == [(3, True)]


def test_e08_jump_host_does_not_inherit(ground: sshd.Ground) -> None:
    """The report's own command gives its ProxyCommand no key: it fails at once and names itself. As a jump host the same way works."""
    key = sshd.make_key(ground.home / "K")
    ground.authorized.write_text(f"{sshd.public_line(key)}\n")
    ground.start("bastion")
    ground.start("node")
    command = f"ProxyCommand=ssh -F {ground.config} -W %h:%p {sshd.USER}@bastion"
    started_s = time.monotonic()
    with pytest.raises(errors.Problem) as caught:
        ground.open(sshd.Wanted("node", ssh_args=("-o", f"IdentityFile={key}", "-o", command)))
    assert (caught.value.code, "Permission denied" in caught.value.message) == ("jump-failed", True)
    assert time.monotonic() - started_s < 10
    link = ground.open(sshd.Wanted("node", ssh_args=tuple(shlex.split(f"-o IdentityFile={key} -J {sshd.USER}@bastion"))))
    assert [way("echo in").receive(20) for way in (link.run, link.bulk)] == [b"in\n", b"in\n"]
    link.close()


def test_e08_an_unknown_bastion_is_refused_instead_of_asked_about(ground: sshd.Ground) -> None:
    ground.start("bastion", known=False)
    ground.start("node")
    started_s = time.monotonic()
    with pytest.raises(errors.Problem) as caught:
        ground.open(sshd.Wanted("node", ssh_args=("-J", "bastion", "-o", "StrictHostKeyChecking=no")))
    assert (caught.value.code, caught.value.context["hop"]) == ("host-key-unknown", "bastion")
    assert time.monotonic() - started_s < 10


def test_e08_checking_switched_off_still_refuses_a_changed_key(ground: sshd.Ground) -> None:
    server = ground.start("node", known=False)
    ground.know(f"{server.token} {sshd.public_line(sshd.make_key(ground.home / 'other'))}\n")
    with pytest.raises(errors.Problem) as caught:
        ground.open(sshd.Wanted("node", ssh_args=("-o", "StrictHostKeyChecking=no")))
    assert caught.value.code == "host-key-changed"


def test_e09_shell_noise() -> None:
    text = _inputs()["e09-shell-noise"]
    pairs = re.findall(r'(\d{9,10}) = (?:"([^"]+)"|(ESC\[33))', text)
    assert len(pairs) == 4
    for number, quoted, bare in pairs:
        assert noise.decode_length(int(number)) == (quoted or bare)
        assert f"'{quoted or bare}…' before our protocol" in noise.explain_too_long(f"Received message too long {number}")


def test_e11_old_remote_python() -> None:
    """Python 3.6 can parse the first stage, and meets the version test before anything that is newer than itself."""
    statements = ast.parse(boot.STAGE, feature_version=(3, 6)).body
    assert ast.unparse(statements[0]) == "import os, sys"
    assert isinstance(statements[1], ast.If)
    assert "version_info" in ast.unparse(statements[1].test)
    assert not any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in ast.walk(ast.parse(boot.STAGE)))
