"""Which line of known_hosts speaks for which host, and what a key is worth."""

from __future__ import annotations

import base64
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.link import sshd
from wattherd import errors
from wattherd.link import hostkeys, keys

_PATH = Path("kh")
_SALT = "AAECAwQFBgcICQoLDA0ODxAREhM="


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("keys")
    kinds = {"one": "ed25519", "two": "ed25519", "curve": "ecdsa", "rsa": "rsa"}
    return {name: sshd.make_key(folder / name, kind) for name, kind in kinds.items()}


def _blob(key: Path) -> bytes:
    return keys.KeyFiles().public(key)


def _book(*lines: str) -> hostkeys.Book:
    return hostkeys.Book(*hostkeys.parse(_PATH, "\n".join(lines)))


def _state(pool: dict[str, Path], key: str, lines: str, name: str = "node1.example", port: int = 22) -> tuple[str, list[int]]:
    """`lines` name keys in braces."""
    text = lines.format(**{name: sshd.public_line(path) for name, path in pool.items()})
    verdict = _book(*text.splitlines()).verdict(name, port, _blob(pool[key]), sshd.NOW)
    return verdict.state, [entry.line for entry in verdict.entries]


@pytest.mark.parametrize(
    ("lines", "name", "port", "expected"),
    [
        ("node1.example {one}", "node1.example", 22, ("known", [1])),
        ("node1.example {one} a comment", "NODE1.example", 22, ("known", [1])),
        ("Node1.Example {one}", "node1.example", 22, ("known", [1])),
        ("a,node1.example,b {one}", "node1.example", 22, ("known", [1])),
        ("*.example {one}", "node1.example", 22, ("known", [1])),
        ("node?.example {one}", "node1.example", 22, ("known", [1])),
        ("node??.example {one}", "node1.example", 22, ("unknown", [])),
        ("*.example,!node1.example {one}", "node1.example", 22, ("unknown", [])),
        ("!node2.example,*.example {one}", "node1.example", 22, ("known", [1])),
        ("[node1.example]:2222 {one}", "node1.example", 2222, ("known", [1])),
        ("[node1.example]:2222 {one}", "node1.example", 22, ("unknown", [])),
        ("[node1.example]:2222 {one}", "node1.example", 2223, ("unknown", [])),
        ("[*]:2222 {one}", "node1.example", 2222, ("known", [1])),
        ("[node1.example]:22 {one}", "node1.example", 22, ("unknown", [])),
        # ssh accepts a line without the port for a host at another port, but such a line raises no objection.
        ("node1.example {one}", "node1.example", 2222, ("known", [1])),
        ("node1.example {two}", "node1.example", 2222, ("unknown", [])),
        ("10.0.0.1 {one}", "10.0.0.1", 22, ("known", [1])),
        ("::1 {one}", "::1", 22, ("known", [1])),
        ("[::1]:23 {one}", "::1", 23, ("known", [1])),
    ],
)
def test_names(pool: dict[str, Path], lines: str, name: str, port: int, expected: tuple[str, list[int]]) -> None:
    assert _state(pool, "one", lines, name, port) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("node1.example {two}", ("changed", [1])),
        ("\n# x\nnode1.example {two}\nnode1.example {one}", ("known", [4])),
        ("node1.example {curve}\nnode1.example {two}", ("changed", [2])),
        ("node1.example {curve}\nother {one}", ("changed", [1])),
        ("node1.example {one}\n@revoked node1.example {one}", ("revoked", [2])),
        ("node1.example {one}\n@revoked * {one}", ("revoked", [2])),
        ("node1.example {one}\n@revoked other {one}", ("known", [1])),
        ("node1.example {one}\n@revoked * {two}", ("known", [1])),
        ("@revoked * {two}", ("unknown", [])),
        ("@cert-authority * {one}", ("unknown", [])),
        ("", ("unknown", [])),
    ],
)
def test_verdicts(pool: dict[str, Path], lines: str, expected: tuple[str, list[int]]) -> None:
    assert _state(pool, "one", lines) == expected


