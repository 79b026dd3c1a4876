"""What systemd was recorded to say, read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node import strict
from wattherd import errors
from wattherd.resources import systemd

RECORDED = Path(__file__).parent / "recorded"
NAMES = [
    *("simple.service", "once.service", "kept.service", "crash.service", "noexec.service", "bad.service", "worse.service"),
    *("tick.timer", "cond.service", "mk.service", "none.service", "dbus.socket"),
]
LOADED = [*NAMES[:8], "t@a.service", *NAMES[8:]]


def _recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def test_loaded_units() -> None:
    seen = systemd.parse(_recorded("show-252-loaded.txt"), LOADED)
    assert {name: one.load for name, one in seen.items() if one.load != "loaded"} == {
        "bad.service": "bad-setting",
        "worse.service": "error",
        "mk.service": "masked",
        "none.service": "not-found",
    }
    assert seen["mk.service"].masked
    assert not seen["none.service"].found
    assert seen["simple.service"].file_state == "disabled"
    assert seen["t@a.service"].fragment == "/etc/systemd/system/t@.service"
    assert all(one.ended for name, one in seen.items() if name != "dbus.socket")


def test_started_units() -> None:
    seen = systemd.parse(_recorded("show-252-started.txt"), NAMES)
    assert (seen["simple.service"].pid, seen["simple.service"].cgroup) == (41, "/system.slice/simple.service")
    assert seen["simple.service"].running
    assert seen["once.service"].runs_once
    assert seen["once.service"].invocation == ""
    assert not seen["kept.service"].runs_once
    assert seen["kept.service"].running
    assert (seen["crash.service"].active, seen["crash.service"].restarts) == ("failed", 5)
    assert seen["tick.timer"].running
    assert seen["tick.timer"].pid == 0
    assert not any(one.waiting for one in seen.values())


def test_how_a_process_ended() -> None:
    seen = systemd.parse(_recorded("show-252-started.txt"), NAMES)
    assert seen["crash.service"].exit_words == "ended with exit status 1"
    assert seen["noexec.service"].exit_words == "ended with exit status 203"
    assert seen["tick.timer"].exit_words == "did not start"
    assert "built for another CPU" in systemd.Seen("x", exit_code="2", exit_status=4).exit_words
    assert systemd.Seen("x", exit_code="3", exit_status=11).exit_words == "ended by signal 11"
    assert systemd.Seen("x", result="resources").exit_words == "result: resources"


def test_one_look_serves_all(bench: strict.Bench) -> None:
    bench.runner.plan("systemctl", "show", strict.REST, out=_recorded("show-252-started.txt"))
    assert list(systemd.look(bench.machine, NAMES)) == NAMES
    (argv,) = bench.runner.commands
    assert argv[:3] == ("systemctl", "show", "-p")
    assert list(argv[4:]) == ["--", *NAMES]
    assert systemd.look(bench.machine, []) == {}


def test_a_job_in_the_queue_is_seen() -> None:
    assert systemd.parse("Id=a.service\nJob=1039\n", ["a.service"])["a.service"].waiting
    assert not systemd.parse("Id=a.service\nJob=0\n", ["a.service"])["a.service"].waiting


def test_an_alias_answers_under_its_other_name() -> None:
    seen = systemd.parse("Id=ssh.service\nActiveState=active\n\nId=b.service\nActiveState=inactive\n", ["sshd.service", "b.service"])
    assert seen["sshd.service"].running
    assert seen["b.service"].ended


def test_an_answer_for_fewer_units_is_no_answer() -> None:
    with pytest.raises(errors.Problem) as caught:
        systemd.parse("Id=a.service\n", ["a.service", "b.service"])
    assert caught.value.code == "command-failed"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("journal-crash.txt", "0.00 E srv thing broke"),
        ("journal-noexec.txt", "noexec.service: Failed to locate executable /nowhere/x: No such file or directory"),
        ("journal-traceback.txt", "ModuleNotFoundError: No module named 'nosuch'"),
    ],
)
def test_the_line_that_tells_why(name: str, line: str) -> None:
    assert systemd.first_error(_recorded(name)) == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Started x.\nerror: invalid argument: --mlock\nerror: exiting\n", "error: invalid argument: --mlock"),
        (
            "0.01 I system_info: EXTRA\n0.02 W low\n0.03 E gguf: failed to open\n0.04 E exiting due to model loading error\n",
            "0.03 E gguf: failed to open",
        ),
        ('loading failed to find a hint\nerror while handling argument "-ngl": stoi\n', 'error while handling argument "-ngl": stoi'),
        ("hello\ncannot open shared object\nbye\n", "cannot open shared object"),
        ("hello\nbye\nx.service: Main process exited, code=exited, status=1/FAILURE\nx.service: Failed with result 'exit-code'.\n", "bye"),
        ("Started x.\nx.service: Failed with result 'signal'.\nFailed to start x.\n", ""),
        ("", ""),
    ],
)
def test_generic_lines_are_passed_over(text: str, line: str) -> None:
    assert systemd.first_error(text) == line


def test_lines_that_lost_their_id_are_found_by_time(bench: strict.Bench) -> None:
    bench.runner.plan("journalctl", "--sync")
    common = ("journalctl", "--no-pager", "--quiet", "-o", "cat")
    bench.runner.plan(*common, "_SYSTEMD_INVOCATION_ID=abc", "+", "INVOCATION_ID=abc", out="Started x.\nFailed to start x.\n")
    bench.runner.plan(*common, "--since", "@1700000000.500000", "-u", "x.service", out="Started x.\nerror: gone\n")
    assert systemd.why_it_failed(bench.machine, "x.service", "abc", 1_700_000_000.5) == "error: gone"


def test_the_inputs_of_a_process(bench: strict.Bench) -> None:
    bench.put("/proc/5/environ", "A=WATTHERD_INPUTS=no\0WATTHERD_INPUTS=abc\0B=1\0")
    bench.put("/proc/6/environ", "A=1\0")
    assert [systemd.started_with(bench.machine, pid) for pid in (5, 6, 7, 0)] == ["abc", None, None, None]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (f"/var/lib/wattherd/store/{'ab' * 32}", "abc"),
        (f"/var/lib/wattherd/store/{'ab' * 32} (deleted)", "a file that is gone"),
        ("/opt/wattherd/releases/f-b11434-cpu/bin/llama-server", "abc"),
        ("/opt/wattherd/releases/.f-b11434-cpu.old/bin/llama-server (deleted)", "a file that is gone"),
        ("/opt/wattherd/releases/f-b11434-cuda/bin/libggml-cuda.so (deleted)", "a file that is gone"),
        ("/memfd:doublemapper (deleted)", "abc"),
        ("/usr/lib/x86_64-linux-gnu/libc.so.6 (deleted)", "abc"),
    ],
)
def test_a_process_that_has_a_replaced_file_of_ours_was_started_from_something_else(bench: strict.Bench, path: str, found: str) -> None:
    bench.put("/proc/5/environ", f"{systemd.INPUTS}=abc\0")
    bench.put("/proc/5/maps", f"7f0000000000-7f0000001000 r-xp 00000000 fe:00 17 {path}\n7f1000000000-7f1000001000 rw-p 00000000 00:00 0\n")
    assert systemd.started_with(bench.machine, 5) == found
