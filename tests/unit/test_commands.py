"""The command line as a child process, without any host: flags, selection, errors, exit codes, a project of one's own."""

from __future__ import annotations

import inspect
import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.lab import tasks as lab_tasks
from wattherd import tasks

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HOSTS = """\
all:
  children:
    rigs:
      hosts:
        rig[1:3]: {ansible_host: 192.0.2.1}
    lone:
      hosts:
        mono: {ansible_host: 192.0.2.9}
"""


@pytest.fixture
def inventory(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "inventory"
    (folder / "group_vars").mkdir(parents=True)
    (folder / "hosts.yaml").write_text(HOSTS)
    (folder / "group_vars/all.yaml").write_text("roles: [base]\nword: everywhere\n")
    (folder / "group_vars/rigs.yaml").write_text("word: on rigs\n")
    return folder


def invoke(folder: pathlib.Path, *words: str, cwd: pathlib.Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "WATTHERD_INVENTORY": str(folder), "WATTHERD_STATE": str(folder.parent / "state"), "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "invoke", *words], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--hosts", "rigs"], ["rig1", "rig2", "rig3"]),
        (["--hosts", "all", "--limit", "!rigs"], ["mono"]),
        (["--hosts", "rigs[0:1]"], ["rig1", "rig2"]),
        (["--hosts", "rig*:&rigs:!rig2"], ["rig1", "rig3"]),
        (["--hosts", "~mo.o"], ["mono"]),
        (["--hosts", "rig1,mono"], ["rig1", "mono"]),
    ],
)
def test_list_hosts_prints_the_selection_and_stops(inventory: pathlib.Path, words: list[str], names: list[str]) -> None:
    done = invoke(inventory, "deploy", *words, "--list-hosts", "--json")
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(done.stdout)["hosts"]) == sorted(names)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["deploy"], "--hosts must say"),
        (["deploy", "--hosts", "rgs"], "rigs"),
        (["deploy", "--hosts", "rig1", "--forks", "0"], "--forks 0"),
        (["deploy", "--hosts", "rig1", "--serial", "many"], "--serial"),
        (["deploy", "--hosts", "rig1", "--extra-vars", "just words"], "--extra-vars"),
        (["deploy", "--hosts", "rig1", "--inventory", "/no/such/place"], "/no/such/place"),
        (["deploy", "--hosts", "rig1", "--tags", "bas"], "base"),
        (["deploy", "--hosts", "rig1", "-x"], "-x"),
        (["deploy", "--no-such-flag"], "no-such-flag"),
        (["ask", "--hosts", "rig1"], "prompt"),
        (["ask", "--hosts", "rig1", ""], "nothing to ask"),
        (["ask", "--hosts", "rig1", "hi", "--max-tokens", "0"], "--max-tokens 0"),
        (["ask", "--hosts", "rig1", "hi", "--timeout", "soon"], "--timeout soon"),
        (["rollback", "--hosts", "rig1", "--to", "abc"], "--to abc"),
        (["rollback", "--hosts", "rig1", "--to", "0"], "--to 0"),
        (["rollback", "--hosts", "rig1", "--to=-1"], "--to -1"),
        (["power-tune"], "--hosts must say"),
        (["power-tune", "--hosts", "rig1", "--weight", "speed"], "--weight speed"),
        (["power-tune", "--hosts", "rig1", "--floor", "0"], "--floor 0"),
        (["power-tune", "--hosts", "rig1", "--steps", "1"], "--steps 1"),
        (["power-tune", "--hosts", "rig1", "--hours-per-day", "25"], "--hours-per-day 25"),
        (["models", "--model", "nope"], "it has: none"),
        (["power-status", "--watch", "soon"], "--watch soon"),
        (["power-status", "--watch", "0"], "--watch 0"),
        (["power-status", "--hosts", "rgs"], "rigs"),
        (["power-apply"], "--hosts must say"),
        (["power-apply", "--hosts", "rgs"], "rigs"),
        (["power-apply", "--hosts", "rig1", "--tags", "powr"], "power"),
        (["power-apply", "--hosts", "rig1", "--extra-vars", "power={limit: 0.8}"], "power.limit must be watts (250), per cent"),
        (["power-apply", "--hosts", "rig1", "--restore", "--tags", "power"], "--restore goes back whole"),
        (["power-apply", "--hosts", "rig1", "--restore", "--extra-vars", "power={limit: 0.8}"], "power.limit must be watts (250)"),
        (["no-such-command"], "no-such-command"),
    ],
)
def test_a_wrong_word_ends_with_exit_code_1_and_is_named(inventory: pathlib.Path, words: list[str], told: str) -> None:
    done = invoke(inventory, *words)
    assert done.returncode == 1, done.stdout + done.stderr
    assert told in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_no_task_has_a_number_that_invoke_would_read() -> None:
    """A wrong one would end in a trace of Python before any code of ours is reached."""
    for task in (*tasks._TASKS, lab_tasks.up):
        for name, one in inspect.signature(task.body).parameters.items():
            assert isinstance(one.default, bool) or not isinstance(one.default, int | float), f"{task.name} --{name}"