def test_hashed_names_count_with_their_port(pool: dict[str, Path]) -> None:
    """e07-hashed-known-hosts-with-port"""
    key = sshd.public_line(pool["one"])
    book = _book(
        f"|1|{_SALT}|jHYyqNy2Eu8ysbuMCYXmh2VbJDE= {key}",
        f"|1|{_SALT}|VH4rlFhlyEnFZDv3DzsWnXAObpI= {key}",
        f"[|1|{_SALT}|jHYyqNy2Eu8ysbuMCYXmh2VbJDE=]:7999 {key}",
    )
    assert [entry.line for entry in book.entries("node1.example", 22)] == [1]
    assert [entry.line for entry in book.entries("node1.example", 2222)] == [2]
    assert book.entries("node1.example", 7999) == ()
    assert [(broken.where, "outside the hash" in broken.reason) for broken in book.broken] == [("kh:3", True)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("node1.example", "not all there"),
        ("node1.example ssh-ed25519", "not all there"),
        ("node1.example ssh-ed25519 ###", "not base64"),
        ("node1.example ssh-rsa {one}", "not of type ssh-rsa"),
        ("@unknown node1.example {line}", "@unknown means nothing"),
        ("|1|AAAA {line}", "damaged"),
        ("|1|AAAA|BBBB {line}", "damaged"),
        ("|2|AAAA|BBBB {line}", "damaged"),
    ],
)
def test_broken_lines_are_reported_and_never_match(pool: dict[str, Path], line: str, reason: str) -> None:
    full = sshd.public_line(pool["one"])
    book = _book(line.format(one=full.split()[1], line=full))
    assert [reason in broken.reason for broken in book.broken] == [True]
    assert book.entries("node1.example", 22) == ()


def test_the_kinds_to_ask_for_put_certificates_first(pool: dict[str, Path]) -> None:
    lines = [sshd.public_line(pool[name]) for name in ("rsa", "curve", "one", "two")]
    book = _book(f"n {lines[0]}", f"n {lines[1]}", f"@cert-authority *.lan {lines[2]}", f"@revoked n {lines[3]}")
    assert book.key_types("n", 22) == ("ssh-rsa", "ecdsa-sha2-nistp256")
    assert book.key_types("n", 2222) == ("ssh-rsa", "ecdsa-sha2-nistp256")
    assert book.key_types("x.lan", 22) == ("-cert-v01@openssh.com",)
    assert book.key_types("elsewhere", 22) == ()


def test_the_fingerprint_is_that_of_ssh_keygen(pool: dict[str, Path]) -> None:
    for key in pool.values():
        told = (
            sshd.keygen("-l", "-f", f"{key}.pub")
            or subprocess.run(["ssh-keygen", "-l", "-f", f"{key}.pub"], check=True, capture_output=True, text=True).stdout
        )
        assert hostkeys.fingerprint(_blob(key)) == told.split()[1]


def test_our_lookup_finds_what_ssh_keygen_finds(pool: dict[str, Path], tmp_path: Path) -> None:
    """ssh-keygen -F is the other reader of this format."""
    known = tmp_path / "kh"
    one = sshd.public_line(pool["one"])
    names = ("plain.example", "[port.example]:2222", "a,b,c", "*.wild.example,!not.wild.example", "[10.0.0.1]:22")
    known.write_text("".join(f"{name} {one}\n" for name in names))
    shutil.copy(known, tmp_path / "hashed")
    sshd.keygen("-H", "-f", tmp_path / "hashed")
    for path in (known, tmp_path / "hashed"):
        book = hostkeys.Library(tmp_path / "absent").book([path])
        for host, port in (
            ("plain.example", 22),
            ("port.example", 2222),
            ("port.example", 22),
            ("b", 22),
            ("x.wild.example", 22),
            ("not.wild.example", 22),
        ):
            token = hostkeys.token(host, port)
            asked = subprocess.run(["ssh-keygen", "-F", token, "-f", str(path)], capture_output=True, text=True, check=False)
            assert bool(book.entries(host, port)) == (asked.returncode == 0), (path, token)


def test_a_library_reads_a_file_again_only_when_it_changed(pool: dict[str, Path], tmp_path: Path) -> None:
    project, user = tmp_path / "project", tmp_path / "user"
    library = hostkeys.Library(project)
    assert library.book([user]).entries("n", 22) == ()
    project.write_text(f"n {sshd.public_line(pool['one'])}\n")
    first = library.book([user])
    assert [entry.where for entry in first.entries("n", 22)] == [f"{project}:1"]
    assert library.book([user]) is first
    user.write_text(f"n {sshd.public_line(pool['two'])}\n")
    assert len(library.book([user]).entries("n", 22)) == 2


def test_an_unreadable_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(errors.Problem) as caught:
        hostkeys.Library(tmp_path / "project").book([tmp_path])
    assert caught.value.code == "ssh-config"
    assert str(tmp_path) in caught.value.message


def test_a_key_that_is_no_key_is_not_known() -> None:
    assert _book(f"n ssh-ed25519 {base64.b64encode(b'x').decode()}").verdict("n", 22, b"rubbish", sshd.NOW).state == "unknown"
