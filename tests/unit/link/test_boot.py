"""The boot stage through a real shell and a real interpreter, and the size of what is sent."""

from __future__ import annotations

import ast
import pathlib
import shlex

import pytest

from wattherd import errors
from wattherd.link import archive, boot, local, session, transport

STAGE_BUDGET_BYTES = 1100
PROGRAM_BUDGET_BYTES = 480_000


@pytest.fixture
def login(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> boot.Login:
    """A cache of the test's own, whoever runs it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return boot.Login(become=False, cache=str(tmp_path / ".cache/wattherd/program"))


class Counted:
    """A local link that counts what goes to the node."""

    def __init__(self, before: str = "", after: str = "") -> None:
        self.link = local.LocalLink("here")
        self.before = before
        self.after = after

    def run(self, command: str) -> transport.Channel:
        return self.link.run(f"{self.before}{command}{self.after}")


def start(login: boot.Login, before: str = "", after: str = "") -> boot.Stream:
    return boot.start(Counted(before, after).run, login, ["session"], timeout_s=20)


def test_the_program_is_sent_once_and_then_found(login: boot.Login) -> None:
    folder = pathlib.Path(login.cache) / archive.program().digest
    start(login).close()
    assert (folder / "program.zip").read_bytes() == archive.program().body
    assert list(folder.rglob("*.pyc")), "compiled once, there"
    stamp = (folder / "program.zip").stat().st_mtime_ns
    opened = session.Session.open(local.LocalLink("here"), login)
    assert opened.facts.python.version.startswith("3.")
    assert (folder / "program.zip").stat().st_mtime_ns == stamp, "the second time nothing was sent"
    assert opened.call({"verb": "history"})["generations"] == []
    opened.close()


def test_a_damaged_program_is_sent_again(login: boot.Login) -> None:
    start(login).close()
    zipped = pathlib.Path(login.cache) / archive.program().digest / "program.zip"
    zipped.write_bytes(b"half of it")
    start(login).close()
    assert zipped.read_bytes() == archive.program().body


def test_a_cache_that_others_may_write_is_refused(login: boot.Login) -> None:
    folder = pathlib.Path(login.cache)
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(errors.Problem) as caught:
        start(login)
    assert caught.value.code == "program-rejected"
    assert str(folder) in caught.value.message


@pytest.mark.parametrize(
    "noise",
    [
        "motd without an end",
        "\033[33mcolours\033[0m\n\nWARNING --- sftp\n",
        "wattherd is not a marker\n",
        "\\x1b]11;?\\x1b\\\\\\x1b[6n\\x1b[?25l",
    ],
)
def test_what_the_login_prints_first_is_dropped(login: boot.Login, noise: str) -> None:
    stream = start(login, before=f"printf %s {shlex.quote(noise)}; echo also here >&2; ")
    assert b'"hello"' in (stream.read_line(20) or b"")
    stream.close()


def test_a_shell_that_prints_without_end_is_named(login: boot.Login) -> None:
    with pytest.raises(errors.Problem) as caught:
        start(login, before="yes maintenance; ")
    assert caught.value.code == "login-noise"
    assert "maintenance" in caught.value.message


def test_a_shell_that_ends_early_is_told_with_its_words(login: boot.Login) -> None:
    with pytest.raises(errors.Problem) as caught:
        start(login, before="echo this account is not available; exit 1; ")
    assert caught.value.code == "login-noise"
    assert "not available" in caught.value.message


def test_an_interpreter_that_is_not_there(login: boot.Login) -> None:
    with pytest.raises(errors.Problem) as caught:
        start(boot.Login(become=False, cache=login.cache, python="/no/such/python"))
    assert caught.value.code == "python-missing"


def test_an_old_interpreter_is_told_with_its_version(login: boot.Login, tmp_path: pathlib.Path) -> None:
    old = tmp_path / "python3.6"
    old.write_text("#!/bin/sh\nexit 86\n")
    old.chmod(0o755)
    with pytest.raises(errors.Problem) as caught:
        start(boot.Login(become=False, cache=login.cache, python=str(old)))
    assert caught.value.code == "python-old"


def test_the_stage_parses_on_python_3_6() -> None:
    tree = ast.parse(boot.STAGE, feature_version=(3, 6))
    assert isinstance(tree.body[1], ast.If), "the version test comes before anything that an old one lacks"


def test_what_is_sent_stays_small() -> None:
    assert len(boot.STAGE.encode()) <= STAGE_BUDGET_BYTES
    assert archive.program().size_bytes <= PROGRAM_BUDGET_BYTES


def test_the_archive_is_reproducible() -> None:
    once = archive.program().body
    archive.program.cache_clear()
    assert archive.program().body == once


def test_no_secret_is_in_the_command() -> None:
    told = boot.command(archive.program(), "n0nce", boot.Login(password="herd-lab"), ["session"])
    assert "herd-lab" not in told
    assert "sudo -S" in told
    assert "herd-lab" not in repr(boot.Login(password="herd-lab"))
