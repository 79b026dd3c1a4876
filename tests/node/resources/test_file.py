"""A file: conflicts, rights, what is left by a killed run, and what --diff may show."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

import pytest

from tests.node import strict
from tests.node.resources.cases import file as cases
from wattherd import errors
from wattherd.resources import base, file


def _fix(one: file.File, bench: strict.Bench) -> None:
    one.fix(bench.machine, base.delta(one.wanted(), one.actual(bench.machine)), bench.tell)


def _in_the_way(bench: strict.Bench, kind: str) -> Path:
    bench.folder("/etc")
    real = Path(bench.machine.path(cases.PATH))
    if kind == "directory":
        real.mkdir()
    elif kind == "symbolic link":
        bench.put("/etc/other", "precious")
        real.symlink_to("other")
    elif kind == "pipe":
        os.mkfifo(real)
    return real


@pytest.mark.parametrize("kind", ["directory", "symbolic link", "pipe"])
def test_what_is_no_file_is_a_conflict_and_stays(bench: strict.Bench, kind: str) -> None:
    real = _in_the_way(bench, kind)
    before = bench.tree()
    one = cases.wanted(bench)
    state = one.actual(bench.machine)
    assert base.delta(one.wanted(), state)
    with pytest.raises(errors.Problem, match=f"{cases.PATH} is a {kind}, not a file") as caught:
        one.preflight(bench.machine, state)
    assert caught.value.code == "file-conflict"
    with pytest.raises(errors.Problem, match=f"{cases.PATH} is a {kind}, not a file"):
        _fix(one, bench)
    one.remove(bench.machine, bench.tell)
    assert bench.tree() == before
    assert os.path.lexists(real)
    assert kind in bench.tell.words[0]


def test_only_rights_differ_then_the_content_is_not_rewritten(bench: strict.Bench) -> None:
    bench.put(cases.PATH, cases.TEXT, mode=0o666)
    inode = Path(bench.machine.path(cases.PATH)).stat().st_ino
    _fix(cases.wanted(bench), bench)
    found = Path(bench.machine.path(cases.PATH)).stat()
    assert found.st_ino == inode
    assert stat.S_IMODE(found.st_mode) == 0o640


class Watched(strict.Machine):
    """Keeps the modes that the path had on the way."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.modes: list[int] = []

    def chmod(self, path: str, mode: int) -> None:
        super().chmod(path, mode)
        self.modes.append(stat.S_IMODE(Path(self.path(path)).stat().st_mode))


@pytest.mark.parametrize(("old", "new"), [(0o644, 0o600), (0o600, 0o640), (0o755, 0o670), (0o600, 0o444)])
def test_no_moment_grants_what_neither_the_old_nor_the_new_rights_do(tmp_path: Path, old: int, new: int) -> None:
    machine = Watched(str(tmp_path))
    (tmp_path / "x").write_text("x")
    (tmp_path / "x").chmod(old)
    me = strict.Bench(machine, strict.Runner())
    file.File("/x", text="x", mode=f"{new:04o}", owner=me.me, group=me.my_group).fix(machine, {"mode": ("", "")}, me.tell)
    assert machine.modes == [old & new, new]


