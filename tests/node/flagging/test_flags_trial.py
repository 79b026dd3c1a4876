"""What a binary says when it parses a command line, in the words of real builds, and what becomes of them."""

from __future__ import annotations

import pytest

from tests.node import strict
from tests.node.resources.cases import flags as cases
from wattherd import errors
from wattherd import machine as machines
from wattherd.resources.flagging import trial

USAGE = "\n\nusage:\n-fa,   --flash-attn [on|off|auto]       set Flash Attention use\n\n\nto show complete usage, run with -h\n"


def complaint(
    bench: strict.Bench, said: str, *extra: str, code: int = 1, options: tuple[tuple[str, ...], ...] = cases.OPTIONS
) -> errors.Problem:
    bench.put(cases.BINARY, "a binary", mode=0o755)
    cases.plan(bench, cases.answering("b11434", said, code))
    with pytest.raises(errors.Problem) as caught:
        cases.wanted(options=options, extra=extra).preflight(bench.machine, None)
    assert caught.value.message.startswith("flags:smol: ")
    return caught.value


@pytest.mark.parametrize(
    "sentence",
    [
        "error: unkown value for --flash-attn: 'maybe'",
        "error: unknown value for --flash-attn: 'maybe'",
        "expected value for argument",
        "etwas ganz anderes",
        "",
    ],
)
def test_flags_b01_a_wrong_value_is_known_by_the_stem_of_the_sentence(bench: strict.Bench, sentence: str) -> None:
    problem = complaint(bench, f'error while handling argument "--flash-attn": {sentence}{USAGE}', options=(("--flash-attn", "maybe"),))
    assert problem.code == "flag-value"
    assert "--flash-attn maybe (serve: flash_attention)" in problem.message
    assert problem.hint == "--flash-attn takes on, off, auto"
    assert "usage:" not in problem.message


def test_flags_a_bad_number_is_explained(bench: strict.Bench) -> None:
    problem = complaint(bench, 'error while handling argument "--threads": stoi\n\nusage:\n…', options=(("--threads", "4"),))
    assert "--threads 4 (serve: threads): stoi" in problem.message
    assert problem.hint == "--threads takes a number"


def test_flags_an_unknown_argument_is_named_with_the_nearest(bench: strict.Bench) -> None:
    problem = complaint(bench, "error: invalid argument: --mlock\n")
    assert problem.code == "flag-unknown"
    assert "--mlock" in problem.message


def test_flags_a_bad_environment_variable_is_named_and_a_stray_file_suspected(bench: strict.Bench) -> None:
    bench.put("/etc/llama.cpp/config.ini", "")
    problem = complaint(bench, 'error while handling environment variable "LLAMA_ARG_CTX_SIZE": stoi\n\n')
    assert problem.code == "flag-value"
    assert "environment variable LLAMA_ARG_CTX_SIZE: stoi" in problem.message
    assert "/etc/llama.cpp/config.ini" in problem.hint


def test_flags_a_build_without_rpc_says_so(bench: strict.Bench) -> None:
    problem = complaint(bench, 'error while handling argument "--rpc": RPC not supported in this build\n', options=(("--rpc", "a:1"),))
    assert "--rpc a:1 (serve: rpc): RPC not supported in this build" in problem.message
    assert "llama_cpp: {rpc: true}" in problem.hint


@pytest.mark.parametrize(
    ("said", "code"), [("main: something else failed\nbye\n", 1), ("", -11), ("", 124), ("listening on 127.0.0.1\n", 0)]
)
def test_flags_any_other_end_is_a_refusal_with_its_most_telling_line(bench: strict.Bench, said: str, code: int) -> None:
    problem = complaint(bench, said, code=code)
    assert problem.code == "flag-value"
    assert ("something else failed" in problem.message) == bool(said.startswith("main"))
    assert problem.hint


def test_flags_a_binarys_words_are_data(bench: strict.Bench) -> None:
    problem = complaint(bench, 'error while handling argument "--temp": \x1b[31m' + "x" * 5000 + "\n", "--temp", "1")
    assert problem.message.isprintable()
    assert len(problem.message) < 500


def test_flags_layers_for_a_gpu_that_is_not_there_are_a_failure(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    blind = "warning: no usable GPU found, --gpu-layers option will be ignored\n" + cases.VERSION
    bench.put(cases.BINARY, "a binary", mode=0o755)
    cases.plan(bench, cases.answering("b11434", blind))
    layers = (("--n-gpu-layers", "99"),)
    monkeypatch.setattr(bench.machine, "owner_ids", lambda _owner, _group: (990, 990))
    with pytest.raises(errors.Problem) as caught:
        cases.wanted(options=layers).preflight(bench.machine, None)
    assert "--n-gpu-layers 99 wants a GPU, and this llama-server finds none" in caught.value.message
    for harmless in ("0", "auto"):
        cases.wanted(options=(("--n-gpu-layers", harmless),)).preflight(bench.machine, None)


def test_flags_nobody_may_see_no_gpu_before_the_account_is_there(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """On some machines a card belongs to a group: what nobody cannot see, the server's own account may."""

    def missing(_owner: str, _group: str) -> tuple[int, int]:
        raise errors.Problem("user-unknown", "no such user")

    monkeypatch.setattr(bench.machine, "owner_ids", missing)
    bench.put(cases.BINARY, "a binary", mode=0o755)
    cases.plan(bench, cases.answering("b11434", "warning: no usable GPU found\n" + cases.VERSION))
    one = cases.wanted(options=(("--n-gpu-layers", "99"),))
    one.preflight(bench.machine, None)
    assert all("99" in call.argv for call in bench.runner.ran if call.argv[-1] == "--version")


@pytest.mark.parametrize(("out", "code"), [("", 127), ("usage: x\n", 0), ("--model FNAME  x\n", 0), ("Illegal instruction", -4)])
def test_flags_a_binary_that_does_not_run_is_no_empty_help(bench: strict.Bench, out: str, code: int) -> None:
    bench.put(cases.BINARY, "a binary", mode=0o755)
    cases.plan(bench, lambda _argv: machines.Result(code, out.encode(), b"cannot execute\n"))
    with pytest.raises(errors.Problem) as caught:
        cases.wanted().preflight(bench.machine, None)
    assert caught.value.code == "release-does-not-run"
    assert "cannot execute" in caught.value.message


def test_flags_a_spoiled_record_of_a_help_is_made_anew(bench: strict.Bench) -> None:
    bench.put(f"{trial.HELP}/{cases.FINGERPRINT}.txt", "nonsense")
    cases.installed(bench)
    cases.wanted().preflight(bench.machine, None)
    assert "--flash-attn" in bench.machine.text(f"{trial.HELP}/{cases.FINGERPRINT}.txt")


def test_flags_old_records_of_helps_are_cleared_away(bench: strict.Bench) -> None:
    for number in range(20):
        bench.put(f"{trial.HELP}/old-{number:02}.txt", "x")
    cases.installed(bench)
    cases.wanted().preflight(bench.machine, None)
    left = bench.machine.names(trial.HELP)
    assert f"{cases.FINGERPRINT}.txt" in left
    assert len(left) <= 12
