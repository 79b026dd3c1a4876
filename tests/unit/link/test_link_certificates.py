"""Host certificates as ssh-keygen makes them, for every kind of authority and of host key."""

from __future__ import annotations

import base64
import struct
from pathlib import Path

import pytest

from tests.unit.link import sshd
from wattherd.link import certificates, hostkeys, keys

_KINDS = {"ed25519": (), "rsa": ("-b", "2048"), "p256": ("-b", "256"), "p384": ("-b", "384"), "p521": ("-b", "521")}


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("keys")
    return {name: sshd.make_key(folder / name, "ecdsa" if name.startswith("p") else name, form=form) for name, form in _KINDS.items()}


def _sign(authority: Path, host: Path, *options: str) -> bytes:
    sshd.keygen("-s", authority, "-I", "the id", *options, f"{host}.pub")
    return base64.b64decode(Path(f"{host}-cert.pub").read_text().split()[1])


def _objection(blob: bytes, name: str = "node1.example", now: float = sshd.NOW) -> str:
    return certificates.objection(certificates.read(blob), name, now)


@pytest.mark.parametrize("host", _KINDS)
@pytest.mark.parametrize("authority", _KINDS)
def test_every_authority_signs_every_kind_of_key(pool: dict[str, Path], authority: str, host: str) -> None:
    blob = _sign(pool[authority], pool[host], "-h", "-n", "node1.example,node2.example")
    found = certificates.read(blob)
    assert _objection(blob) == ""
    assert found.key == keys.KeyFiles().public(pool[host])
    assert found.authority == keys.KeyFiles().public(pool[authority])
    assert (found.key_id, found.principals) == ("the id", ("node1.example", "node2.example"))
    assert hostkeys.fingerprint(blob) == hostkeys.fingerprint(found.key)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("-n", "node1.example"), "for users"),
        (("-h", "-n", "node2.example"), "it is for node2.example, not for node1.example"),
        (("-h",), "it names no host"),
        (("-h", "-n", "node1.example", "-V", "20200101:20210101"), "it expired at 2021-01-01"),
        (("-h", "-n", "node1.example", "-V", "20800101:20810101"), "it is valid only from 20"),
        (("-h", "-n", "node1.example", "-O", "critical:x@y=z"), "critical options that no client understands: x@y"),
        (("-h", "-n", "*.example"), ""),
        (("-h", "-n", "*.exam?l"), "it is for *.exam?l"),
        (("-h", "-n", "node1.example", "-V", "always:forever"), ""),
    ],
)
def test_what_speaks_against_a_certificate(pool: dict[str, Path], options: tuple[str, ...], reason: str) -> None:
    told = _objection(_sign(pool["ed25519"], pool["p256"], *options))
    assert told.startswith(reason) if reason.startswith("it") else reason in told
    assert bool(told) == bool(reason)


def test_the_window_is_open_at_its_start_and_closed_at_its_end(pool: dict[str, Path]) -> None:
    found = certificates.read(_sign(pool["ed25519"], pool["p256"], "-h", "-n", "n", "-V", "20250101000000Z:20250201000000Z"))
    start, end = found.valid_after_s, found.valid_before_s
    assert [bool(certificates.objection(found, "n", now)) for now in (start - 1, start, end - 1, end)] == [True, False, False, True]


def test_a_changed_byte_anywhere_breaks_the_certificate(pool: dict[str, Path]) -> None:
    blob = _sign(pool["ed25519"], pool["p256"], "-h", "-n", "node1.example")
    for place in range(len(blob)):
        changed = blob[:place] + bytes([blob[place] ^ 1]) + blob[place + 1 :]
        try:
            told = _objection(changed)
        except ValueError:
            continue
        assert told, place


def test_a_certificate_cut_short_or_with_a_tail_is_refused(pool: dict[str, Path]) -> None:
    blob = _sign(pool["ed25519"], pool["rsa"], "-h", "-n", "node1.example")
    for broken in (blob[:-1], blob[:40], blob + b"x"):
        with pytest.raises(ValueError, match=r"cut short|follows"):
            certificates.read(broken)


def test_a_signature_by_sha1_is_refused(pool: dict[str, Path]) -> None:
    blob = _sign(pool["rsa"], pool["ed25519"], "-t", "ssh-rsa", "-h", "-n", "node1.example")
    assert "of a kind that is not accepted" in _objection(blob)


def test_the_signature_of_another_authority_does_not_help(pool: dict[str, Path], tmp_path: Path) -> None:
    """Somebody's certificate with the trusted authority's name written over it."""
    stranger = sshd.make_key(tmp_path / "stranger")
    blob = _sign(stranger, pool["p256"], "-h", "-n", "node1.example")
    files = keys.KeyFiles()
    forged = blob.replace(files.public(stranger), files.public(pool["ed25519"]), 1)
    assert certificates.read(forged).authority == files.public(pool["ed25519"])
    assert "signature" in _objection(forged)


def _verdict(lines: str, blob: bytes) -> hostkeys.Verdict:
    return hostkeys.Book(*hostkeys.parse(Path("kh"), lines)).verdict("node1.example", 22, blob, sshd.NOW)


def test_a_book_trusts_only_the_authorities_of_that_host(pool: dict[str, Path]) -> None:
    blob = _sign(pool["ed25519"], pool["p256"], "-h", "-n", "node1.example")
    authority, own = sshd.public_line(pool["ed25519"]), sshd.public_line(pool["p256"])
    assert _verdict(f"@cert-authority *.example {authority}", blob).state == "known"
    assert _verdict(f"@cert-authority *.other {authority}", blob).state == "unknown"
    assert "no @cert-authority line" in _verdict("", blob).detail
    assert _verdict(f"node1.example {own}", blob).state == "known"
    assert _verdict(f"node1.example {authority}", blob).state == "changed"
    assert _verdict(f"@cert-authority * {authority}\n@revoked * {own}", blob).state == "revoked"
    assert _verdict(f"@cert-authority * {authority}\n@revoked * {authority}", blob).state == "revoked"


def test_a_damaged_certificate_is_not_known_whatever_the_book_says(pool: dict[str, Path]) -> None:
    blob = _sign(pool["ed25519"], pool["p256"], "-h", "-n", "node1.example")
    verdict = _verdict(f"node1.example {sshd.public_line(pool['p256'])}", blob[:-3])
    assert (verdict.state, "cannot be read" in verdict.detail) == ("unknown", True)


def test_names_with_many_stars_are_matched_in_reasonable_time() -> None:
    assert not certificates.fits("*a" * 12 + "b", "a" * 40)
    assert certificates.fits("**x**", "axb")
    assert certificates.fits("[a]:*", "[a]:22")


def test_a_blob_that_is_no_key_has_no_type() -> None:
    assert [certificates.blob_type(blob) for blob in (b"", b"\0\0\0\1", struct.pack(">I", 3) + b"\xff\xfe\xfd")] == ["", "", ""]
