from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from wattherd import errors, inventory
from wattherd.inventory import connection

Load = Callable[..., inventory.Inventory]
Refuse = Callable[..., errors.Problem]


def _host(**variables: object) -> dict[str, str]:
    return {"hosts.yaml": "all:\n  hosts:\n    h:\n" + "".join(f"      {name}: {value}\n" for name, value in variables.items())}


def test_defaults(load: Load) -> None:
    assert load({"hosts": "h\n"}).host("h").connection == connection.Connection(host="h")
    assert connection.Connection(host="h") == connection.Connection("h", None, None, None, (), False, True, "python3", None)


@pytest.mark.parametrize(
    ("variables", "field", "value"),
    [
        ({"ansible_host": "10.0.0.7"}, "host", "10.0.0.7"),
        ({"ansible_ssh_host": "10.0.0.8", "ansible_host": "10.0.0.7"}, "host", "10.0.0.8"),
        ({"ansible_host": "'[fe80::7]'"}, "host", "fe80::7"),
        ({"ansible_host": "fe80::7%eth0"}, "host", "fe80::7%eth0"),
        ({"ansible_port": 2222}, "port", 2222),
        ({"ansible_port": "'2222'"}, "port", 2222),
        ({"ansible_ssh_port": 2223, "ansible_port": 2222}, "port", 2223),
        ({"ansible_user": "ops"}, "user", "ops"),
        ({"ansible_ssh_user": "ops"}, "user", "ops"),
        ({"ansible_private_key_file": "/k"}, "private_key", "/k"),
        ({"ansible_ssh_private_key_file": "'{{ wattherd_cache }}/lab/id'"}, "private_key", "/home/op/.cache/wattherd/lab/id"),
        (
            {"ansible_ssh_common_args": "-o ProxyJump=b", "ansible_ssh_extra_args": "'-o \"A B\"'", "ansible_ssh_args": "-C"},
            "ssh_args",
            ("-C", "-o", "ProxyJump=b", "-o", "A B"),
        ),
        ({"ansible_connection": "local"}, "local", True),
        ({"ansible_connection": "paramiko"}, "local", False),
        ({"ansible_become": False}, "become", False),
        ({"ansible_become": "'yes'"}, "become", True),
        ({"ansible_become_user": "root", "ansible_become_method": "sudo"}, "become", True),
        ({"ansible_python_interpreter": "/usr/bin/python3.9"}, "python", "/usr/bin/python3.9"),
        ({"ansible_python_interpreter": "auto_silent"}, "python", "python3"),
        ({"ansible_timeout": 7}, "timeout_s", 7),
        ({"ansible_ssh_timeout": 9, "ansible_timeout": 7}, "timeout_s", 9),
        ({"ansible_user": ""}, "user", None),  # an empty YAML value is null: as if it were not there
    ],
)
def test_reads(load: Load, variables: dict[str, object], field: str, value: object) -> None:
    assert getattr(load(_host(**variables)).host("h").connection, field) == value


def test_a_key_file_begins_at_the_project_or_at_home(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert load(_host(ansible_private_key_file="keys/id")).host("h").connection.private_key == str(tmp_path / "keys/id")
    assert load(_host(ansible_private_key_file="~/.ssh/id")).host("h").connection.private_key == "/home/me/.ssh/id"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ansible_host", "'10.0.0.[31]'", "ranges are not expanded in values"),
        ("ansible_host", "-oProxyCommand=x", "must be a host name or an address"),
        ("ansible_host", "ops@h", "must be a host name or an address"),
        ("ansible_port", 70000, "must be a port from 1 to 65535, not 70000"),
        ("ansible_port", True, "must be a port"),
        ("ansible_port", "ssh", "must be a port"),
        ("ansible_user", 5, "must be a user's name"),
        ("ansible_connection", "winrm", "must be one of ssh, paramiko, paramiko_ssh, smart, local, not 'winrm'"),
        ("ansible_become", "maybe", "must be true or false"),
        ("ansible_become_user", "admin", "must be root, not 'admin'"),
        ("ansible_become_method", "su", "must be sudo, not 'su'"),
        ("ansible_timeout", 0, "must be a number of seconds"),
        ("ansible_ssh_args", "[a]", "must be OpenSSH options"),
        ("ansible_ssh_args", "'-o \"a'", "every quote closed"),
        ("ansible_private_key_file", "[]", "must be the path of a private key"),
        *(
            (name, "hush", "passwords are not taken from an inventory")
            for name in ("ansible_password", "ansible_ssh_pass", "ansible_become_pass", "ansible_become_password")
        ),
    ],
)
def test_refuses(refuse: Refuse, name: str, value: object, said: str) -> None:
    problem = refuse(_host(**{name: value}))
    assert problem.code == "inventory-invalid"
    assert problem.message.startswith("inventory/hosts.yaml:4: ")
    assert name in problem.message
    assert said in problem.message
    assert problem.context["host"] == "h"


def test_a_refused_password_is_not_repeated(refuse: Refuse) -> None:
    problem = refuse(_host(ansible_become_password="hush"))
    assert "hush" not in f"{problem.message} {problem.hint} {problem.context}"
    assert "--ask-become-pass" in problem.hint


def test_a_password_of_a_host_that_is_not_selected_does_not_matter(load: Load) -> None:
    loaded = load({"hosts": "[mine]\na\n[theirs]\nb ansible_password=x\n"})
    assert [host.name for host in loaded.select("mine")] == ["a"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ansible_host_key_checking", "false"),
        ("ansible_ssh_host_key_checking", "'no'"),
        ("ansible_ssh_common_args", "-o StrictHostKeyChecking=no"),
        ("ansible_ssh_args", "'-o \"StrictHostKeyChecking off\"'"),
    ],
)
def test_host_keys_are_always_checked_and_that_is_told(load: Load, name: str, value: str) -> None:
    (warning,) = load(_host(**{name: value})).warnings
    assert warning == f"inventory/hosts.yaml:4: {name} does not take effect: host keys are always checked; 'invoke trust' records a new one"


@pytest.mark.parametrize(("name", "value"), [("ansible_host_key_checking", "true"), ("ansible_ssh_args", "-o StrictHostKeyChecking=yes")])
def test_what_is_safe_is_not_told(load: Load, name: str, value: str) -> None:
    assert load(_host(**{name: value})).warnings == ()


def test_a_mistyped_connection_variable_is_told(load: Load) -> None:
    assert load(_host(ansible_hots="1.2.3.4")).warnings == (
        "inventory/hosts.yaml:4: 'ansible_hots' is no connection variable; did you mean 'ansible_host'?",
    )
    assert load(_host(ansible_shell_type="sh")).warnings == ()