def test_under_json_an_error_is_a_document_and_the_words_go_to_stderr(inventory: pathlib.Path) -> None:
    done = invoke(inventory, "deploy", "--hosts", "rgs", "--json")
    assert done.returncode == 1
    problem = json.loads(done.stdout)["problem"]
    assert problem["code"] == "unknown-host"
    assert "rigs" in problem["hint"]
    assert "unknown-host" in done.stderr


def test_explain_shows_every_candidate_and_the_winner(inventory: pathlib.Path) -> None:
    done = invoke(inventory, "inventory-show", "--hosts", "rig1", "--explain", "word")
    assert done.returncode == 0, done.stderr
    assert "everywhere" in done.stdout
    winner = next(line for line in done.stdout.splitlines() if line.startswith("->"))
    assert "on rigs" in winner
    assert "rigs.yaml:1" in winner


def test_extra_vars_are_the_strongest_and_may_be_repeated(inventory: pathlib.Path) -> None:
    done = invoke(
        inventory,
        "inventory-show",
        "--hosts",
        "rig1",
        "--explain",
        "word",
        "--extra-vars",
        "word=one",
        "--extra-vars",
        "{word: two}",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["hosts"]["rig1"]["candidates"][-1]["value"] == "two"


def test_every_command_of_this_page_has_help_and_no_automatic_short_flags(inventory: pathlib.Path) -> None:
    listed = invoke(inventory, "--list").stdout
    for name in (
        "deploy",
        "power-apply",
        "trust",
        "ping",
        "facts",
        "ask",
        "history",
        "power-status",
        "rollback",
        "remove",
        "inventory-show",
        "init",
        "demo",
        "check",
        "test",
        "golden",
    ):
        assert f"  {name} " in listed
        told = invoke(inventory, "--help", name)
        assert told.returncode == 0, name
        assert "STRING, --hosts" not in told.stdout, f"{name} has a short flag"
    for name in ("lab.up", "lab.status", "lab.test", "lab.down"):
        assert f"  {name} " in listed


def test_a_project_of_ones_own(tmp_path: pathlib.Path) -> None:
    home = tmp_path / "herd"
    made = invoke(tmp_path / "unset", "init", str(home))
    assert made.returncode == 0, made.stderr
    environment = {key: value for key, value in os.environ.items() if not key.startswith("WATTHERD_")}
    shown = subprocess.run(
        [sys.executable, "-m", "invoke", "inventory-show", "--json"],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert list(json.loads(shown.stdout)["hosts"]) == ["my-first-box"]
    again = invoke(tmp_path / "unset", "init", str(home))
    assert again.returncode == 1
    assert "already there" in again.stdout + again.stderr


def test_ci_runs_the_command_that_the_readme_prints() -> None:
    """What .ci/run cuts out of the README is one command that ends in the tests."""
    cut = next(line for line in (ROOT / ".ci/run").read_text().splitlines() if line.startswith("command="))
    done = subprocess.run(["bash", "-c", f'{cut}\nprintf %s "$command"'], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("apt-get update")
    assert done.stdout.rstrip().endswith("invoke test")
    assert "requirements.lock" in done.stdout


def test_remove_asks_nothing_before_it_knows_which_hosts(inventory: pathlib.Path) -> None:
    done = invoke(inventory, "remove", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["problem"]["code"] == "hosts-required"


@pytest.mark.parametrize(
    "words",
    [
        ["remove", "--yes"],
        ["power-apply", "--restore", "--reboot"],
        ["rollback"],
        ["trust"],
        ["models-gc", "--delete", "--yes"],
        ["ask", "hi"],
        ["ping"],
    ],
)
def test_every_command_that_only_lists_hosts_stops_there(inventory: pathlib.Path, words: list[str]) -> None:
    done = invoke(inventory, *words, "--hosts", "rigs", "--list-hosts", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"hosts": ["rig1", "rig2", "rig3"]}