def test_owner_and_mode_are_right_before_the_name_is(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.folder("/etc")
    seen: list[int] = []
    rename = os.rename

    def watch(old: str, new: str) -> None:
        seen.append(stat.S_IMODE(Path(old).stat().st_mode))
        rename(old, new)

    monkeypatch.setattr(os, "rename", watch)
    _fix(file.File(cases.PATH, text="key", mode="0600", owner=bench.me, group=bench.my_group, sensitive=True), bench)
    assert seen == [0o600]


def test_what_a_killed_run_left_beside_it_is_swept_up(bench: strict.Bench) -> None:
    bench.put(f"{cases.PATH}.wattherd-4711", "half")
    bench.put(f"{cases.PATH}.wattherd-notes", "not ours")
    _fix(cases.wanted(bench), bench)
    assert bench.machine.names("/etc") == ["demo.conf", "demo.conf.wattherd-notes"]


def test_a_missing_folder_is_named_and_not_made(bench: strict.Bench) -> None:
    one = cases.wanted(bench)
    one.preflight(bench.machine, None)  # an earlier resource may be about to make it
    with pytest.raises(errors.Problem) as caught:
        _fix(one, bench)
    assert caught.value.code == "folder-missing"
    assert caught.value.hint == "list directory:/etc before it"
    assert bench.tree() == {}


def test_preflight_sees_a_file_where_a_folder_should_be(bench: strict.Bench) -> None:
    bench.put("/etc", "a file")
    with pytest.raises(errors.Problem, match="/etc is a file, not a directory") as caught:
        file.File("/etc/a/b/c").preflight(bench.machine, None)
    assert caught.value.code == "file-conflict"


def test_bytes_travel_as_base64(bench: strict.Bench) -> None:
    bench.folder("/etc")
    body = bytes(range(256))
    one = file.File("/etc/blob", text=base64.b64encode(body).decode(), encoding="base64", owner=bench.me, group=bench.my_group)
    _fix(one, bench)
    assert bench.machine.read("/etc/blob") == body
    assert one.texts(bench.machine) == ("", "")


def test_a_big_file_is_digested_through_the_cache(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"m" * (1024 * 1024 + 1)
    bench.put("/etc/big", body)
    os.utime(bench.machine.path("/etc/big"), (1, 1))
    one = file.File("/etc/big", text=body.decode(), owner=bench.me, group=bench.my_group)
    asked: list[str] = []
    digest = bench.machine.digest

    def watch(path: str) -> str:
        asked.append(path)
        return digest(path)

    monkeypatch.setattr(bench.machine, "digest", watch)
    assert base.delta(one.wanted(), one.actual(bench.machine)) == {}
    assert asked == ["/etc/big"]
    assert one.texts(bench.machine) == ("", "")


def test_texts_show_old_and_new(bench: strict.Bench) -> None:
    assert cases.drifted(bench).texts(bench.machine) == ("listen = 1\n", cases.TEXT)


@pytest.mark.parametrize("old", [b"binary\0", b"\xff\xfe", b"x" * (256 * 1024 + 1)], ids=["nul", "not utf-8", "too long"])
def test_texts_keep_what_a_terminal_should_not_get(bench: strict.Bench, old: bytes) -> None:
    bench.put(cases.PATH, old)
    assert cases.wanted(bench).texts(bench.machine) == ("", "")


def test_a_sensitive_text_shows_nowhere(bench: strict.Bench) -> None:
    bench.put(cases.PATH, "old secret")
    one = file.File(cases.PATH, text="new secret", sensitive=True)
    assert one.texts(bench.machine) == ("", "")
    assert "secret" not in repr(one)


@pytest.mark.parametrize("path", ["etc/x", "/etc/../x", "/etc//x", "/etc/x/", "/", "", "/etc/a\nb"])
def test_a_path_that_could_be_read_in_two_ways_is_refused(path: str) -> None:
    with pytest.raises(errors.Problem) as caught:
        file.File(path)
    assert caught.value.code == "manifest-invalid"


@pytest.mark.parametrize("wrong", [{"mode": "rw"}, {"mode": "0888"}, {"mode": "420x"}, {"encoding": "latin-1"}])
def test_wrong_fields_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(errors.Problem) as caught:
        file.File("/x", **wrong)  # type: ignore[arg-type]
    assert caught.value.code == "manifest-invalid"


def test_text_that_is_no_base64_is_refused() -> None:
    with pytest.raises(errors.Problem) as caught:
        file.File("/x", text="%%%", encoding="base64").wanted()
    assert caught.value.code == "manifest-invalid"


def test_remove_unlinks_and_twice_is_fine(bench: strict.Bench) -> None:
    one = cases.settled(bench)
    one.remove(bench.machine, bench.tell)
    one.remove(bench.machine, bench.tell)
    assert one.actual(bench.machine) is None
    assert bench.tell.words == []
