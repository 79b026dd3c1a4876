"""What a login shell printed, made fit for a sentence and a terminal."""

from __future__ import annotations

import pytest

from wattherd.link import noise


@pytest.mark.parametrize(
    ("number", "characters"),
    [(458961715, "ESC[33"), (173490514, "\\nWAR"), (539831597, " ---"), (1936094320, "sftp"), (1 << 32, ""), (-1, "")],
)
def test_a_length_that_was_text_is_decoded(number: int, characters: str) -> None:
    """e09-shell-noise"""
    assert noise.decode_length(number) == characters


def test_the_message_of_a_framed_protocol_is_explained() -> None:
    told = noise.explain_too_long("sftp: Received message too long 173490514\r\nEnsure the remote shell produces no output")
    assert told == "login shell prints '\\nWAR…' before our protocol"
    assert noise.explain_too_long("Received message too long") == ""
    assert noise.explain_too_long("Received message too long 99999999999999") == ""


def test_start_up_questions_to_a_terminal_are_shown_as_text() -> None:
    """e09: a shell asks the terminal for its colour and its cursor."""
    assert noise.describe(b"\x1b]11;?\x1b\\\x1b[6n\x1b[?25l") == "ESC]11;?ESC\\ESC[6nESC[?25l"


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"", ""),
        (b" \r\n\t", ""),
        (b"Welcome\r\nto titan\n", "Welcome\\r\\nto titan"),
        (b"\xff\xfe\0\x07", "\ufffd\ufffd\\x00\\x07"),
        ("żółw 🦙".encode(), "żółw 🦙"),
        ("a\u202eb\u200bc".encode(), "a\\x202eb\\x200bc"),
        ("\x9b31m".encode(), "\\x9b31m"),
    ],
)
def test_nothing_that_steers_a_terminal_passes(data: bytes, shown: str) -> None:
    assert noise.describe(data) == shown
    assert noise.describe(data).isprintable()


def test_long_noise_is_cut_and_counted() -> None:
    assert noise.describe(b"x" * (noise.SHOWN_CHARACTERS + 7)) == "x" * noise.SHOWN_CHARACTERS + "… (7 more)"
