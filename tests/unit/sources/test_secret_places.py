"""Secrets read from every place, and what is said when one cannot be had: the place, and never a byte of what stands there."""

from __future__ import annotations

import os
import pathlib
import signal
import stat
import sys
import time

import pytest

from wattherd import errors
from wattherd.inventory import settings
from wattherd.serving import secrets as books
from wattherd.sources import secrets, vault

VAULTS = pathlib.Path(__file__).parent / "vault"
KEY = "s3cret-word-that-nobody-may-see"


def place(**given: object) -> settings.Secret:
    return settings.Secret.model_validate(given)


def executable(path: pathlib.Path, text: str) -> pathlib.Path:
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def refused(one: settings.Secret, root: pathlib.Path, environment: dict[str, str] | None = None) -> errors.Problem:
    with pytest.raises(errors.Problem) as caught:
        secrets.read(one, root, environment or {})
    assert KEY not in str(caught.value.to_dict())
    assert caught.value.__cause__ is None or KEY not in repr(caught.value.__cause__)
    return caught.value


def test_a_file_relative_to_the_project(tmp_path: pathlib.Path) -> None:
    (tmp_path / "herd.key").write_text(f"{KEY}\n")
    assert secrets.read(place(file="herd.key"), tmp_path).reveal() == f"{KEY}\n".encode()
    assert secrets.read(place(file=str(tmp_path / "herd.key")), pathlib.Path("/")).reveal() == f"{KEY}\n".encode()


@pytest.mark.parametrize(("mode", "open_to_all"), [(0o600, False), (0o640, False), (0o644, True), (0o602, True)])
def test_whether_every_account_can_read_a_file_is_remembered(tmp_path: pathlib.Path, mode: int, *, open_to_all: bool) -> None:
    (tmp_path / "herd.key").write_text(f"{KEY}\n")
    (tmp_path / "herd.key").chmod(mode)
    assert secrets.read(place(file="herd.key"), tmp_path).open_to_all is open_to_all


def test_a_file_that_is_not_there_or_too_big(tmp_path: pathlib.Path) -> None:
    assert refused(place(file="herd.key"), tmp_path).code == "secret-missing"
    (tmp_path / "big").write_bytes(KEY.encode() * 10_000)
    assert refused(place(file="big"), tmp_path).code == "secret-invalid"


def test_an_environment_variable(tmp_path: pathlib.Path) -> None:
    assert secrets.read(place(env="HERD_KEY"), tmp_path, {"HERD_KEY": KEY}).reveal() == KEY.encode()
    problem = refused(place(env="HERD_KEY"), tmp_path, {"HERD_KEY2": KEY})
    assert (problem.code, "HERD_KEY" in problem.message) == ("secret-missing", True)


def test_a_program_gets_its_words_as_they_are_and_no_shell(tmp_path: pathlib.Path) -> None:
    argv = [sys.executable, "-c", "import sys; print(sys.argv[1])", "$HOME; `id` *"]
    assert secrets.read(place(command=argv), tmp_path).reveal() == b"$HOME; `id` *\n"


@pytest.mark.parametrize(
    "program",
    [f"import sys; print('{KEY}'); sys.exit('{KEY} is wrong')", f"raise OSError('{KEY}')", f"import os; print('{KEY}'); os.abort()"],
)
def test_a_program_that_fails_is_named_and_its_words_are_not(tmp_path: pathlib.Path, program: str) -> None:
    problem = refused(place(command=[sys.executable, "-c", program, KEY]), tmp_path)
    assert problem.code == "secret-missing"
    assert sys.executable in problem.message


