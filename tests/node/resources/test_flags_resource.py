"""A server's flags on a node: checked on its own binary before anything is touched, written whole, drift seen without asking the binary."""

from __future__ import annotations

import errno
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import pytest

from tests.node import strict
from tests.node.resources.cases import flags as cases
from wattherd import errors
from wattherd import machine as machines
from wattherd.resources import base, flags

WANTED_LINE = 'WATTHERD_FLAGS="--model /m.gguf --parallel 1 --no-kv-unified --load-mode mlock --temp 0.2"'
ROUTER = {
    "options": (("--models-preset", cases.PRESET), ("--models-max", "2")),
    "extra": (),
    "preset_path": cases.PRESET,
    "sections": {
        "small": (("--model", "/s.gguf"), ("--no-kv-unified",), ("load-on-startup", "true"), ("stop-timeout", "10")),
        "large": (("--model", "/l.gguf"), ("--load-mode", "none"), ("--alias", "big")),
    },
    "section_extra": {"small": ("--temp=0.2",)},
}


def refused(one: flags.Flags, bench: strict.Bench) -> errors.Problem:
    """The preflight refuses, and nothing on the node was written."""
    before = bench.tree()
    with pytest.raises(errors.Problem) as caught:
        one.preflight(bench.machine, one.actual(bench.machine))
    assert bench.tree() == before
    return caught.value


def fixed(one: flags.Flags, bench: strict.Bench) -> str:
    one.preflight(bench.machine, one.actual(bench.machine))
    one.fix(bench.machine, base.delta(one.wanted(), one.actual(bench.machine)), bench.tell)
    assert base.delta(one.wanted(), one.actual(bench.machine)) == {}
    return bench.machine.text(one.path)


def test_flags_are_written_in_the_spelling_of_the_nodes_own_binary(bench: strict.Bench) -> None:
    cases.installed(bench)
    assert WANTED_LINE in fixed(cases.wanted(), bench).splitlines()
    assert pathlib.Path(bench.machine.path(cases.PATH)).stat().st_mode & 0o7777 == 0o644


def test_flags_of_one_configuration_on_an_old_and_a_new_build(bench: strict.Bench) -> None:
    cases.installed(bench, "b9093")
    one = cases.wanted(options=cases.OPTIONS[:3], extra=("--mlock",))
    assert fixed(one, bench).splitlines()[2].endswith('--no-kv-unified --mlock"')


def test_flags_the_dry_run_has_version_last_no_rights_and_no_configuration(bench: strict.Bench) -> None:
    cases.installed(bench)
    fixed(cases.wanted(environment={"CUDA_VISIBLE_DEVICES": "GPU-1"}), bench)
    trials = [call for call in bench.runner.ran if call.argv[-1] == "--version"]
    assert trials
    for call in trials:
        assert call.argv[-3:-1] == ("--temp", "0.2")
        assert call.environment["HOME"] == call.environment["XDG_CONFIG_HOME"] == "/nonexistent"
        assert call.environment["CUDA_VISIBLE_DEVICES"] == "GPU-1"
        assert not any(name.startswith("LLAMA") for name in call.environment)
        assert call.timeout_s
        assert call.argv[0] != "setpriv" or "--no-new-privs" in call.argv


def test_flags_a_second_run_asks_no_binary(bench: strict.Bench) -> None:
    one = cases.settled(bench)
    count = len(bench.runner.ran)
    assert base.delta(one.wanted(), one.actual(bench.machine)) == {}
    one.preflight(bench.machine, one.actual(bench.machine))
    assert len(bench.runner.ran) == count


def test_flags_the_help_is_read_once_for_each_build(bench: strict.Bench) -> None:
    bench.folder("/var/cache/wattherd")
    cases.installed(bench)
    fixed(cases.wanted(), bench)
    fixed(cases.wanted(extra=("--temp", "0.3")), bench)
    assert len([call for call in bench.runner.ran if call.argv[-1] == "--help"]) == 1
    assert bench.machine.names("/var/cache/wattherd/help") == [f"{cases.FINGERPRINT}.txt"]


def test_flags_are_checked_on_a_build_that_is_in_the_store_only(bench: strict.Bench) -> None:
    cases.in_store(bench)
    seen: list[str] = []
    answer = cases.answering("b11434")

    def effect(argv: object) -> object:
        seen.append(next(word for word in argv if word.endswith("bin/llama-server")))  # type: ignore[attr-defined]
        assert pathlib.Path(seen[-1]).exists()
        return answer(argv)  # type: ignore[arg-type]

    folder = f"/var/cache/wattherd/trial-{cases.FINGERPRINT}-{os.getpid()}"
    cases.plan(bench, effect, f"{folder}/bin/llama-server")  # type: ignore[arg-type]
    cases.wanted().preflight(bench.machine, None)
    problem = None
    with pytest.raises(errors.Problem) as caught:
        cases.wanted(extra=("--temprature", "1")).preflight(bench.machine, None)
    problem = caught.value
    assert problem.code == "flag-unknown"
    assert set(seen) == {bench.machine.path(f"{folder}/bin/llama-server")}
    assert not bench.machine.exists(folder), "unpacked for the trial alone"


