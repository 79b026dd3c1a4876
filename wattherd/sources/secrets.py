"""Where secrets are read on the controller: a file, its environment, a program's output, one key of an ansible-vault file.

An error names the place and what to do, never a byte of what was read there; a program's own words are not shown, they could hold it.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import selectors
import stat
import subprocess
import time
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

import yaml

from wattherd import errors
from wattherd.resources import secret
from wattherd.serving import secrets

if TYPE_CHECKING:
    from wattherd.inventory import settings

#: A password manager may ask for a finger on a token.
COMMAND_LIMIT_S = 60.0
PASSWORD_FILE = "ANSIBLE_VAULT_PASSWORD_FILE"  # noqa: S105 - a variable's name
_VAULT_TAG = "!vault"
#: More than a vault of many keys holds. What never ends (/dev/zero, `yes`) must not fill this machine's memory.
_LIMIT_BYTES = 1024 * 1024
_CHUNK_BYTES = 64 * 1024
_LOOK_S = 0.2


def read(place: settings.Secret, root: pathlib.Path, environment: Mapping[str, str] = os.environ) -> secrets.Hidden:
    """The secret itself. Relative paths and programs are the project's (`root`)."""
    if place.file is not None:
        where = _located(place.file, root)
        return _held(_bytes(where, "the secret"), str(where), open_to_all=bool(where.stat().st_mode & stat.S_IRWXO))
    if place.env is not None:
        if place.env not in environment:
            raise errors.Problem(
                "secret-missing", f"the environment variable {place.env} is not set", hint="export it, or name another place"
            )
        return _held(environment[place.env].encode("utf-8", "surrogateescape"), f"the environment variable {place.env}")
    if place.command is not None:
        return _held(_output(place.command, root, environment), f"the program {place.command[0]}")
    if place.vault is not None:
        return _vaulted(place.vault, root, environment)
    raise errors.Problem("internal", "a secret without a place")


def _held(body: bytes, where: str, *, open_to_all: bool = False) -> secrets.Hidden:
    if len(body) > secret.LIMIT_BYTES // 2:
        raise errors.Problem("secret-invalid", f"what {where} holds is too big for a secret ({len(body)} bytes)")
    return secrets.Hidden(body, where, open_to_all=open_to_all)


def _located(given: str, root: pathlib.Path) -> pathlib.Path:
    path = pathlib.Path(given).expanduser()
    return path if path.is_absolute() else root / path


def _bytes(path: pathlib.Path, what: str) -> bytes:
    try:
        if stat.S_ISFIFO(path.stat().st_mode):  # without a writer it would be waited for without end
            raise errors.Problem(
                "secret-missing", f"{what} cannot be read: {path} is a pipe", hint="command: runs a program and takes what it prints"
            )
        with path.open("rb") as stream:
            body = stream.read(_LIMIT_BYTES + 1)
    except OSError as error:
        hint = "relative paths are relative to the project's folder, the one with tasks.py"
        raise errors.Problem("secret-missing", f"{what} cannot be read: {path}: {error.strerror}", hint=hint) from error
    if len(body) > _LIMIT_BYTES:
        raise _too_big(str(path))
    return body


def _too_big(where: str) -> errors.Problem:
    return errors.Problem("secret-invalid", f"what {where} holds is too big for a secret (more than {_LIMIT_BYTES} bytes)")