def test_a_program_that_is_not_there_or_never_ends(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(place(command=["/nowhere/pass", KEY]), tmp_path).code == "secret-missing"
    monkeypatch.setattr(secrets, "COMMAND_LIMIT_S", 0.2)
    problem = refused(place(command=[sys.executable, "-c", f"import time; print('{KEY}', flush=True); time.sleep(60)"]), tmp_path)
    assert "did not end" in problem.message


def test_a_program_that_never_stops_printing_is_ended(tmp_path: pathlib.Path) -> None:
    program = f"import os, pathlib; pathlib.Path('pid').write_text(str(os.getpid()))\nwhile True: print('{KEY}')"
    problem = refused(place(command=[sys.executable, "-c", program]), tmp_path)
    assert (problem.code, "too big" in problem.message) == ("secret-invalid", True)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_helper_that_a_program_leaves_behind_is_not_waited_for(tmp_path: pathlib.Path) -> None:
    begun_s = time.monotonic()
    program = f"import subprocess; print(subprocess.Popen(['sleep', '30']).pid, '{KEY}', flush=True)"
    held = secrets.read(place(command=[sys.executable, "-c", program]), tmp_path)
    pid, word = held.reveal().split()
    assert (word.decode(), time.monotonic() - begun_s < 20) == (KEY, True)
    os.kill(int(pid), signal.SIGKILL)


def test_a_file_without_an_end_and_a_pipe(tmp_path: pathlib.Path) -> None:
    assert refused(place(file="/dev/zero"), tmp_path).code == "secret-invalid"
    os.mkfifo(tmp_path / "pipe")
    assert "a pipe" in refused(place(file="pipe"), tmp_path).message


@pytest.mark.parametrize("name", ["whole-1.1.yaml", "labelled-1.2.yaml"])
def test_what_ansible_vault_encrypted(name: str) -> None:
    one = place(vault={"file": name, "key": "herd_api_key", "password_file": "password.txt"})
    assert secrets.read(one, VAULTS).reveal() == b"key-from-the-vault-0123456789abcdef"
    several = place(vault={"file": name, "key": "herd_keys"})
    held = secrets.read(several, VAULTS, {"ANSIBLE_VAULT_PASSWORD_FILE": str(VAULTS / "password.txt")})
    assert books.keys_in(held) == ["key-of-the-gateway-0123456789", "key-of-the-notebook-012345678"]


def test_a_value_that_was_encrypted_by_itself() -> None:
    one = place(vault={"file": "inline.yaml", "key": "herd_api_key", "password_file": "password.txt"})
    assert secrets.read(one, VAULTS).reveal() == b"inline-key-from-the-vault-0123"


def test_a_password_program_is_run_and_a_client_is_told_which_password(tmp_path: pathlib.Path) -> None:
    plain = executable(tmp_path / "ask", "print('correct horse battery')")
    client = executable(
        tmp_path / "keyring-client.py", "import sys\nprint('correct horse battery' if sys.argv[1:] == ['--vault-id', 'herd'] else 'x')"
    )
    for program in (plain, client):
        one = place(vault={"file": "labelled-1.2.yaml", "key": "herd_api_key", "password_file": str(program)})
        assert secrets.read(one, VAULTS).reveal().startswith(b"key-from-the-vault")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"file": "whole-1.1.yaml", "key": "herd_api_key"}, "secret-locked"),
        ({"file": "whole-1.1.yaml", "key": "herd_api_key", "password_file": "README.md"}, "secret-locked"),
        ({"file": "whole-1.1.yaml", "key": "herd_api_key", "password_file": "/dev/null"}, "secret-empty"),
        ({"file": "whole-1.1.yaml", "key": "nobody", "password_file": "password.txt"}, "secret-missing"),
        ({"file": "whole-1.1.yaml", "key": "number", "password_file": "password.txt"}, "secret-invalid"),
        ({"file": "plain.yaml", "key": "herd_api_key", "password_file": "password.txt"}, "secret-invalid"),
        ({"file": "nowhere.yaml", "key": "herd_api_key"}, "secret-missing"),
    ],
)
def test_vaults_that_do_not_open(given: dict[str, object], code: str) -> None:
    assert refused(place(vault=given), VAULTS).code == code


@pytest.mark.parametrize("keep", [0.5, 0.98])
def test_a_vault_that_was_cut_or_changed_is_refused(tmp_path: pathlib.Path, keep: float) -> None:
    text = (VAULTS / "whole-1.1.yaml").read_text()
    with pytest.raises(errors.Problem) as caught:
        vault.decrypt(text[: int(len(text) * keep)], b"correct horse battery", "a vault")
    assert caught.value.code in {"secret-locked", "secret-invalid"}
    (tmp_path / "changed.yaml").write_text(text[:-3] + ("0" if text[-3] != "0" else "1") + text[-2:])
    (tmp_path / "password.txt").write_text("correct horse battery")
    one = place(vault={"file": "changed.yaml", "key": "herd_api_key", "password_file": "password.txt"})
    assert refused(one, tmp_path).code in {"secret-locked", "secret-invalid"}


def test_yaml_errors_do_not_quote_what_was_decrypted(tmp_path: pathlib.Path) -> None:
    (tmp_path / "broken.yaml").write_text(f"key: [{KEY}\n  : {KEY}: }}\n")
    assert refused(place(vault={"file": "broken.yaml", "key": "key"}), tmp_path).code == "secret-invalid"
