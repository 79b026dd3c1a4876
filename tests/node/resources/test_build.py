"""The build resource: starting apart, attaching again, and every way in which a unit can end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.node import strict, tiny
from tests.node.resources.cases import build as cases
from wattherd import errors, records, store
from wattherd import machine as machines
from wattherd.resources import base, build, dpkg, means, outcome, transient, underway
from wattherd.wire import fields

ACTIVE = "Result=success\nActiveState=active\nActiveEnterTimestamp=Tue 2026-12-01 00:46:26 UTC\n"


def fix(one: build.Build, bench: strict.Bench) -> None:
    one.fix(bench.machine, base.delta(one.wanted(), one.actual(bench.machine)), bench.tell)


def refused(one: build.Build, bench: strict.Bench) -> errors.Problem:
    with pytest.raises(errors.Problem) as caught:
        fix(one, bench)
    return caught.value


def test_command_starts_a_unit_apart_from_the_session() -> None:
    one = build.Build("llama-cpp", "1" * 32, "a" * 64, 1, {}, (), ())
    argv = transient.start_argv(one.unit, "words", f"{one.folder}/unit.log", one.program(machines.Machine()))
    assert argv[:4] == ["systemd-run", "--quiet", "--unit=wattherd-build-111111111111.service", "--description=words"]
    properties = [word[11:] for word in argv if word.startswith("--property=")]
    assert {"Type=exec", "Nice=10", "PrivateNetwork=yes", "KillMode=control-group", "ProtectSystem=strict"} <= set(properties)
    assert "StandardOutput=append:/var/cache/wattherd/build/111111111111/unit.log" in properties
    assert not {"--pty", "--pipe", "--wait", "--collect"} & set(argv)
    home = "/var/cache/wattherd/build/111111111111"
    assert list(cases.program(argv))[:4] == [sys.executable, "-I", "-S", "-c"]
    assert list(cases.program(argv))[5:] == [f"{home}/program", f"{home}/spec.json"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ACTIVE, transient.Unit(running=True, result="success", since="Tue 2026-12-01 00:46:26 UTC")),
        (cases.IDLE, transient.Unit(running=False, result="success", since="just now")),
        ("ActiveState=activating\nResult=success\n", transient.Unit(running=True, result="success", since="just now")),
        ("ActiveState=deactivating\nResult=timeout\n", transient.Unit(running=True, result="timeout", since="just now")),
        ("ActiveState=failed\nResult=oom-kill\n", transient.Unit(running=False, result="oom-kill", since="just now")),
        ("", transient.Unit(running=False, result="", since="just now")),
    ],
)
def test_systemds_words(text: str, expected: transient.Unit) -> None:
    assert transient.parse(text) == expected


@pytest.mark.parametrize(
    ("cpus", "memory_mb", "per_job_mb", "asked", "expected"),
    [
        (2, 24000, 700, 0, 2),
        (12, 4000, 700, 0, 5),
        (4, 600, 700, 0, 1),
        (8, None, 700, 0, 8),
        (8, 24000, 700, 3, 3),
        (2, 24000, 700, 16, 2),
        (0, 0, 0, 0, 1),
    ],
)
def test_jobs_fit_cores_and_memory(cpus: int, memory_mb: int | None, per_job_mb: int, asked: int, expected: int) -> None:
    assert means.job_count(cpus, memory_mb, per_job_mb, asked) == expected


def test_finished_build_leaves_a_log_and_no_copy_of_the_program(bench: strict.Bench) -> None:
    one = cases.absent(bench)
    fix(one, bench)
    assert bench.machine.names(one.folder) == ["build.log", "progress.json", "result.json", "spec.json"]
    assert bench.machine.names(build.HOME) == [one.short, "tiny.lock"]
    assert bench.tell.words[0].startswith("building tiny b11434 with ")
    assert store.built(bench.machine, one.fingerprint) is not None


def test_source_is_needed_only_when_it_must_be_built(bench: strict.Bench) -> None:
    one = cases.settled(bench)
    bench.machine.unlink(store.blob(one.source))
    assert one.needs(bench.machine) == {}
    bench.machine.unlink(f"{store.BUILDS}/{one.fingerprint}.json")
    assert one.needs(bench.machine) == {one.source: one.source_bytes}


def test_shipped_release_that_vanished_from_the_store_is_drift(bench: strict.Bench) -> None:
    one = cases.settled(bench)
    recorded = store.recorded(bench.machine, one.fingerprint)
    assert recorded is not None
    bench.machine.unlink(store.blob(recorded.digest))
    assert one.actual(bench.machine) == {"fingerprint": "(its release is gone from the store)"}


class Detached:
    """systemd's part, played with a real process that outlives whoever started it."""

    def __init__(self, bench: strict.Bench, one: build.Build) -> None:
        self.bench = bench
        self.one = one
        self.process: subprocess.Popen[bytes] | None = None
        self.unit = ""
        self.starts = 0
        self.result = "success"
        bench.runner.plan("systemctl", "show", strict.REST, effect=self.show, times=None)
        bench.runner.plan("systemctl", "reset-failed", strict.REST, times=None)
        bench.runner.plan("systemctl", "stop", strict.REST, effect=self.stop, times=None)
        bench.runner.plan("systemd-run", strict.REST, effect=self.start, times=None)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, argv: Sequence[str]) -> None:
        self.starts += 1
        self.unit = next(word for word in argv if word.startswith("--unit=")).partition("=")[2]
        self.process = subprocess.Popen(cases.program(argv), start_new_session=True)

    def wait(self) -> None:
        """For the process, not for a clock."""
        assert self.process is not None
        self.process.wait(60)

    def show(self, argv: Sequence[str]) -> machines.Result:
        state = "active" if self.running and argv[2] == self.unit else "inactive"
        return machines.Result(0, f"ActiveState={state}\nResult={self.result}\nActiveEnterTimestamp=Tue\n".encode(), b"")

    def stop(self, _argv: Sequence[str]) -> None:
        """With all that it started, as KillMode=control-group has it."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class CutOffError(Exception):
    """The connection is gone: whatever was about to be told can not be."""


def hung_up(words: str, done: float = 0, total: float = 0, unit: str = "") -> None:
    del done, total, unit
    if not words.startswith("building"):
        raise CutOffError


#: Its configuration waits until the test lets it go, so that nothing here depends on how fast this machine is.
WAITING = tiny.CMAKE + 'message(STATUS "waiting")\nexecute_process(COMMAND sh -c "until [ -e ${GATE} ]; do sleep 0.05; done")\n'


def waiting(bench: strict.Bench, gate: str) -> build.Build:
    options = {"LLAMA_BUILD_NUMBER": "1", "GATE": bench.machine.path(gate)}
    return tiny.wanted(bench.machine, {"tiny/CMakeLists.txt": WAITING}, options=options)


def test_cut_connection_attaches_again_and_starts_nothing_twice(bench: strict.Bench) -> None:
    one = waiting(bench, "/gate")
    systemd = Detached(bench, one)
    with pytest.raises(CutOffError):
        one.fix(bench.machine, {}, hung_up)
    assert systemd.running
    assert one.actual(bench.machine) == {"fingerprint": "(being built)"}
    one.preflight(bench.machine, None)
    bench.put("/gate")
    bench.machine.on_wait = systemd.wait
    fix(one, bench)
    assert systemd.starts == 1
    assert bench.tell.words[0] == "re-attached to a build that is running since Tue"
    assert one.actual(bench.machine) == one.wanted()


def test_build_that_a_power_cut_ended_starts_anew_and_says_so(bench: strict.Bench) -> None:
    one = waiting(bench, "/gate")
    systemd = Detached(bench, one)
    with pytest.raises(CutOffError):
        one.fix(bench.machine, {}, hung_up)
    systemd.stop([])
    bench.put("/gate")
    bench.machine.on_wait = systemd.wait
    fix(one, bench)
    assert systemd.starts == 2
    assert bench.tell.words[0].startswith("an earlier build was cut off")
    assert one.actual(bench.machine) == one.wanted()


@pytest.mark.parametrize(
    ("result", "words"), [("oom-kill", "want of memory"), ("timeout", "12 h"), ("signal", "killed"), ("success", "stopped")]
)
def test_unit_that_ends_without_a_result_is_told(bench: strict.Bench, result: str, words: str) -> None:
    one = waiting(bench, "/gate")
    systemd = Detached(bench, one)
    systemd.result = result
    bench.machine.on_wait = lambda: systemd.stop([])
    problem = refused(one, bench)
    assert problem.code == "build-failed"
    assert words in problem.message
    assert one.log in problem.hint
    assert ("systemctl", "reset-failed", one.unit) in bench.runner.commands


def test_builders_problem_is_the_resources(bench: strict.Bench) -> None:
    cases.plan_unit(bench)
    one = tiny.wanted(bench.machine, {"tiny/server.c": "int main(void) { return nope; }\n"})
    problem = refused(one, bench)
    assert problem.code == "build-failed"
    assert "server.c:1:25: error: \u2018nope\u2019 undeclared" in problem.message
    assert problem.context["log"] == one.log
    assert one.actual(bench.machine) is None


def test_failed_build_can_be_tried_again(bench: strict.Bench) -> None:
    cases.plan_unit(bench)
    broken = tiny.wanted(bench.machine, {"tiny/server.c": "int main(void) { return nope; }\n"})
    refused(broken, bench)
    one = tiny.wanted(bench.machine)
    fix(one, bench)
    assert one.actual(bench.machine) == one.wanted()
    assert not any("cut off" in words for words in bench.tell.words)


def test_missing_tool_is_named_before_anything_starts(bench: strict.Bench) -> None:
    bench.runner.plan("systemctl", "show", strict.REST, out=cases.IDLE, times=None)
    problem = refused(tiny.wanted(bench.machine, tools=("cmake", "nvcc-of-nobody")), bench)
    assert problem.code == "build-tool-missing"
    assert problem.context["tool"] == "nvcc-of-nobody"


def test_a_tool_that_was_lost_is_foreseen_unless_its_package_is_still_to_come(bench: strict.Bench) -> None:
    bench.runner.plan("systemctl", "show", strict.REST, out=cases.IDLE, times=None)
    bench.put("/proc/meminfo", "MemAvailable:     9000000 kB\n")
    one = tiny.wanted(bench.machine, tools=("tool-of-nobody",), packages=("tool-of-nobody",))
    one.preflight(bench.machine, None)
    bench.put(dpkg.STATUS, "Package: tool-of-nobody\nStatus: install ok installed\nVersion: 1\n\n")
    with pytest.raises(errors.Problem) as caught:
        one.preflight(bench.machine, None)
    assert caught.value.code == "build-tool-missing"
    assert "apt-get install --reinstall tool-of-nobody" in caught.value.hint


def test_missing_package_is_installed_first(bench: strict.Bench) -> None:
    order: list[str] = []

    def install(_argv: Sequence[str]) -> None:
        order.append("install")
        bench.put("/var/lib/dpkg/status", "Package: cmake\nStatus: install ok installed\nArchitecture: amd64\n\n")

    bench.put("/var/lib/dpkg/status", "")
    bench.put("/var/lib/apt/lists/x_Packages", "")
    bench.runner.plan("apt-get", "install", strict.REST, effect=install)
    bench.runner.plan("systemctl", "show", strict.REST, out=cases.IDLE, times=None)
    bench.runner.plan("systemctl", "reset-failed", strict.REST, times=None)
    bench.runner.plan("systemd-run", strict.REST, effect=lambda argv: order.append("start") or cases.run_builder(argv))  # type: ignore[func-returns-value]
    fix(tiny.wanted(bench.machine, packages=("cmake",)), bench)
    assert order == ["install", "start"]


def test_cuda_is_found_where_no_unit_has_it_on_its_path(bench: strict.Bench) -> None:
    for name in ("cuda-12.6", "cuda-13.0"):
        bench.folder(f"/usr/local/{name}/bin")
    assert means.search_path(bench.machine, {}).endswith(":/bin:/usr/local/cuda-13.0/bin")
    bench.folder("/usr/local/cuda/bin")
    assert means.search_path(bench.machine, {"PATH": "/x"}) == "/x:/usr/local/cuda/bin"


def test_little_memory_is_said_before_anything_is_touched(bench: strict.Bench) -> None:
    one = cases.absent(bench)
    bench.put("/proc/meminfo", "MemAvailable:     300000 kB\nSwapFree:         100000 kB\n")
    with pytest.raises(errors.Problem) as caught:
        one.preflight(bench.machine, None)
    assert caught.value.code == "build-failed"
    assert "389 MiB" in caught.value.message
    bench.put("/proc/meminfo", "MemAvailable:     300000 kB\nSwapFree:         900000 kB\n")
    one.preflight(bench.machine, None)


def test_little_room_is_said_before_anything_is_touched(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    one = cases.absent(bench)
    monkeypatch.setattr(bench.machine, "free_bytes", lambda _path: means.ROOM_BYTES - 1)
    with pytest.raises(errors.Problem) as caught:
        one.preflight(bench.machine, None)
    assert caught.value.code == "disk-full"


def test_removal_stops_a_build_that_nobody_wants(bench: strict.Bench) -> None:
    one = waiting(bench, "/gate")
    systemd = Detached(bench, one)
    with pytest.raises(CutOffError):
        one.fix(bench.machine, {}, hung_up)
    assert one.actual(bench.machine) is not None, "or nobody would ask for its removal"
    assert one.ours(bench.machine)
    assert one.kept(bench.machine) == ""
    one.remove(bench.machine, bench.tell)
    assert not systemd.running
    assert one.gone(bench.machine)
    assert bench.machine.names(build.HOME) == ["tiny.lock"]


def test_a_build_for_an_older_word_of_the_inventory_is_ended_not_waited_for(bench: strict.Bench) -> None:
    older = waiting(bench, "/never")
    systemd = Detached(bench, older)
    with pytest.raises(CutOffError):
        older.fix(bench.machine, {}, hung_up)
    process = systemd.process
    assert process is not None
    one = records.replace(tiny.wanted(bench.machine), fingerprint="f" * 32)
    bench.machine.on_wait = systemd.wait
    fix(one, bench)
    assert one.actual(bench.machine) == one.wanted()
    assert process.poll() is not None
    assert ("systemctl", "stop", older.unit) in bench.runner.commands
    assert bench.tell.words[0] == f"stopping the build of tiny {older.short}, which is no longer wanted"


def test_a_build_of_something_else_goes_on(bench: strict.Bench) -> None:
    other = records.replace(waiting(bench, "/gate"), name="other", fingerprint="f" * 32)
    systemd = Detached(bench, other)
    with pytest.raises(CutOffError):
        other.fix(bench.machine, {}, hung_up)
    assert underway.begun(bench.machine, build.HOME) == {other.short: "other"}
    underway.end_others(bench.machine, build.HOME, "tiny", "0" * 12, bench.tell)
    assert systemd.running
    systemd.stop([])


def test_word_that_cannot_be_read_is_of_no_build(bench: strict.Bench) -> None:
    for short, text in (("a" * 12, "{half"), ("b" * 12, "[]"), ("c" * 12, '{"name": 1}')):
        bench.put(outcome.spec_path(f"{build.HOME}/{short}"), text)
    assert underway.begun(bench.machine, build.HOME) == {}


def test_removal_keeps_the_release_for_a_rollback(bench: strict.Bench) -> None:
    one = cases.settled(bench)
    bench.runner.plan("systemctl", "show", strict.REST, out=cases.IDLE, times=None)
    one.remove(bench.machine, bench.tell)
    assert one.actual(bench.machine) == one.wanted()
    assert "rollback" in bench.tell.words[-1]


@pytest.mark.parametrize(
    "wrong", [{"name": "../x"}, {"name": ""}, {"fingerprint": "../../../etc/x"}, {"fingerprint": "short"}, {"source": "x"}]
)
def test_nonsense_is_refused_when_the_manifest_is_read(wrong: dict[str, str]) -> None:
    entry = {"name": "x", "fingerprint": "1" * 16, "source": "a" * 64, "source_bytes": 1, "options": {}, "targets": [], "products": []}
    with pytest.raises(errors.Problem) as caught:
        fields.build(build.Build, {**entry, **wrong})
    assert caught.value.code == "manifest-invalid"


def test_result_that_was_cut_off_is_no_result(bench: strict.Bench) -> None:
    one = tiny.wanted(bench.machine)
    assert outcome.read_result(bench.machine, one.folder) == (None, False)
    bench.put(outcome.result_path(one.folder), '{"prob')
    assert outcome.read_result(bench.machine, one.folder) == (None, False)
    bench.put(outcome.result_path(one.folder), json.dumps({"build": {}}))
    assert outcome.read_result(bench.machine, one.folder) == (None, True)


def test_a_toolkit_without_nvcc_is_named_before_anything_compiles(bench: strict.Bench) -> None:
    bench.runner.plan("systemctl", "show", strict.REST, out="ActiveState=inactive\n", times=None)
    one = tiny.wanted(bench.machine, toolkit="/usr/local/cuda-12.6")
    with pytest.raises(errors.Problem) as caught:
        one.fix(bench.machine, {"fingerprint": (None, one.fingerprint)}, bench.tell)
    assert caught.value.code == "build-tool-missing"
    assert "no nvcc in /usr/local/cuda-12.6/bin" in caught.value.message
    assert "toolkit: wheels" in caught.value.hint


def test_own_programs_come_before_those_of_the_system(bench: strict.Bench) -> None:
    """A newer CMake from a wheel is found, whatever the distribution has."""
    one = tiny.wanted(bench.machine, programs="/opt/wattherd/cuda/cmake-3.31-0")
    bench.put("/opt/wattherd/cuda/cmake-3.31-0/bin/cmake", "", 0o755)
    found = means.find_tool(bench.machine, "cmake", one.search(bench.machine))
    assert found == bench.machine.path("/opt/wattherd/cuda/cmake-3.31-0/bin/cmake")
    assert means.find_tool(bench.machine, "sh", one.search(bench.machine)) is not None
