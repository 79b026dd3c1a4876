"""The doctor's reading, on a node of files and planned programs: what is asked, what is never started, and that nothing is written."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping, Sequence

import pytest

from tests.node import strict
from tests.node.resources import proxy_fake
from wattherd import machine as machines
from wattherd.node import doctor, examine, generations, session
from wattherd.wire import finding

RELEASE = "/opt/wattherd/releases/f-b11434-cpu"
SERVER = f"{RELEASE}/bin/llama-server"
UNIT = "llama@smol.service"
HELP = "--port N (env: LLAMA_ARG_PORT)\n"


def row(at_s: int, text: str, *, manager: bool = False) -> str:
    document = {"__REALTIME_TIMESTAMP": str(at_s * 1_000_000), "MESSAGE": text, "_PID": "1" if manager else "77", "INVOCATION_ID": "a"}
    return json.dumps(document)


HEALTHY = "\n".join([row(1, f"Started {UNIT}", manager=True), row(2, "0.01.0.0 I srv  llama_server: model loaded")])


class Node:
    """A node with one served unit, healthy until a test says otherwise."""

    def __init__(self, bench: strict.Bench) -> None:
        self.bench = bench
        self.state = {
            "Id": UNIT, "LoadState": "loaded", "ActiveState": "active", "SubState": "running", "MainPID": "77", "NRestarts": "0",
            "Result": "success", "Type": "simple",
        }  # fmt: skip
        self.more = {"RestartUSec": "5s", "StartLimitIntervalUSec": "10s", "StartLimitBurst": "5", "Environment": "HOME=/nonexistent"}
        self.journal = HEALTHY
        self.kernel = "Dec 01 node kernel: fine\n"
        self.options = {"LLAMA_BUILD_NUMBER": "11434", "GGML_CUDA": "OFF"}
        self.units = [UNIT]
        bench.put(SERVER, "#!/bin/sh\n", mode=0o755)
        bench.link("/opt/wattherd/current", RELEASE)
        manifest = {"manifest": 1, "host": "n", "resources": [{"id": f"unit:{UNIT}", "type": "unit", "role": "s", "spec": {"name": UNIT}}]}
        record = {"number": 1, "digest": "d", "applied_at": "t", "manifest": manifest}
        bench.put("/var/lib/wattherd/generations/1.json", json.dumps(record))
        bench.put("/proc/77/comm", "llama-server\n")
        bench.put("/proc/77/cgroup", f"0::/system.slice/{UNIT}\n")
        bench.put("/proc/77/cmdline", "llama-server\0--port\08080\0")
        bench.put("/proc/77/environ", "HOME=/nonexistent\0XDG_CONFIG_HOME=/nonexistent\0")
        bench.link("/proc/77/exe", SERVER)
        bench.link("/proc/77/fd/1", "socket:[1]")

    def look(self) -> list[finding.Finding]:
        runner = self.bench.runner
        self.bench.put(f"{RELEASE}/release.json", json.dumps({"options": self.options}))
        show = "\n\n".join("\n".join(f"{key}={value}" for key, value in self.state.items()) for _ in self.units)
        more = "\n\n".join("\n".join(f"{key}={value}" for key, value in {"Id": UNIT, **self.more}.items()) for _ in self.units)
        runner.plan("journalctl", "-k", strict.REST, out=self.kernel, times=None)
        runner.plan("dmesg", times=None)
        runner.plan("journalctl", "--sync", times=None)
        runner.plan("journalctl", "-b", "-u", strict.REST, out=self.journal, times=None)
        listed = "".join(f"{name} loaded active running x\n" for name in self.units)
        runner.plan("systemctl", "list-units", strict.REST, out=listed, times=None)
        # Two looks, told apart by what they ask for.
        runner.plan("systemctl", "show", "-p", strict.REST, effect=lambda argv: self._shown(argv, show, more), times=None)
        runner.plan("ldd", strict.REST, out="\tlibc.so.6 => /lib/libc.so.6\n", times=None)
        for path in (SERVER, "/usr/local/bin/llama-server"):
            runner.plan(path, "--version", err="version: 0.6.0-dev (build 11434, commit abc)\n", times=None)
            runner.plan(path, "--help", out=HELP, times=None)
        runner.plan(SERVER, "--list-devices", out="Available devices:\n  (none)\n", times=None)
        before = self.bench.tree()
        told = doctor.look(self.bench.machine, lambda _words: None)
        assert self.bench.tree() == before, "a verb that only looks wrote something"
        found = told["findings"]
        assert isinstance(found, list)
        return [finding.decode(one) for one in found]

    def _shown(self, argv: Sequence[str], show: str, more: str) -> machines.Result:
        return machines.Result(0, (more if "RestartUSec" in argv[3] else show).encode(), b"")

    def ran(self, *words: str) -> bool:
        return any(command[: len(words)] == words for command in self.bench.runner.commands)


@pytest.fixture
def node(bench: strict.Bench) -> Node:
    return Node(bench)


def codes(found: Sequence[finding.Finding]) -> list[str]:
    return [one.code for one in found]


def test_a_healthy_node_has_nothing(node: Node) -> None:
    assert node.look() == []
    assert not node.ran("nvidia-smi")
    assert not node.ran(SERVER, "--list-devices"), "a CPU build has no devices to list"


def test_a_bare_node_says_so_and_is_looked_at_all_the_same(bench: strict.Bench) -> None:
    bench.runner.plan("journalctl", "-k", strict.REST, out="NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.\n")
    bench.runner.plan("systemctl", "list-units", strict.REST)
    bench.runner.plan("journalctl", "--sync")
    told = doctor.look(bench.machine, lambda _words: None)
    found = [finding.decode(one) for one in told["findings"]]
    assert codes(found) == ["card-lost", "nothing-installed"]
    assert found[1].severity == finding.NOTE


def test_a_node_where_only_the_keeper_was_deployed_is_not_called_bare(bench: strict.Bench) -> None:
    bench.put(generations.OWNED, '{"power-policy:node": {}}')
    bench.runner.plan("journalctl", "-k", strict.REST, out="kernel: all is well\n")
    bench.runner.plan("systemctl", "list-units", strict.REST)
    bench.runner.plan("journalctl", "--sync")
    assert doctor.look(bench.machine, lambda _words: None)["findings"] == []


def test_variables_of_the_process_and_of_the_unit_are_both_read(node: Node) -> None:
    node.bench.put("/proc/77/environ", "HOME=/nonexistent\0LLAMA_ARG_PORT=\0LLAMA_API_KEY=s3cret\0")
    node.bench.put("/etc/wattherd/extra.env", "LLAMA_ARG_ODD=s3cret\n")
    node.more["EnvironmentFiles"] = "/etc/wattherd/extra.env (ignore_errors=no)"
    found = node.look()
    assert codes(found) == ["env-empty", "env-unknown"]
    assert "s3cret" not in str(found)


@pytest.mark.parametrize(
    ("place", "severity"), [("/proc/77/root/etc/llama.cpp/config.ini", "warning"), ("/etc/llama.cpp/config.ini", "note")]
)
def test_a_stray_config_is_judged_by_what_the_process_itself_sees(node: Node, place: str, severity: str) -> None:
    node.bench.put(place, "[server]\n")
    (found,) = node.look()
    assert (found.code, found.severity, found.where) == ("stray-config", severity, "/etc/llama.cpp/config.ini")


def test_a_config_that_the_unit_hides_from_its_next_start_on_is_not_read_by_it(node: Node) -> None:
    node.bench.put("/proc/77/root/etc/llama.cpp/config.ini", "x")
    node.bench.put("/etc/llama.cpp/config.ini", "x")
    node.more["InaccessiblePaths"] = "-/etc/llama.cpp /srv"
    (found,) = node.look()
    assert (found.code, found.severity) == ("stray-config", finding.NOTE)


def test_an_empty_key_file_is_read_where_the_command_line_names_it(node: Node) -> None:
    node.bench.put("/proc/77/cmdline", "llama-server\0--api-key-file\0/etc/wattherd/keys\0")
    node.bench.put("/etc/wattherd/keys", "# nobody yet\n")
    (found,) = node.look()
    assert (found.code, "/etc/wattherd/keys" in found.words) == ("key-empty", True)


@pytest.mark.timeout(60)
def test_what_a_process_calls_its_key_file_is_no_trap_for_root(tmp_path: pathlib.Path) -> None:
    """Whoever may start a process called llama-server chooses its words and variables."""
    (tmp_path / "zero").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "big").open("wb") as big:
        big.truncate(1 << 40)
    (tmp_path / "keys").write_text("one\n")
    machine = machines.Machine(str(tmp_path))
    read = {name: examine._small_file(machine, f"/{name}") for name in ("zero", "pipe", "big", "absent", "keys")}
    assert read == {"zero": None, "pipe": None, "big": None, "absent": None, "keys": b"one\n"}


def test_a_config_that_was_deployed_is_not_stray(node: Node) -> None:
    node.bench.put("/etc/llama.cpp/config.ini", "x")
    owned = {"file:/etc/llama.cpp/config.ini": {"created": True, "entry": {}}, f"unit:{UNIT}": {"created": True, "entry": {}}}
    node.bench.put("/var/lib/wattherd/owned.json", json.dumps(owned))
    assert node.look() == []


def test_another_binary_is_told_and_one_that_others_may_write_is_never_started(node: Node) -> None:
    node.bench.put("/usr/local/bin/llama-server", "#!/bin/sh\n", mode=0o777)
    node.bench.machine.unlink("/proc/77/exe")
    node.bench.link("/proc/77/exe", "/usr/local/bin/llama-server")
    (found,) = node.look()
    assert found.code == "other-binary-runs"
    assert "unknown build" in found.words
    assert not node.ran("/usr/local/bin/llama-server")


def test_a_binary_that_only_root_may_write_is_asked_for_its_number(node: Node) -> None:
    node.bench.put("/usr/local/bin/llama-server", "#!/bin/sh\n", mode=0o755)
    node.bench.machine.unlink("/proc/77/exe")
    node.bench.link("/proc/77/exe", "/usr/local/bin/llama-server")
    (found,) = node.look()
    assert "build 11434 (abc)" in found.words
    assert node.ran("/usr/local/bin/llama-server", "--version")


def test_a_process_cannot_choose_the_libraries_of_what_root_starts(node: Node) -> None:
    node.options["GGML_CUDA"] = "ON"
    node.bench.put("/proc/77/environ", "HOME=/nonexistent\0LD_LIBRARY_PATH=/tmp/mine\0")
    node.more["Environment"] = "LD_LIBRARY_PATH=/opt/cuda/lib"
    found = node.look()
    assert codes(found) == ["no-gpu-visible", "no-gpu-visible"], "by itself, and as it runs"
    given = [call.environment.get("LD_LIBRARY_PATH") for call in node.bench.runner.ran if call.argv[0] in {SERVER, "ldd"}]
    assert "/opt/cuda/lib" in given
    assert "/tmp/mine" not in given


def test_a_folder_that_somebody_else_writes_is_no_library_path_of_roots(node: Node) -> None:
    node.options["GGML_CUDA"] = "ON"
    pathlib.Path(node.bench.machine.path("/srv/theirs")).mkdir(parents=True)
    pathlib.Path(node.bench.machine.path("/srv/theirs")).chmod(0o777)
    node.more["Environment"] = "LD_LIBRARY_PATH=/srv/theirs/lib:/opt/cuda/lib:relative"
    node.look()
    given = {call.environment.get("LD_LIBRARY_PATH") for call in node.bench.runner.ran if call.argv[0] in {SERVER, "ldd"}}
    assert given - {None} == {"/opt/cuda/lib"}


def test_a_failed_unit_is_explained_from_its_journal(node: Node) -> None:
    node.state.update(ActiveState="failed", SubState="failed", MainPID="0", Result="exit-code", ExecMainCode="1", ExecMainStatus="1")
    node.bench.machine.remove_tree("/proc/77")
    node.journal = "\n".join(
        [
            row(1, f"Started {UNIT}", manager=True),
            row(2, "0.0.0.1 E gguf_init_from_reader: failed to read key-value pairs"),
            row(3, f"{UNIT}: Main process exited, code=exited, status=1/FAILURE", manager=True),
            row(3, f"{UNIT}: Failed with result 'exit-code'.", manager=True),
        ]
    )
    assert codes(node.look()) == ["unit-failed", "model-cut"]


def test_a_unit_whose_file_is_gone(node: Node) -> None:
    node.state.update(LoadState="not-found", ActiveState="inactive", MainPID="0")
    node.bench.machine.remove_tree("/proc/77")
    (found,) = node.look()
    assert (found.code, found.do) == ("unit-missing", "invoke deploy writes it anew")


def test_a_run_that_was_cut_short_is_remembered(node: Node) -> None:
    node.bench.put(
        "/var/lib/wattherd/journal.json", json.dumps({"started_at": "2026-12-01T04:00:00Z", "resource": "unit:x", "verb": "apply"})
    )
    assert "run-interrupted" in codes(node.look())


def test_a_node_between_two_generations(node: Node) -> None:
    node.bench.put("/var/lib/wattherd/unsettled", "")
    (found,) = node.look()
    assert (found.code, found.severity) == ("between-generations", finding.NOTE)


def test_a_server_that_the_front_proxy_keeps_requests_from(node: Node) -> None:
    socket = "/run/wattherd-proxy/master.sock"
    record = json.loads((pathlib.Path(node.bench.machine.path("/var/lib/wattherd/generations/1.json"))).read_text())
    record["manifest"]["resources"][0]["spec"]["drain"] = {"socket": socket, "server": "smol/llama", "limit_s": "60"}
    node.bench.put("/var/lib/wattherd/generations/1.json", json.dumps(record))
    assert node.look() == [], "no proxy runs"
    with proxy_fake.running(node.bench, socket, proxy_fake.Worker(220, [proxy_fake.Row("smol/llama")])):
        assert node.look() == [], "it lets requests on"
    with proxy_fake.running(node.bench, socket, proxy_fake.Worker(220, [proxy_fake.Row("smol/llama", drained=True)])):
        (found,) = node.look()
    assert (found.code, found.severity, found.where) == ("held-back", finding.ERROR, UNIT)


def test_cards_by_sysfs_that_the_driver_does_not_drive(node: Node) -> None:
    for bus, taken in (("0000:01:00.0", "nvidia"), ("0000:02:00.0", ""), ("0000:03:00.0", "vfio-pci")):
        node.bench.put(f"/sys/bus/pci/devices/{bus}/vendor", "0x10de\n")
        node.bench.put(f"/sys/bus/pci/devices/{bus}/class", "0x030000\n")
        if taken:
            node.bench.link(f"/sys/bus/pci/devices/{bus}/driver", f"../../../bus/pci/drivers/{taken}")
    node.bench.put("/sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de\n")  # a card's sound function
    node.bench.put("/sys/bus/pci/devices/0000:01:00.1/class", "0x040300\n")
    node.bench.put("/proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA A100\nGPU UUID: \t GPU-1\n")
    found = {one.code: one for one in node.look()}
    assert found["card-missing"].where == "card 0000:02:00", "the guest's card and the sound function are nobody's loss"
    assert "built-without-cuda" in found


def test_a_server_behind_a_script_is_found_by_its_own_process(node: Node) -> None:
    node.state["MainPID"] = "70"
    node.bench.put("/proc/70/comm", "sh\n")
    node.bench.put("/proc/70/environ", "LLAMA_ARG_PORT=\0")
    node.bench.link("/proc/70/exe", "/usr/bin/dash")
    assert node.look() == [], "the script is not the server"


def test_a_server_of_no_unit_is_noted(node: Node) -> None:
    node.bench.put("/proc/99/comm", "llama-server\n")
    node.bench.put("/proc/99/cgroup", "0::/user.slice/user-1000.slice/session-3.scope\n")
    node.bench.link("/proc/99/exe", "/home/x/llama-server")
    (found,) = node.look()
    assert (found.code, found.severity, found.where) == ("server-without-unit", finding.NOTE, "process 99")
    assert "/home/x/llama-server" in found.words


def test_what_a_server_said_when_it_started_is_found_after_a_million_requests(node: Node) -> None:
    node.journal = "\n".join(row(5000 + number, "I request done") for number in range(6000))
    begun_s = node.bench.machine.now_s() - 1000
    node.more["ExecMainStartTimestampMonotonic"] = str(int((node.bench.machine.monotonic_s() - 1000) * 1e6))
    first = "\n".join([row(1, f"Started {UNIT}", manager=True), row(2, "W DEPRECATED: --mmap is deprecated. use --load-mode mmap instead")])
    words = ("journalctl", "-b", "-u", UNIT, "--no-pager", "--quiet", "-o", "json")
    fields = "--output-fields=MESSAGE,_PID,_SYSTEMD_INVOCATION_ID,INVOCATION_ID"
    node.bench.runner.plan(*words, fields, "-n", "6000", "--since", f"@{begun_s - 1:.6f}", "--until", f"@{begun_s + 600:.6f}", out=first)
    assert codes(node.look()) == ["option-deprecated"]


def test_the_session_knows_the_verb() -> None:
    import io

    assert "doctor" in session.Session(machines.Machine("/"), io.BytesIO(), io.BytesIO()).verbs


def test_findings_come_worst_first_and_are_bounded(node: Node) -> None:
    node.kernel = "".join(f"NVRM: Xid (PCI:0000:{number:02x}:00): {kind}, x\n" for number in range(80) for kind in (43, 79))
    found = node.look()
    assert len(found) == doctor.FINDINGS_LIMIT
    assert [one.rank for one in found] == sorted(one.rank for one in found)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb\x07c\nd", "ab�c d"),
        ("--api-key=hunter2hunter2", "--api-key=…"),
        ("LLAMA_API_KEY=hunter2hunter2 x", "LLAMA_API_KEY=… x"),
        ("token: hunter2hunter2hunter", "token: …"),
        ("Bearer abcdefghijkl", "Bearer …"),
        ("hf_abcdefghijklmnop", "hf_…"),
        ("prompt of 28960 tokens in 3463 MiB (122 KiB a token)", "prompt of 28960 tokens in 3463 MiB (122 KiB a token)"),
        ("the pre-tokenizer 'x' is unknown", "the pre-tokenizer 'x' is unknown"),
        ("--api-key-file: failed to open", "--api-key-file: failed to open"),
    ],
)
def test_what_may_be_shown(text: str, shown: str) -> None:
    assert finding.plain_line(text) == shown


def test_what_a_node_sends_is_bounded_again() -> None:
    document: Mapping[str, object] = {"code": "c" * 999, "severity": "fine, honestly", "where": "w" * 999, "words": "x\x1b[2J" * 999}
    told = finding.decode(document)
    assert told.severity == finding.ERROR
    assert max(len(told.code), len(told.where)) <= 200
    assert len(told.words) <= 600
    assert "\x1b" not in told.words
