"""How a host is reached, from Ansible's connection variables.

Owns their names, their old names and which of them Wattherd refuses (passwords, an unchecked host key). Opens nothing: ~/.ssh/config
and known_hosts are the link's business.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from wattherd import errors
from wattherd.inventory import names

if TYPE_CHECKING:
    from wattherd.inventory import document

T = TypeVar("T")

# Where two names mean one thing the later wins, as in Ansible.
_HOST = ("ansible_host", "ansible_ssh_host")
_PORT = ("ansible_port", "ansible_ssh_port")
_USER = ("ansible_user", "ansible_ssh_user")
_KEY = ("ansible_private_key_file", "ansible_ssh_private_key_file")
_ARGUMENTS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
_TIMEOUT = ("ansible_timeout", "ansible_ssh_timeout")
_PASSWORDS = (
    "ansible_password",
    "ansible_ssh_pass",
    "ansible_ssh_password",
    "ansible_become_pass",
    "ansible_become_password",
    "ansible_sudo_pass",
)
_HOST_KEY = ("ansible_host_key_checking", "ansible_ssh_host_key_checking")
KNOWN = (
    *(*_HOST, *_PORT, *_USER, *_KEY, *_ARGUMENTS, *_TIMEOUT, *_PASSWORDS, *_HOST_KEY),
    *("ansible_connection", "ansible_become", "ansible_become_user", "ansible_become_method", "ansible_python_interpreter"),
    "ansible_group_priority",
)
_KINDS = ("ssh", "paramiko", "paramiko_ssh", "smart", "local")
_FLAGS = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}
_UNCHECKED = re.compile(r"stricthostkeychecking[\s=\"']+(?:no|off|accept-new)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Connection:
    """None leaves the choice to ~/.ssh/config. `ssh_args` are OpenSSH's options, already split into words."""

    host: str
    port: int | None = None
    user: str | None = None
    private_key: str | None = None
    ssh_args: tuple[str, ...] = ()
    local: bool = False
    become: bool = True
    python: str = "python3"
    timeout_s: int | None = None


@dataclass(frozen=True)
class _Asked:
    """The variables of one host, read by name with the place of each value."""

    host: str
    variables: Mapping[str, object]
    given: Mapping[str, document.Value]

    def read(self, keys: tuple[str, ...], parse: Callable[[object], T], allowed: str) -> T | None:
        found: T | None = None
        for key in keys:
            value = self.variables[key] if key in self.given else None
            if value is None:
                continue
            try:
                found = parse(value)
            except ValueError as error:
                raise self.problem(key, f"{key} must be {str(error) or allowed}, not {value!r}") from error
        return found

    def problem(self, key: str, message: str, hint: str = "") -> errors.Problem:
        return errors.Problem("inventory-invalid", f"{self.given[key].place}: {message}", hint=hint, host=self.host, variable=key)


def build(host: str, variables: Mapping[str, object], given: Mapping[str, document.Value], project_root: Path) -> Connection:
    asked = _Asked(host, variables, given)
    _refuse(asked)
    kind = asked.read(("ansible_connection",), _one_of(_KINDS), f"one of {', '.join(_KINDS)}") or "ssh"
    become = asked.read(("ansible_become",), _flag, "true or false")
    key = asked.read(_KEY, _text, "the path of a private key")
    python = asked.read(("ansible_python_interpreter",), _text, "the path of a Python")
    words = [asked.read((name,), _words, "OpenSSH options as on its command line") or [] for name in _ARGUMENTS]
    return Connection(
        host=asked.read(_HOST, _address, "a host name or an address") or host,
        port=asked.read(_PORT, _port, "a port from 1 to 65535"),
        user=asked.read(_USER, _text, "a user's name"),
        private_key=str(project_root / os.path.expanduser(key)) if key else None,  # noqa: PTH111 - a Path would raise for an unknown ~user
        ssh_args=tuple(word for part in words for word in part),
        local=kind == "local",
        become=True if become is None else become,
        python="python3" if python is None or python.startswith("auto") else python,
        timeout_s=asked.read(_TIMEOUT, _seconds, "a number of seconds"),
    )


def warnings(variable: str, value: document.Value) -> str | None:
    """What a reader of the inventory has to know about this value, whichever host it is for."""
    text = str(value.data).lower()
    if (variable in _HOST_KEY and _FLAGS.get(text) is False) or (variable in _ARGUMENTS and _UNCHECKED.search(text)):
        return f"{value.place}: {variable} does not take effect: host keys are always checked; 'invoke trust' records a new one"
    near = names.slip(variable, KNOWN) if variable.startswith("ansible") and variable not in KNOWN else None
    return f"{value.place}: '{variable}' is no connection variable; did you mean '{near}'?" if near else None


def _refuse(asked: _Asked) -> None:
    for key in _PASSWORDS:
        if key in asked.given:
            hint = "use a key or the agent for SSH, and --ask-become-pass for sudo"
            raise asked.problem(key, f"{key}: passwords are not taken from an inventory", hint)
    user = asked.read(("ansible_become_user",), _text, "root")
    if user not in {None, "root"}:
        raise asked.problem(
            "ansible_become_user", f"ansible_become_user must be root, not {user!r}", "Wattherd administers the machine as root"
        )
    method = asked.read(("ansible_become_method",), _text, "sudo")
    if method not in {None, "sudo", "ansible.builtin.sudo"}:
        raise asked.problem("ansible_become_method", f"ansible_become_method must be sudo, not {method!r}")


def _text(value: object) -> str:
    if isinstance(value, str) and value.strip() and value.isprintable():
        return value.strip()
    raise ValueError


def _address(value: object) -> str:
    text = _text(value)
    found = names.address(text) or text
    if "[" in found or "]" in found:
        raise ValueError("one address (ranges are not expanded in values)")
    if found.startswith("-") or any(c in found for c in " @/,"):
        raise ValueError
    return found


def _port(value: object) -> int:
    number = _whole(value)
    if not 1 <= number <= 65535:
        raise ValueError
    return number


def _seconds(value: object) -> int:
    number = _whole(value)
    if number < 1:
        raise ValueError
    return number


def _whole(value: object) -> int:
    """An INI file and an expression may hand over digits as text."""
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError  # noqa: TRY004 - the caller turns this one kind into a Problem
    return value


def _flag(value: object) -> bool:
    found = _FLAGS.get(str(value).lower())
    if found is None:
        raise ValueError
    return found


def _words(value: object) -> list[str]:
    if not isinstance(value, str):
        raise ValueError  # noqa: TRY004 - the caller turns this one kind into a Problem
    try:
        return shlex.split(value)
    except ValueError as error:
        raise ValueError("OpenSSH options with every quote closed") from error


def _one_of(allowed: tuple[str, ...]) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in allowed:
            raise ValueError
        return str(value)

    return parse
