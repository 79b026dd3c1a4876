"""The secrets of one run: read once, shown by nothing, and refused where they could never be a key."""

from __future__ import annotations

import json
import pickle

import pytest

from wattherd import errors
from wattherd.inventory import settings
from wattherd.resources import secret
from wattherd.serving import secrets

GOOD = "0123456789abcdef-good-key"
PLACE = settings.Secret(file="herd.key")


def book(body: str | bytes) -> secrets.Book:
    held = secrets.Hidden(body.encode() if isinstance(body, str) else body, "herd.key")
    return secrets.Book(lambda _place: held)


def refused(body: str | bytes) -> errors.Problem:
    with pytest.raises(errors.Problem) as caught:
        book(body).api_key(PLACE)
    return caught.value


def test_nothing_shows_a_hidden_value() -> None:
    held = secrets.Hidden(GOOD.encode(), "herd.key")
    shown = [repr(held), str(held), f"{held}", f"{held!r}", f"{held:>60}", repr([held]), repr({"key": held}), str(vars(type(held)))]
    assert not any(GOOD in one for one in shown)
    assert "herd.key" in repr(held)
    for broken in (lambda: json.dumps(held), lambda: pickle.dumps(held)):
        with pytest.raises(TypeError) as caught:
            broken()
        assert GOOD not in str(caught.value)


def test_each_place_is_read_once_and_only_when_a_host_names_it() -> None:
    asked: list[settings.Secret] = []

    def read(place: settings.Secret) -> secrets.Hidden:
        asked.append(place)
        return secrets.Hidden(GOOD.encode(), "somewhere")

    made = secrets.Book(read)
    assert asked == []
    for host in ("titan", "atlas", "orin"):
        made.digest(host, "/etc/wattherd/serve/a.env", settings.Secret(file="herd.key"), secrets.KEY)
    assert asked == [PLACE]
    made.value(settings.Secret(env="OTHER"))
    assert len(asked) == 2


def test_keys_are_the_lines_that_are_neither_blank_nor_comments() -> None:
    made = book(f"# the gateway\n\n{GOOD}\r\n   \n#{GOOD}x\nsecond-{GOOD}\n{GOOD}\n").api_key(PLACE)
    assert made.reveal().decode() == f"{GOOD},second-{GOOD}"


@pytest.mark.parametrize("body", ["", "\n\n", "# only a comment\n", "# a\n   \n\t\n", "# a\n  # b\n\t#c\n"])
def test_no_key_at_all_is_refused_since_it_would_open_the_server(body: str) -> None:
    assert refused(body).code == "secret-empty"


@pytest.mark.parametrize(
    "body", [f"{GOOD} \n", f"\t{GOOD}\n", f"{GOOD},x", "seven-7", f"a {GOOD}", f"{GOOD}é", f"{GOOD}\x07", f"good-{GOOD}\nshort"]
)
def test_what_no_client_could_send_is_refused_without_being_shown(body: str) -> None:
    problem = refused(body)
    assert problem.code == "secret-invalid"
    assert GOOD not in str(problem.to_dict())
    assert "short" not in problem.message.replace("herd.key", "")


def test_what_is_no_text_is_refused() -> None:
    assert refused(b"\xff\xfe" + GOOD.encode()).code == "secret-invalid"


def test_a_key_that_every_account_can_read_is_warned_about_and_a_certificate_is_not() -> None:
    made = secrets.Book(lambda _place: secrets.Hidden(f"{GOOD}\n".encode(), "/srv/herd.key", open_to_all=True))
    made.value(settings.Secret(file="herd.crt"))
    assert [*made.warnings] == []
    made.api_key(PLACE)
    (words,) = made.warnings
    assert ("chmod 600 /srv/herd.key" in words, GOOD in words) == (True, False)


def test_a_short_key_is_warned_about_and_a_long_one_is_not() -> None:
    short, long = book("nine-char"), book(GOOD)
    short.api_key(PLACE)
    long.api_key(PLACE)
    assert [*long.warnings] == []
    (words,) = short.warnings
    assert "nine-char" not in words
    assert "herd.key" in words


def test_the_digest_is_another_on_every_host_and_path_and_needs_the_content() -> None:
    made = book(GOOD)
    digests = {made.digest(host, path, PLACE, secrets.KEY) for host in ("a", "b") for path in ("/etc/x", "/etc/y")}
    assert len(digests) == 4
    assert secret.digest_of(f'LLAMA_API_KEY="{GOOD}"\n'.encode(), "a", "/etc/x") in digests
    assert len({*digests, made.digest("a", "/etc/x", PLACE, "raw")}) == 5
    assert made.content(made.digest("a", "/etc/x", PLACE, "raw")) is not None
    assert made.content("0" * 64) is None


@pytest.mark.parametrize("value", [GOOD, 'a"b\\c$d`e', "\\\\", '"', "$HOME${X}", "#x", "'single'", "a=b"])
def test_an_environment_line_is_read_back_as_it_was(value: str) -> None:
    line = secret.environment_line("LLAMA_API_KEY", value)
    assert secret.environment_value(f'# x\nOTHER="1"\n{line}', "LLAMA_API_KEY") == value
    assert line.count("\n") == 1


def test_a_private_key_is_pem_and_ends_with_one_line_end() -> None:
    pem = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"
    made = book(f"\n{pem}\n\n")
    held = made.content(made.digest("a", "/etc/x.pem", PLACE, "pem"))
    assert held is not None
    assert held.reveal().decode() == f"{pem}\n"
    for body, code in ((GOOD, "secret-invalid"), (" ", "secret-empty")):
        with pytest.raises(errors.Problem) as caught:
            book(body).digest("a", "/etc/x.pem", PLACE, "pem")
        assert caught.value.code == code


@pytest.mark.parametrize(("body", "code"), [("", "secret-empty"), ("a\nb\n", "secret-invalid"), (" hf_x\n", "secret-invalid")])
def test_a_token_is_one_word(body: str, code: str) -> None:
    assert book("hf_token\n").token(PLACE).reveal() == b"hf_token"
    with pytest.raises(errors.Problem) as caught:
        book(body).token(PLACE)
    assert caught.value.code == code