def _output(argv: tuple[str, ...], root: pathlib.Path, environment: Mapping[str, str]) -> bytes:
    """What a program prints. Only its name is told when it fails: the other words, and what it said, could hold the secret."""
    hint = f"run it by hand in {root}: {argv[0]} …"
    try:
        # In our own session and group: it may ask on the terminal.
        process = subprocess.Popen(
            argv,
            cwd=root,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
    except OSError as error:
        raise errors.Problem("secret-missing", f"the program {argv[0]} cannot be run: {error.strerror}", hint=hint) from None
    with process:
        try:
            body = _printed(process, process.stdout, argv[0], hint) if process.stdout is not None else b""
        except errors.Problem:
            process.kill()
            raise
    if process.returncode != 0:
        how = f"failed with exit status {process.returncode}" if process.returncode > 0 else f"was ended by signal {-process.returncode}"
        raise errors.Problem("secret-missing", f"the program {argv[0]} {how}; what it said is not shown", hint=hint)
    return body


def _printed(process: subprocess.Popen[bytes], pipe: IO[bytes], name: str, hint: str) -> bytes:
    """All that it prints until it ends. A helper that it leaves running (an agent) may hold the pipe open: nobody waits for that."""
    ends_s, body, open_ = time.monotonic() + COMMAND_LIMIT_S, b"", True
    with selectors.DefaultSelector() as waiting:
        waiting.register(pipe, selectors.EVENT_READ)
        while True:
            ended = process.poll() is not None
            if open_ and waiting.select(0 if ended else _LOOK_S):
                more = pipe.read(_CHUNK_BYTES)
                open_, body = bool(more), body + more
                if len(body) > _LIMIT_BYTES:
                    raise _too_big(f"the program {name}")
            elif ended:
                return body
            elif not open_:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_S)
            if not ended and time.monotonic() >= ends_s:
                raise errors.Problem("secret-missing", f"the program {name} did not end within {COMMAND_LIMIT_S:.0f} s", hint=hint)


# -- ansible-vault


def _vaulted(place: settings.Vault, root: pathlib.Path, environment: Mapping[str, str]) -> secrets.Hidden:
    from wattherd.sources import vault

    path = _located(place.file, root)
    where = f"{place.key} in {path}"
    text = _bytes(path, "the vault").decode("utf-8", "replace")
    locked = vault.is_vault(text)
    value = _document(_opened(text, place, root, environment) if locked else text, path).get(place.key)
    if isinstance(value, _Inline):
        value, locked = _opened(value.text, place, root, environment), True
    if value is None:
        raise errors.Problem("secret-missing", f"there is no key {where}")
    if not locked:
        hint = f"ansible-vault encrypt {path}, or name a plain file by `file:`"
        raise errors.Problem("secret-invalid", f"{where} is not encrypted", hint=hint)
    if not isinstance(value, str):
        raise errors.Problem("secret-invalid", f"{where} is not text", hint="put the value in quotes")
    return _held(value.encode(), where)


def _opened(text: str, place: settings.Vault, root: pathlib.Path, environment: Mapping[str, str]) -> str:
    from wattherd.sources import vault

    password = _password(place, root, environment, vault.label_of(text))
    return vault.decrypt(text, password, str(_located(place.file, root))).decode("utf-8", "replace")


class _Inline:
    """A value that was encrypted by itself (ansible-vault encrypt_string)."""

    def __init__(self, text: str) -> None:
        self.text = text


class _Loader(yaml.SafeLoader):
    pass


_Loader.add_constructor(_VAULT_TAG, lambda _loader, node: _Inline(str(node.value)))


def _document(text: str, path: pathlib.Path) -> Mapping[str, Any]:
    """YAML errors quote the text that they stumble over, so only the line is told."""
    try:
        loaded = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader with one tag more
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise errors.Problem("secret-invalid", f"{path} is not YAML{f' (line {mark.line + 1})' if mark else ''}") from None
    if not isinstance(loaded, dict):
        raise errors.Problem("secret-invalid", f"{path} does not hold keys with values")
    return loaded


def _password(place: settings.Vault, root: pathlib.Path, environment: Mapping[str, str], label: str) -> bytes:
    """As Ansible reads it: an executable file is run and prints the password, any other holds it; blanks around it do not count."""
    given = place.password_file or environment.get(PASSWORD_FILE)
    if not given:
        raise errors.Problem(
            "secret-locked",
            f"{_located(place.file, root)} is encrypted, and nothing names its password",
            hint=f"vault: {{password_file: …}}, or set {PASSWORD_FILE}",
        )
    path = _located(given, root)
    if path.is_file() and os.access(path, os.X_OK):
        # A client script is told which of several passwords is meant (Ansible's own convention).
        words = ("--vault-id", label) if path.stem.endswith("-client") else ()
        word = _output((str(path), *words), root, environment).strip()
    else:
        word = _bytes(path, "the vault's password").strip()
    if not word:
        raise errors.Problem("secret-empty", f"the vault's password from {path} is empty")
    return word