def test_flags_without_their_build_are_named_by_a_check_and_do_not_fail_it(bench: strict.Bench) -> None:
    one = cases.checked(bench)
    bench.folder(flags.NOTES)
    assert one.actual(bench.machine) is None
    assert base.delta(one.wanted(), None)
    one.preflight(bench.machine, None)
    assert "when its build is on this node" in one.notes(bench.machine)[0]
    assert refused(cases.wanted(extra=("--tools=all",)), bench).code == "flag-refused", "what no build gets is known now"
    with pytest.raises(errors.Problem) as caught:
        one.fix(bench.machine, {"asked": (None, "")}, bench.tell)
    assert caught.value.code == "artifact-missing"


def test_flags_a_new_build_or_option_is_a_difference(bench: strict.Bench) -> None:
    one = cases.settled(bench)
    state = one.actual(bench.machine)
    for other in (cases.wanted(extra=("--temp", "0.3")), cases.wanted(options=cases.OPTIONS[:3]), cases.wanted(environment={"A": "1"})):
        assert set(base.delta(other.wanted(), state)) == {"asked"}
    moved = flags.Flags(name="smol", path=cases.PATH, binary=cases.BINARY, build="fedcba9876543210-b9-cpu", options=cases.OPTIONS)
    assert set(base.delta(moved.wanted(), state)) == {"asked"}


@pytest.mark.parametrize("text", ["", "# foreign\n", "A=1\nB=2\n", "x" * 400_000])
def test_flags_a_foreign_file_is_a_difference(bench: strict.Bench, text: str) -> None:
    one = cases.settled(bench)
    bench.put(cases.PATH, text)
    assert base.delta(one.wanted(), one.actual(bench.machine))
    fixed(one, bench)


def test_flags_rights_that_drifted_are_set_without_asking_the_binary(bench: strict.Bench) -> None:
    one = cases.settled(bench)
    bench.machine.chmod(cases.PATH, 0o666)
    count = len(bench.runner.ran)
    difference = base.delta(one.wanted(), one.actual(bench.machine))
    assert difference == {"mode": ("0666", "0644")}
    one.fix(bench.machine, difference, bench.tell)
    assert base.delta(one.wanted(), one.actual(bench.machine)) == {}
    assert len(bench.runner.ran) == count


def test_flags_of_a_router_and_its_presets(bench: strict.Bench) -> None:
    cases.installed(bench)
    one = cases.wanted(**ROUTER)
    text = fixed(one, bench)
    assert f'"--models-preset {cases.PRESET} --models-max 2"' in text
    preset = bench.machine.text(cases.PRESET)
    assert preset.splitlines()[2:] == [
        "[large]",
        "model = /l.gguf",
        "load-mode = none",
        "alias = big",
        "",
        "[small]",
        "model = /s.gguf",
        "kv-unified = false",
        "temp = 0.2",
        "load-on-startup = true",
        "stop-timeout = 10",
    ]
    trials = [call.argv for call in bench.runner.ran if call.argv[-1] == "--version"]
    assert any("/s.gguf" in argv or "--temp" in argv for argv in trials), "the options of each section are parsed too"
    assert not any("stop-timeout" in argv for argv in trials)
    bench.put(cases.PRESET, preset.replace("0.2", "0.9"))
    assert set(base.delta(one.wanted(), one.actual(bench.machine))) == {"text"}
    one.remove(bench.machine, bench.tell)
    assert one.actual(bench.machine) is None
    assert not bench.machine.exists(cases.PRESET)


def test_flags_of_a_router_that_becomes_one_model_leave_no_presets_behind(bench: strict.Bench) -> None:
    cases.installed(bench)
    fixed(cases.wanted(**ROUTER), bench)
    single = cases.wanted()
    assert base.delta(single.wanted(), single.actual(bench.machine))
    fixed(single, bench)
    assert not bench.machine.exists(cases.PRESET)
    bench.put(cases.PRESET, "# somebody's own\n")
    assert base.delta(single.wanted(), single.actual(bench.machine)) == {}
    single.remove(bench.machine, bench.tell)
    assert bench.machine.exists(cases.PRESET), "it is not ours"


