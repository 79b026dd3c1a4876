"""What can go wrong between the controller and a host: each is that host's value, with one clear error, and the others finish."""

from __future__ import annotations

import contextlib
import pathlib
import socket
from collections.abc import Iterator

import pytest

from tests.lab import cli, fleet, nodes

pytestmark = pytest.mark.lab
BASE = "roles: [base]\nbase:\n  files:\n    - {path: /etc/wattherd/here, text: here}\n"


def address(name: str) -> str:
    return next(node.address for node in fleet.status().nodes if node.name == name)


@pytest.fixture
def here(plain: tuple[str, str], tmp_path: pathlib.Path) -> cli.Project:
    """Two plain nodes, trusted, that should hold one file."""
    made = cli.project(tmp_path)
    first, second = plain
    made.hosts(**{first.replace("-", "_"): address(first), second.replace("-", "_"): address(second)})
    made.group(BASE)
    said = made.invoke("trust", "--hosts", "all", "--yes")
    assert said.code == 0, said.words
    return made


@contextlib.contextmanager
def undone(name: str, undo: list[str]) -> Iterator[None]:
    try:
        yield
    finally:
        assert nodes.run(name, undo).returncode == 0


def test_a_dead_host_beside_good_ones(here: cli.Project, plain: tuple[str, str]) -> None:
    dead, good = plain
    nodes.stop_sshd(dead)
    try:
        said = here.invoke("deploy", "--hosts", "all", "--json")
    finally:
        nodes.start_sshd(dead)
    assert said.code == 4, said.words
    assert said.host(dead)["status"] == "unreachable"
    assert said.host(dead)["problem"]["code"] == "unreachable"
    assert said.host(good)["status"] in {"ok", "changed"}, "the others finish"


def test_a_host_that_accepts_and_never_answers(here: cli.Project, plain: tuple[str, str]) -> None:
    mute, good = plain
    nodes.freeze_sshd(mute)
    try:
        said = here.invoke("deploy", "--hosts", "all", "--json", timeout_s=90)
    finally:
        nodes.thaw_sshd(mute)
    assert said.code == 4, said.words
    assert said.host(mute)["problem"]["code"] == "connect-timeout"
    assert said.host(good)["status"] in {"ok", "changed"}


def test_an_unknown_key_is_refused_with_the_command_that_records_it(here: cli.Project, plain: tuple[str, str]) -> None:
    (here.folder / "state").rename(here.folder / "state-before")
    said = here.invoke("deploy", "--hosts", plain[0], "--json")
    assert said.code == 4
    problem = said.host(plain[0])["problem"]
    assert problem["code"] == "host-key-unknown"
    assert f"invoke trust --hosts {plain[0]}" in problem["hint"]


def test_a_changed_key_is_refused_and_trust_does_not_take_it(here: cli.Project, plain: tuple[str, str]) -> None:
    first, second = plain
    swapped = cli.project(here.folder)
    swapped.hosts(**{first.replace("-", "_"): address(first)})
    known = next((here.folder / "state").rglob("known_hosts"))
    # The other node's keys under this one's name: what a machine in between would show.
    lines = [line.replace(address(second), address(first)) for line in known.read_text().splitlines() if line.startswith(address(second))]
    assert lines
    known.write_text("\n".join(lines) + "\n")
    said = swapped.invoke("deploy", "--hosts", first, "--json")
    assert said.code == 4
    assert said.host(first)["problem"]["code"] == "host-key-changed"
    again = swapped.invoke("trust", "--hosts", first, "--yes", "--json")
    assert again.code == 4
    assert again.host(first)["problem"]["code"] == "host-key-changed"
    assert known.read_text() == "\n".join(lines) + "\n", "nothing was recorded"


@contextlib.contextmanager
def profile(name: str, text: str) -> Iterator[None]:
    """`text` at the top of the login's .bashrc, for as long as the block lasts."""
    home = nodes.root(name) / "home/ops/.bashrc"
    before = home.read_text() if home.exists() else None
    home.write_text(text + (before or ""))
    try:
        yield
    finally:
        if before is None:
            home.unlink()
        else:
            home.write_text(before)


