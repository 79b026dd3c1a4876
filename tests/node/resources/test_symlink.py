"""A symbolic link: what must run before it is turned, and the words for what does not."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.node import strict
from tests.node.resources.cases import symlink as cases
from wattherd import errors
from wattherd import machine as machines
from wattherd.resources import base, symlink


def _fix(one: symlink.Symlink, machine: machines.Machine, tell: base.Tell) -> None:
    one.fix(machine, base.delta(one.wanted(), one.actual(machine)), tell)


def test_probes_run_within_a_limit_and_before_the_link_is_turned(bench: strict.Bench) -> None:
    bench.link(cases.PATH, "releases/one")
    seen: list[str | None] = []
    bench.runner.plan(*cases.PROBE, effect=lambda argv: seen.append(bench.machine.readlink(cases.PATH)))  # noqa: ARG005
    _fix(cases.wanted(), bench.machine, bench.tell)
    assert seen == ["releases/one"]
    assert [call.timeout_s for call in bench.runner.ran] == [60.0]
    assert bench.machine.readlink(cases.PATH) == cases.TARGET


def test_every_probe_must_succeed(bench: strict.Bench) -> None:
    bench.link(cases.PATH, "releases/one")
    bench.runner.plan("/a")
    bench.runner.plan("/b", code=1, err="error: no such device\n")
    with pytest.raises(errors.Problem) as caught:
        _fix(symlink.Symlink(cases.PATH, cases.TARGET, probes=(("/a",), ("/b",), ("/c",))), bench.machine, bench.tell)
    assert caught.value.code == "release-does-not-run"
    assert "/b does not run on this node: exit status 1: error: no such device" in caught.value.message
    assert bench.machine.readlink(cases.PATH) == "releases/one"
    assert bench.runner.commands == [("/a",), ("/b",)]


@pytest.mark.parametrize(
    ("code", "words", "expected"),
    [
        (132, "", "built for another CPU"),
        (-4, "Illegal instruction", "built for another CPU"),
        (127, "", "the program was not found"),
        (127, "/x/server: not found", "/x/server: not found"),
        (
            127,
            "server: error while loading shared libraries: libcudart.so.12: cannot open shared object file",
            "shared library libcudart.so.12 is missing",
        ),
        (1, "server: /lib/libm.so.6: version `GLIBC_2.38' not found (required by server)", "it needs GLIBC_2.38"),
        (1, "server: version `GLIBCXX_3.4.32' not found", "it needs GLIBCXX_3.4.32"),
        (124, "server: no end after 60.0 s", "it did not end within 60 s"),
        (-11, "", "signal 11"),
        (3, "loading\nggml: failed to load backend\nbye", "exit status 3: ggml: failed to load backend"),
        (3, "one\ntwo", "exit status 3: one"),
    ],
)
def test_the_reason_is_named(bench: strict.Bench, code: int, words: str, expected: str) -> None:
    bench.folder("/opt/demo")
    bench.runner.plan(*cases.PROBE, code=code, err=words)
    with pytest.raises(errors.Problem) as caught:
        _fix(cases.wanted(), bench.machine, bench.tell)
    assert caught.value.code == "release-does-not-run"
    assert expected in caught.value.message
    assert bench.machine.readlink(cases.PATH) is None


def test_a_program_for_another_architecture(tmp_path: Path) -> None:
    """The real kernel refuses the real file: an ELF header of another machine."""
    program = tmp_path / "server"
    program.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xf3\x00" + bytes(100))
    program.chmod(0o755)
    machine = machines.Machine(str(tmp_path))
    with pytest.raises(errors.Problem, match="another kind of processor"):
        _fix(symlink.Symlink("/current", "x", probes=((str(program),),)), machine, strict.Told())
    program.chmod(0o644)
    with pytest.raises(errors.Problem, match="Permission denied"):
        _fix(symlink.Symlink("/current", "x", probes=((str(program),),)), machine, strict.Told())


def test_the_link_is_never_absent_while_it_is_turned(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.link(cases.PATH, "releases/one")
    unlinked: list[str] = []
    unlink = os.unlink

    def watch(path: str) -> None:
        unlinked.append(path)
        unlink(path)

    monkeypatch.setattr(os, "unlink", watch)
    _fix(symlink.Symlink(cases.PATH, cases.TARGET), bench.machine, bench.tell)
    assert bench.machine.path(cases.PATH) not in unlinked
    assert bench.machine.readlink(cases.PATH) == cases.TARGET


@pytest.mark.parametrize("kind", ["a file", "a directory"])
def test_what_is_no_link_is_a_conflict(bench: strict.Bench, kind: str) -> None:
    bench.folder("/opt/demo")
    if kind == "a file":
        bench.put(cases.PATH, "data")
    else:
        bench.folder(cases.PATH)
    one = cases.wanted()
    state = one.actual(bench.machine)
    with pytest.raises(errors.Problem) as caught:
        one.preflight(bench.machine, state)
    assert caught.value.code == "file-conflict"
    with pytest.raises(errors.Problem):
        _fix(one, bench.machine, bench.tell)
    one.remove(bench.machine, bench.tell)
    assert bench.machine.exists(cases.PATH)
    assert bench.tell.words == [f"{cases.PATH} is {kind} by now: left as it is"]


def test_a_killed_turn_leaves_nothing_behind(bench: strict.Bench) -> None:
    bench.link(f"{cases.PATH}.wattherd-99999", "releases/one")
    _fix(symlink.Symlink(cases.PATH, cases.TARGET), bench.machine, bench.tell)
    assert bench.machine.names("/opt/demo") == ["current"]


def test_remove_takes_the_link_alone(bench: strict.Bench) -> None:
    bench.put("/opt/demo/releases/two/server", "x")
    one = cases.settled(bench)
    one.remove(bench.machine, bench.tell)
    one.remove(bench.machine, bench.tell)
    assert bench.machine.names("/opt/demo") == ["releases"]


@pytest.mark.parametrize("words", [("/x/", "t", ()), ("/x", "", ()), ("/x", "t", ((),))])
def test_wrong_fields_are_refused(words: tuple[str, str, Sequence[tuple[str, ...]]]) -> None:
    with pytest.raises(errors.Problem) as caught:
        symlink.Symlink(words[0], words[1], tuple(words[2]))
    assert caught.value.code == "manifest-invalid"
