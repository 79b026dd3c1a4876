"""Units that fail, loop, were killed for memory or stopped: from the journal's rows to one finding for each fault."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from wattherd.node.findings import binary, devices, journal, service, systemctl
from wattherd.power import holders
from wattherd.wire import finding

UNIT = "llama@m.service"
CUT = (
    "0.00.046.489 E llama_model_load: error loading model: tensor 'x' data is not within the file bounds, model is corrupted or incomplete"
)


def row(at_s: float, text: object, *, manager: bool = False, invocation: str = "") -> str:
    document: dict[str, object] = {"__REALTIME_TIMESTAMP": str(int(at_s * 1e6)), "MESSAGE": text, "_PID": "1" if manager else "77"}
    document["INVOCATION_ID" if manager else "_SYSTEMD_INVOCATION_ID"] = invocation
    return json.dumps(document)


def failing(
    number: int, at_s: float, lines: Sequence[str], life_s: float = 2.0, *, how: str = "code=exited, status=1/FAILURE"
) -> list[str]:
    """One start as systemd 252 writes it down."""
    own = f"id{number}"
    return [
        row(at_s, f"Started {UNIT} - llama.cpp.", manager=True, invocation=own),
        *(row(at_s + 0.1, line, invocation=own) for line in lines),
        row(at_s + life_s, f"{UNIT}: Main process exited, {how}", manager=True, invocation=own),
        row(at_s + life_s, f"{UNIT}: Failed with result 'exit-code'.", manager=True, invocation=own),
        row(at_s + life_s + 3, f"{UNIT}: Scheduled restart job, restart counter is at {number + 1}.", manager=True),
    ]


def starts(*rows: str) -> list[journal.Start]:
    return journal.starts(journal.parse("\n".join(rows)))


def loop(count: int, first: str = CUT, later: str = "E srv start: couldn't bind HTTP server socket") -> list[journal.Start]:
    return starts(*(line for number in range(count) for line in failing(number, 100 + 5 * number, [first if number == 0 else later])))


def looping(**more: object) -> service.Service:
    values = {"active": "activating", "sub": "auto-restart", "restarts": 4, "restart_s": 3.0, "limit_s": 10.0, "burst": 5, **more}
    return service.Service(name=UNIT, **values)  # type: ignore[arg-type]


def codes(found: Sequence[finding.Finding]) -> list[str]:
    return [one.code for one in found]


def test_the_first_failed_start_is_told_before_the_second_is_tried() -> None:
    (failed, why) = service.judge(looping(restarts=0), loop(1), 104.0)
    assert (failed.code, "tried again" in failed.words, why.code) == ("unit-failed", True, "model-cut")


def test_the_journal_becomes_starts() -> None:
    found = loop(3)
    assert [(one.begun_s, one.life_s, one.how, one.result) for one in found] == [
        (100 + 5 * number, 2.0, "exited, status 1/FAILURE", "exit-code") for number in range(3)
    ]
    assert found[0].lines == (CUT,)


def test_lines_that_lost_their_id_belong_to_the_start_that_they_follow() -> None:
    rows = failing(0, 10, []) + failing(1, 20, [])
    rows.insert(1, row(10.1, CUT))
    rows.insert(len(rows) - 3, row(20.1, "E later"))
    assert [one.lines for one in starts(*rows)] == [(CUT,), ("E later",)]


def test_bytes_cut_rows_and_nonsense_are_survived() -> None:
    rows = [
        row(1, list(b"\xffE gguf: failed to read magic"), invocation="a"),
        '{"MESSAGE": "cut',
        "[]",
        '{"MESSAGE":"no time"}',
        "",
        "null",
    ]
    (one,) = starts(*rows)
    assert "failed to read magic" in one.lines[0]
    assert starts() == []


def test_a_loop_names_count_limit_and_the_first_cause() -> None:
    found = service.judge(looping(), loop(5), 125.0, "build 11401 (abc)")
    assert codes(found) == ["crash-loop", "model-cut"]
    assert "4 restarts" in found[0].words
    assert "5 starts in 10 s" in found[0].words
    assert "above 26 s" in found[0].do
    assert "build 11401 (abc) runs here" in found[1].words


def test_only_starts_since_the_counter_began_count() -> None:
    old = failing(90, 1, ["E gguf_init: failed to read header"])
    rows = [
        line for number in range(5) for line in failing(number, 100 + 5 * number, [CUT if number else "E couldn't bind HTTP server socket"])
    ]
    assert codes(service.judge(looping(), starts(*old, *rows), 125.0)) == ["crash-loop", "bind-failed"]


def test_a_loop_is_seen_in_the_second_in_which_it_runs_too() -> None:
    rows = [line for number in range(4) for line in failing(number, 100 + 5 * number, [CUT])]
    rows.append(row(120, f"Started {UNIT}", manager=True, invocation="now"))
    running = looping(active="active", sub="running", pid=9)
    assert codes(service.judge(running, starts(*rows), 121.0))[0] == "crash-loop"
    late = service.judge(running, starts(*rows), 121.0 + 3600)
    assert [(one.code, one.severity) for one in late] == [("unit-restarted", finding.WARNING)], "it got over it, an hour ago"
    assert "cut or damaged" in late[0].words


def test_complaints_of_requests_are_not_the_reason_of_an_end_days_later() -> None:
    log = [
        "E srv send_error: request (5000 tokens) exceeds the available context size",
        *["I request done"] * 30,
        "CUDA error: unspecified launch failure",
    ]
    rows = failing(0, 0, log, life_s=200_000)
    found = service.judge(looping(active="failed", restarts=0, result="exit-code"), starts(*rows), 200_001.0)
    assert codes(found) == ["unit-failed", "gpu-failed"]
    (quiet,) = service.judge(looping(active="failed", restarts=0), starts(*failing(0, 0, log[:-1], life_s=200_000)), 200_001.0)
    assert "names no reason" in quiet.words


def test_restarts_far_apart_are_no_loop() -> None:
    rows = [line for number in range(4) for line in failing(number, 50_000 * number, ["E x: odd"], life_s=49_000)]
    rows.append(row(200_000, f"Started {UNIT}", manager=True, invocation="now"))
    found = service.judge(looping(active="active", sub="running", pid=9), starts(*rows), 200_001.0)
    assert codes(found) == ["unit-restarted"]


def test_a_limit_that_holds_is_not_blamed() -> None:
    (first, *_) = service.judge(looping(limit_s=300.0), loop(5), 125.0)
    assert "never" not in first.words


@pytest.mark.parametrize(("restarts", "starts_found"), [(1, 2), (2, 3)])
def test_a_start_that_is_tried_again_is_no_loop_yet(restarts: int, starts_found: int) -> None:
    found = service.judge(looping(restarts=restarts), loop(starts_found), 125.0)
    assert codes(found) == ["unit-failed", "model-cut"]


def test_a_failed_unit_tells_why_or_that_its_log_does_not() -> None:
    failed = looping(active="failed", sub="failed", restarts=0, result="exit-code")
    assert codes(service.judge(failed, loop(1), 200.0)) == ["unit-failed", "model-cut"]
    (silent,) = service.judge(failed, starts(*failing(0, 100, ["I all is well"])), 200.0)
    assert "names no reason" in silent.words
    assert "journalctl" in silent.do
    (empty,) = service.judge(failed, [], 200.0)
    assert "exit-code" in empty.words


def test_a_command_before_the_server_that_fails_is_told_apart_from_it() -> None:
    rows = [
        row(1, f"Starting {UNIT}...", manager=True, invocation="a"),
        row(2, f"{UNIT}: Control process exited, code=exited, status=1/FAILURE", manager=True, invocation="a"),
        row(2, f"{UNIT}: Failed with result 'exit-code'.", manager=True, invocation="a"),
    ]
    (told,) = service.judge(looping(active="failed", restarts=0, result="exit-code"), starts(*rows), 9.0)
    assert "a command beside the server: exited, status 1/FAILURE" in told.words
    late = devices.refined(told, devices.Scene(cards=1, backend="CUDA", uvm=False))
    assert "/dev/nvidia-uvm is not there" in late.words
    assert "nvidia-modprobe" in late.do
    assert devices.refined(told, devices.Scene(cards=1, backend="CUDA", uvm=True)) == told


def test_an_unknown_reason_is_quoted() -> None:
    failed = looping(active="failed", sub="failed", restarts=0, result="exit-code")
    found = service.judge(failed, starts(*failing(0, 100, ["E srv: the tea is cold"])), 200.0)
    assert "the tea is cold" in found[1].words


def test_a_healthy_unit_gives_nothing_and_a_stopped_one_only_when_it_is_wanted() -> None:
    rows = [row(1, f"Started {UNIT}", manager=True, invocation="a"), row(2, "I model loaded", invocation="a")]
    assert service.judge(service.Service(UNIT, active="active", sub="running", pid=3, wanted=True), starts(*rows), 99.0) == []
    assert codes(service.judge(service.Service(UNIT, active="inactive", wanted=True), [], 99.0)) == ["unit-stopped"]
    assert service.judge(service.Service(UNIT, active="inactive", wanted=False), [], 99.0) == []
    assert service.judge(service.Service(UNIT, active="activating", sub="start", wanted=True), [], 99.0) == [], "it starts"


def killed(lines: Sequence[str], *, peak: str = "11.4G memory peak") -> list[journal.Start]:
    return starts(
        row(1, f"Started {UNIT}", manager=True, invocation="a"),
        *(row(2, line, invocation="a") for line in lines),
        row(3, f"{UNIT}: A process of this unit has been killed by the OOM killer.", manager=True, invocation="a"),
        row(3, f"{UNIT}: Main process exited, code=killed, status=9/KILL", manager=True, invocation="a"),
        row(3, f"{UNIT}: Failed with result 'oom-kill'.", manager=True, invocation="a"),
        row(3, f"{UNIT}: Consumed 2min 3s CPU time, {peak}.", manager=True, invocation="a"),
    )


@pytest.mark.parametrize(
    ("tokens", "mib", "each"), [("28960", "3462.850", "122 KiB"), ("100", "51.200", "524 KiB"), ("131072", "16384.000", "128 KiB")]
)
def test_oom_is_tied_to_the_last_saved_prompt(tokens: str, mib: str, each: str) -> None:
    log = [
        "0.1.2.3 T srv prompt_save: - saving prompt with length 5, total state size = 1.000 MiB",
        f"0.1.2.4 T srv   prompt_save:  - saving prompt with length {tokens}, total state size = {mib} MiB (draft: 0.000 MiB)",
    ]
    for unit in (service.Service(UNIT, active="failed", result="oom-kill"), looping(active="active", sub="running", pid=4, restarts=1)):
        found = service.judge(unit, killed(log), 9999.0)
        assert codes(found)[-1 if unit.running else 0] == "oom-kill"
        told = next(one for one in found if one.code == "oom-kill")
        assert f"{tokens} tokens" in told.words
        assert each in told.words
        assert "11.4G" in told.words


@pytest.mark.parametrize(
    "log", [[], ["saving prompt with length 5, total st"], ["saving prompt with length 0, total state size = 1.0 MiB"]]
)
def test_oom_without_a_whole_line_is_told_all_the_same(log: list[str]) -> None:
    (told, *_) = service.judge(service.Service(UNIT, active="failed", result="oom-kill"), killed(log), 9.0)
    assert told.code == "oom-kill"
    assert told.do


def test_ill_is_for_another_cpu_whatever_the_log_says() -> None:
    unit = looping(active="failed", sub="failed", restarts=0, result="core-dump", exit_code="3", exit_status=4)
    found = service.judge(unit, starts(*failing(0, 1, ["E x: odd"], how="code=dumped, status=4/ILL")), 9.0)
    assert codes(found) == ["unit-failed", "wrong-cpu"]


DEPLOYED = binary.Deployed("/opt/wattherd/releases/new-b11434-cpu", 11434)


@pytest.mark.parametrize(
    ("exe", "number", "code"),
    [
        ("/opt/wattherd/releases/new-b11434-cpu/bin/llama-server", 11434, ""),
        ("/opt/wattherd/releases/old-b11401-cpu/bin/llama-server", 11401, "other-binary-runs"),
        ("/opt/wattherd/releases/new-b11434-cpu2/bin/llama-server", 11434, "other-binary-runs"),
        ("/usr/local/bin/llama-server", 7531, "other-binary-runs"),
        ("/usr/local/bin/llama-server", 0, "other-binary-runs"),
        ("/opt/wattherd/releases/new-b11434-cpu/bin/llama-server (deleted)", 0, "other-binary-runs"),
        ("/opt/wattherd/releases/new-b11434-cpu/bin/llama-server", 11433, "build-number-differs"),
        ("/opt/wattherd/releases/new-b11434-cpu/bin/llama-server", 0, ""),
        ("", 0, ""),
    ],
)
def test_which_binary_runs(exe: str, number: int, code: str) -> None:
    found = binary.judge(service.Service(UNIT, pid=1), exe, DEPLOYED, binary.Build(number, "abc" if number else ""))
    assert codes(found) == ([code] if code else [])
    if number and found:
        assert str(number) in found[0].words


def test_a_node_without_a_release_has_no_other_binary() -> None:
    assert binary.judge(service.Service(UNIT, pid=1), "/usr/bin/llama-server", binary.Deployed(), binary.Build(1, "a")) == []


@pytest.mark.parametrize(
    ("text", "build"),
    [
        ("version: 0.6.0-dev (build 11434, commit b0a2feb64)\nbuilt with GNU 12.2.0 for Linux x86_64", binary.Build(11434, "b0a2feb64")),
        ("ggml_cuda_init: x\nversion: 4589 (eb7cf15a)\nbuilt with cc", binary.Build(4589, "eb7cf15a")),
        ("version: 0 (unknown)", binary.Build(0, "unknown")),
        ("version: 0.6.0-dev (build 1", binary.Build()),
        ("", binary.Build()),
    ],
)
def test_both_forms_of_the_version(text: str, build: binary.Build) -> None:
    assert binary.version(text) == build


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("\tlibcudart.so.13 => not found\n\tlibcublas.so.13 => not found\n", "library-missing", "libcudart.so.13, libcublas.so.13"),
        ("\tlibcuda.so.1 => not found\n", "driver-not-installed", "libcuda"),
        ("./x: /lib/libc.so.6: version `GLIBC_2.38' not found (required by ./x)\n", "libc-too-old", "GLIBC_2.38"),
        ("\tlibc.so.6 => /lib/libc.so.6 (0x0)\n", "", ""),
        ("\tnot a dynamic executable\n", "", ""),
        ("\tstatically linked\n", "", ""),
    ],
)
def test_what_ldd_says(text: str, code: str, words: str) -> None:
    found = binary.missing(text, "current/bin/libggml-cuda.so")
    assert (found.code if found else "") == code
    assert found is None or words in found.words


@pytest.mark.parametrize(
    ("span", "seconds_s"),
    [
        ("6min 30s", 390),
        ("5s", 5),
        ("100ms", 0.1),
        ("1h 2min", 3720),
        ("1w 2d", 777600),
        ("infinity", systemctl.FOREVER_S),
        ("0", 0),
        ("", 0),
        ("1min 500ms", 60.5),
    ],
)
def test_systemds_spans(span: str, seconds_s: float) -> None:
    assert systemctl.seconds_of(span) == pytest.approx(seconds_s)


def test_what_systemctl_shows_of_a_unit() -> None:
    text = (
        "Id=a.service\nExecStart={ path=/opt/x/llama-server ; argv[]=/opt/x/llama-server --port 1 ; ignore_errors=no ; pid=1 }\n"
        "EnvironmentFiles=/etc/a.env (ignore_errors=no)\nEnvironmentFiles=/etc/b.env (ignore_errors=yes)\nStartLimitBurst=5\n\n"
        "Id=b.timer\n"
    )
    one, two = systemctl.blocks(text)
    assert systemctl.command(one) == ("/opt/x/llama-server", ("/opt/x/llama-server", "--port", "1"))
    assert systemctl.environment_files(one) == ["/etc/a.env", "/etc/b.env"]
    assert (systemctl.number(one, "StartLimitBurst"), systemctl.number(two, "StartLimitBurst")) == (5, 0)
    assert (systemctl.command(two), systemctl.environment_files(two)) == (("", ()), [])


@pytest.mark.parametrize(
    ("paths", "hidden"),
    [
        ("-/etc/llama.cpp", True),
        ("/etc", True),
        ("/srv -/etc/llama.cpp/", True),
        ("/etc/llama", False),
        ("-/etc/llama.cpp.d", False),
        ("", False),
    ],
)
def test_what_a_unit_hides_from_its_process(paths: str, hidden: bool) -> None:
    assert systemctl.hides({"InaccessiblePaths": [paths]}, "/etc/llama.cpp/config.ini") is hidden


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/system-llama.slice/llama@smol.service\n", "llama@smol.service"),
        ("9:name=systemd:/system.slice/my-llama.service\n8:pids:/x.service\n0::/\n", "my-llama.service"),
        ("0::/system.slice/docker.service/sub\n", "docker.service"),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", ""),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/llama.service\n", ""),
        ("", ""),
    ],
)
def test_the_unit_of_a_process(cgroup: str, unit: str) -> None:
    assert holders.service_of(cgroup) == unit