def test_flags_presets_that_an_earlier_run_left_behind_are_mended_and_removed(bench: strict.Bench) -> None:
    cases.installed(bench)
    router, single = cases.wanted(**ROUTER), cases.wanted()
    fixed(router, bench)
    presets = bench.machine.text(cases.PRESET)
    fixed(single, bench)
    bench.put(cases.PRESET, presets)
    assert set(base.delta(single.wanted(), single.actual(bench.machine))) == {"text"}
    fixed(single, bench)
    assert not bench.machine.exists(cases.PRESET)
    bench.put(cases.PRESET, presets)
    single.remove(bench.machine, bench.tell)
    assert not bench.machine.exists(cases.PRESET)


def test_flags_a_wrong_option_of_one_section_names_it(bench: strict.Bench) -> None:
    cases.installed(bench)
    problem = refused(cases.wanted(**{**ROUTER, "section_extra": {"large": ("--temprature", "1")}}), bench)
    assert problem.code == "flag-unknown"
    assert problem.message.startswith("flags:smol [large]: ")


def test_flags_files_that_this_run_may_write_are_tried_only_before_the_start(bench: strict.Bench) -> None:
    cases.installed(bench)
    one = cases.wanted(extra=("--chat-template-file", "/etc/t.jinja"))
    one.preflight(bench.machine, None)
    assert not any("/etc/t.jinja" in call.argv for call in bench.runner.ran)
    one.fix(bench.machine, {"asked": (None, "")}, bench.tell)
    assert any("/etc/t.jinja" in call.argv for call in bench.runner.ran)


def test_flags_warnings_of_the_binary_are_told_before_an_upgrade_breaks_them(bench: strict.Bench) -> None:
    bench.folder("/var/cache/wattherd")
    bench.put(cases.BINARY, "a binary", mode=0o755)
    bench.folder("/etc/wattherd/serve")
    warning = "0.00.001.227 W DEPRECATED: --mlock is deprecated. use --load-mode mlock instead\n"
    cases.plan(bench, cases.answering("b10423", warning + cases.VERSION))
    one = cases.wanted(options=cases.OPTIONS[:3], extra=("--mlock",))
    one.preflight(bench.machine, None)
    wanted = "DEPRECATED: --mlock is deprecated. use --load-mode mlock instead"
    assert one.notes(bench.machine) == (f"flags:smol: {wanted}",), "in a check, too"
    one.fix(bench.machine, {"asked": (None, "")}, bench.tell)
    assert wanted in bench.tell.words
    assert one.notes(bench.machine) == (f"flags:smol: {wanted}",)
    one.remove(bench.machine, bench.tell)
    assert bench.machine.names(flags.NOTES) == []


def test_flags_a_stray_configuration_file_is_told_of(bench: strict.Bench) -> None:
    one = cases.settled(bench)
    assert one.notes(bench.machine) == ()
    bench.put("/etc/llama.cpp/config.ini", "ctx-size = 1\n")
    assert "/etc/llama.cpp/config.ini" in one.notes(bench.machine)[0]


def test_flags_a_diff_shows_both_files(bench: strict.Bench) -> None:
    one = cases.drifted(bench)
    old, new = one.texts(bench.machine)
    assert "--parallel 9" in old
    assert "--parallel 1" in new
    assert cases.wanted(extra=("--zzz",)).texts(bench.machine) == ("", "")


@pytest.mark.parametrize(
    "change",
    [
        {"options": ((),)},
        {"options": (("--alias", ""),)},
        {"preset_path": cases.PRESET},
        {"sections": {"a": (("--model", "/m"),)}},
        {"section_extra": {"a": ("--x",)}},
    ],
)
def test_flags_that_make_no_sense_are_refused_by_the_node(change: dict[str, object]) -> None:
    with pytest.raises(errors.Problem) as caught:
        cases.wanted(**change)
    assert caught.value.code == "manifest-invalid"


def test_flags_that_are_longer_than_a_program_can_have(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    cases.installed(bench)
    plain = bench.machine.run

    def run(argv: Sequence[str], **more: Any) -> machines.Result:
        if sum(map(len, argv)) > 100_000:
            raise OSError(errno.E2BIG, "Argument list too long", argv[0])
        return plain(argv, **more)

    monkeypatch.setattr(bench.machine, "run", run)
    problem = refused(cases.wanted(extra=("--grammar", "x" * 200_000)), bench)
    assert (problem.code, "200,000 characters" in problem.hint) == ("flag-value", True)


def test_flags_a_folder_in_the_way_is_a_conflict(bench: strict.Bench) -> None:
    bench.folder(cases.PATH)
    assert refused(cases.wanted(), bench).code == "file-conflict"