def test_login_noise_is_dropped(here: cli.Project, plain: tuple[str, str]) -> None:
    noisy = plain[0]
    with profile(noisy, "printf 'Welcome! \\033[33m\\nlast login: never\\nwattherd is cool\\n'; echo oops >&2\n"):
        said = here.invoke("ping", "--hosts", noisy, "--json")
    assert said.code == 0, said.words
    assert said.host(noisy)["status"] == "ok"


def test_a_profile_that_ends_the_session_is_named_with_its_words(here: cli.Project, plain: tuple[str, str]) -> None:
    noisy = plain[0]
    with profile(noisy, "echo 'maintenance tonight'; exit 0\n"):
        said = here.invoke("ping", "--hosts", noisy, "--json")
    assert said.code == 2, said.words
    problem = said.host(noisy)["problem"]
    assert problem["code"] == "login-noise"
    assert "maintenance tonight" in problem["message"]


def test_a_node_without_python(here: cli.Project, plain: tuple[str, str]) -> None:
    bare, good = plain
    hide = "mkdir -p /root/hidden && mv /usr/bin/python3* /root/hidden/"
    assert nodes.run(bare, ["sh", "-c", hide]).returncode == 0
    with undone(bare, ["sh", "-c", "mv /root/hidden/python3* /usr/bin/"]):
        said = here.invoke("deploy", "--hosts", "all", "--json")
        seen = here.invoke("ping", "--hosts", bare, "--json")
    assert said.code == 2, said.words
    assert said.host(bare)["problem"]["code"] == "python-missing"
    assert "apt-get install" in said.host(bare)["problem"]["hint"]
    assert said.host(good)["status"] in {"ok", "changed"}
    assert seen.code == 0, "it is reachable; that python is absent is a fact"
    assert seen.host(bare)["python"] is None


def test_sudo_that_wants_a_password(here: cli.Project, plain: tuple[str, str], model: pathlib.Path) -> None:
    """Also for the bulk copy of a model, which is a session of its own."""
    name = plain[0]
    here.write("inventory/models.yaml", f"models:\n  m: {{source: 'file:{model}'}}\n")
    here.group("roles: [base, models]\nmodels: [m]\n")
    nodes.run(name, ["sh", "-c", "rm -f /var/lib/wattherd/store/*"])
    here.write("inventory/host_vars/" + name + ".yaml", "ansible_user: carol\n")
    said = here.invoke("ping", "--hosts", name, "--json")
    assert said.code == 2, said.words
    assert said.host(name)["problem"]["code"] == "sudo-password-needed"
    assert "--ask-become-pass" in said.host(name)["problem"]["hint"]
    good = _with_password(here, "herd-lab", "deploy", "--hosts", name)
    assert good.code == 0, good.words
    wrong = _with_password(here, "no-such-word", "deploy", "--hosts", name)
    assert wrong.code == 2, wrong.words
    assert "sudo-password-wrong" in wrong.words
    assert "herd-lab" not in good.words, "a password is never printed"
    assert nodes.run(name, ["readlink", "/var/lib/wattherd/models/m.gguf"]).stdout.strip()


def _with_password(here: cli.Project, password: str, *words: str) -> cli.Said:
    """getpass reads the terminal, so the command gets a real one."""
    import os
    import pty

    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cli.ROOT)
        os.execvpe(here.argv()[0], here.argv(*words, "--ask-become-pass"), dict(here.environment))
    said = b""
    typed = False
    with contextlib.suppress(OSError):
        while block := os.read(terminal, 65536):
            said += block
            if not typed and b"sudo password" in said:
                os.write(terminal, password.encode() + b"\n")
                typed = True
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return cli.Said(os.waitstatus_to_exitcode(status), said.decode("utf-8", "replace"), "")


def test_the_machine_that_manages_itself(here: cli.Project, tmp_path: pathlib.Path) -> None:
    here.write("inventory/hosts.yaml", "all:\n  hosts:\n    self: {ansible_connection: local, ansible_become: false}\n")
    said = here.invoke("ping", "--hosts", "self", "--json")
    assert said.code == 0, said.words
    facts = here.invoke("facts", "--hosts", "self", "--json").host("self")["facts"]
    assert facts["system"]["hostname"] == socket.gethostname()
    assert tmp_path.exists()
