"""What the artifact type does when bytes are missing, damaged, foreign or hostile."""

from __future__ import annotations

import os
import posixpath
import tarfile
from collections.abc import Callable

import pytest

from tests.node import strict, tiny
from tests.node.resources.cases import artifact as cases
from wattherd import errors, store
from wattherd.resources import artifact, base, tree
from wattherd.wire import facts

PARENT = "/opt/wattherd/releases"


def fix(one: artifact.Artifact, bench: strict.Bench) -> None:
    one.fix(bench.machine, base.delta(one.wanted(), one.actual(bench.machine)), bench.tell)


def refused(work: Callable[[], object]) -> errors.Problem:
    with pytest.raises(errors.Problem) as caught:
        work()
    return caught.value


# -- a model


def test_model_is_a_link_into_the_store(bench: strict.Bench) -> None:
    one = cases.absent(bench)
    assert one.needs(bench.machine) == {}
    fix(one, bench)
    assert bench.machine.readlink(cases.MODEL_PATH) == store.blob(one.digest)
    assert one.actual(bench.machine) == one.wanted() == {"digest": one.digest, "mode": "0644"}


def test_model_that_did_not_arrive_is_needed_and_named(bench: strict.Bench) -> None:
    one = artifact.Artifact(cases.MODEL_PATH, digest="a" * 64, size_bytes=7)
    assert one.needs(bench.machine) == {"a" * 64: 7}
    problem = refused(lambda: fix(one, bench))
    assert problem.code == "artifact-missing"
    assert "tiny.gguf" in problem.message
    assert one.actual(bench.machine) is None


def test_damaged_blob_is_removed_and_wanted_again(bench: strict.Bench) -> None:
    one = cases.absent(bench)
    bench.put(store.blob(one.digest), cases.MODEL[:-1] + b"!")
    assert one.needs(bench.machine) == {one.digest: one.size_bytes}
    assert refused(lambda: fix(one, bench)).code == "artifact-corrupt"
    assert not store.has(bench.machine, one.digest)
    tiny.put(bench.machine, cases.MODEL)
    fix(one, bench)
    assert one.actual(bench.machine) == one.wanted()


def test_blob_damaged_behind_its_link_is_drift(bench: strict.Bench) -> None:
    one = cases.absent(bench)
    fix(one, bench)
    bench.put(store.blob(one.digest), b"bit rot")
    assert one.actual(bench.machine) != one.wanted()
    assert refused(lambda: fix(one, bench)).code == "artifact-corrupt"


def test_link_to_another_blob_is_moved(bench: strict.Bench) -> None:
    one = cases.absent(bench)
    bench.link(cases.MODEL_PATH, store.blob(tiny.put(bench.machine, b"older model")))
    one.preflight(bench.machine, one.actual(bench.machine))
    fix(one, bench)
    assert one.actual(bench.machine) == one.wanted()


def test_link_that_leads_nowhere_is_drift(bench: strict.Bench) -> None:
    one = cases.absent(bench)
    bench.link(cases.MODEL_PATH, store.blob("b" * 64))
    fix(one, bench)
    assert one.actual(bench.machine) == one.wanted()


def test_same_model_put_there_by_hand_is_used_as_it_is(bench: strict.Bench) -> None:
    one = artifact.Artifact(cases.MODEL_PATH, digest=cases.absent(bench).digest, size_bytes=len(cases.MODEL))
    bench.machine.unlink(store.blob(one.digest))
    bench.put(cases.MODEL_PATH, cases.MODEL)
    assert one.actual(bench.machine) == one.wanted()
    assert one.needs(bench.machine) == {}


def test_foreign_file_is_never_replaced(bench: strict.Bench) -> None:
    one = cases.absent(bench)
    bench.put(cases.MODEL_PATH, b"somebody's own")
    problem = refused(lambda: one.preflight(bench.machine, one.actual(bench.machine)))
    assert problem.code == "file-conflict"
    assert cases.MODEL_PATH in problem.message


def test_mode_is_state(bench: strict.Bench) -> None:
    one = cases.absent(bench)
    fix(one, bench)
    bench.machine.chmod(store.blob(one.digest), 0o600)
    assert base.delta(one.wanted(), one.actual(bench.machine)) == {"mode": ("0600", "0644")}
    fix(one, bench)
    assert one.actual(bench.machine) == one.wanted()


def test_removed_model_leaves_its_blob(bench: strict.Bench) -> None:
    one = cases.absent(bench)
    fix(one, bench)
    assert one.kept(bench.machine) == ""
    one.remove(bench.machine, bench.tell)
    assert one.actual(bench.machine) is None
    assert store.has(bench.machine, one.digest)


def test_removal_leaves_a_foreign_file(bench: strict.Bench) -> None:
    one = cases.absent(bench)
    bench.put(cases.MODEL_PATH, b"somebody's own")
    one.remove(bench.machine, bench.tell)
    assert bench.machine.exists(cases.MODEL_PATH)
    assert "stays" in bench.tell.words[-1]


# -- a release


def release(bench: strict.Bench, name: str, *, age_s: int = 0) -> artifact.Artifact:
    body = tiny.pack_tar({"bin/llama-server": name.encode()})
    one = artifact.Artifact(f"{PARENT}/{name}", kind="tree", digest=tiny.put(bench.machine, body), size_bytes=len(body))
    fix(one, bench)
    stamp_s = 1_700_000_000 - age_s
    os.utime(bench.machine.path(f"{one.path}/{tree.MARKER}"), (stamp_s, stamp_s))
    return one


def test_release_is_unpacked_with_plain_modes(bench: strict.Bench) -> None:
    one = cases.settled(bench)
    server = bench.machine.lstat(one.path + "/bin/llama-server")
    assert server is not None
    assert oct(server.st_mode & 0o7777) == oct(0o755)
    assert bench.machine.readlink(one.path + "/bin/lib.so") == "lib.so.1"
    assert one.actual(bench.machine) == {"digest": one.digest}


@pytest.mark.parametrize("name", ["bin/llama-server", "bin/lib.so.1", "bin/lib.so"])
def test_missing_piece_is_named_and_put_back(bench: strict.Bench, name: str) -> None:
    one = cases.settled(bench)
    bench.machine.unlink(f"{one.path}/{name}")
    assert one.actual(bench.machine) == {"digest": f"({name} is missing)"}
    fix(one, bench)
    assert one.actual(bench.machine) == one.wanted()
    assert bench.machine.names(PARENT) == ["r1"]


def test_file_of_another_size_is_drift(bench: strict.Bench) -> None:
    one = cases.settled(bench)
    bench.put(one.path + "/bin/llama-server", b"#!/bin/sh\nexit 1\n")
    assert "17 bytes, not 10" in str(one.actual(bench.machine))
    fix(one, bench)
    assert one.actual(bench.machine) == one.wanted()


def test_what_a_power_cut_left_is_cleared(bench: strict.Bench) -> None:
    """Between the two renames there is no release under its name; the old and the new one lie beside it."""
    one = cases.settled(bench)
    bench.machine.rename(one.path, f"{PARENT}/.r1.old")
    bench.put(f"{PARENT}/.r1.new/bin/half", b"")
    assert one.actual(bench.machine) is None
    fix(one, bench)
    assert one.actual(bench.machine) == one.wanted()
    assert bench.machine.names(PARENT) == ["r1"]


def test_release_of_a_build_needs_no_digest(bench: strict.Bench) -> None:
    body = tiny.pack_tar({"bin/llama-server": b"x"})
    store.record_build(bench.machine, facts.Built(tiny.FINGERPRINT, tiny.put(bench.machine, body), len(body)))
    one = artifact.Artifact(cases.RELEASE_PATH, kind="tree", build=tiny.FINGERPRINT)
    assert one.actual(bench.machine) is None
    assert one.needs(bench.machine) == {}
    fix(one, bench)
    assert one.actual(bench.machine) == one.wanted() == {"build": tiny.FINGERPRINT}


def test_release_before_its_build_is_refused_in_words(bench: strict.Bench) -> None:
    one = cases.checked(bench)
    assert one.actual(bench.machine) is None
    problem = refused(lambda: fix(one, bench))
    assert problem.code == "artifact-missing"
    assert tiny.FINGERPRINT in problem.message


def test_release_that_names_another_build_is_refused(bench: strict.Bench) -> None:
    body = tiny.pack_tar({"release.json": b'{"build": "somethingelse"}'})
    store.record_build(bench.machine, facts.Built(tiny.FINGERPRINT, tiny.put(bench.machine, body), len(body)))
    one = artifact.Artifact(cases.RELEASE_PATH, kind="tree", build=tiny.FINGERPRINT)
    assert refused(lambda: fix(one, bench)).code == "artifact-corrupt"
    assert bench.machine.names(PARENT) == []


def test_foreign_folder_is_never_replaced(bench: strict.Bench) -> None:
    one = artifact.Artifact(cases.RELEASE_PATH, kind="tree", digest=tiny.put(bench.machine, tiny.pack_tar({"a": b"b"})))
    bench.put(cases.RELEASE_PATH + "/thesis.tex", b"years of work")
    assert refused(lambda: one.preflight(bench.machine, one.actual(bench.machine))).code == "file-conflict"
    one.remove(bench.machine, bench.tell)
    assert bench.machine.exists(cases.RELEASE_PATH + "/thesis.tex")


def test_newest_releases_survive_and_older_ones_go(bench: strict.Bench) -> None:
    old, middle, new = release(bench, "b1", age_s=30), release(bench, "b2", age_s=20), release(bench, "b3", age_s=10)
    for one in (middle, new):
        one.remove(bench.machine, bench.tell)
        assert one.actual(bench.machine) is not None
        assert "newest 2 releases" in bench.tell.words[-1]
    old.remove(bench.machine, bench.tell)
    assert bench.machine.names(PARENT) == ["b2", "b3"]


@pytest.mark.parametrize("link", ["/opt/wattherd/current", PARENT + "/stable"])
@pytest.mark.parametrize("target", ["/opt/wattherd/releases/b1", None])
def test_release_in_use_is_never_removed(bench: strict.Bench, link: str, target: str) -> None:
    old = release(bench, "b1", age_s=30)
    for name in ("b2", "b3", "b4"):
        release(bench, name)
    bench.link(link, target or os.path.relpath(old.path, posixpath.dirname(link)))
    old.remove(bench.machine, bench.tell)
    assert old.actual(bench.machine) is not None
    assert link in bench.tell.words[-1]
    bench.machine.unlink(link)
    assert old.kept(bench.machine) == ""


# -- archives that nobody should trust


def entry(name: str, kind: bytes = tarfile.REGTYPE, linkname: str = "", body: bytes = b"") -> tuple[tarfile.TarInfo, bytes]:
    one = tarfile.TarInfo(name)
    one.type, one.linkname, one.size = kind, linkname, len(body)
    return one, body


HOSTILE: list[tuple[str, list[tuple[tarfile.TarInfo, bytes]]]] = [
    ("absolute", [entry("/etc/cron.d/x", body=b"x")]),
    ("parent", [entry("a/../../x", body=b"x")]),
    ("absolute-link", [entry("a", tarfile.SYMTYPE, "/etc/passwd")]),
    ("link-out", [entry("bin/a", tarfile.SYMTYPE, "../../x")]),
    ("links-out-together", [entry("a/b/s", tarfile.SYMTYPE, "../.."), entry("t", tarfile.SYMTYPE, "a/b/s/../../x")]),
    ("links-out-by-folder", [entry("d/e/s", tarfile.SYMTYPE, "../.."), entry("t", tarfile.SYMTYPE, "d/e/s/../x")]),
    ("through-link", [entry("a", tarfile.SYMTYPE, "."), entry("a/x", body=b"x")]),
    ("hard-link-out", [entry("a", tarfile.LNKTYPE, "../../../etc/passwd")]),
    ("hard-link-absolute", [entry("a", tarfile.LNKTYPE, "/etc/passwd")]),
    ("hard-link-to-nothing", [entry("a", tarfile.LNKTYPE, "b")]),
    ("device", [entry("sda", tarfile.BLKTYPE)]),
    ("fifo", [entry("pipe", tarfile.FIFOTYPE)]),
    ("nameless", [entry("./", tarfile.REGTYPE, body=b"x")]),
    ("file-as-folder", [entry("a", body=b"x"), entry("a/b", body=b"x")]),
    ("folder-as-file", [entry("a", tarfile.DIRTYPE), entry("a", body=b"x")]),
]


@pytest.mark.parametrize("entries", [entries for _, entries in HOSTILE], ids=[name for name, _ in HOSTILE])
def test_hostile_archive_leaves_nothing(bench: strict.Bench, entries: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    one = artifact.Artifact(cases.RELEASE_PATH, kind="tree", digest=tiny.put(bench.machine, tiny.pack_entries(entries)))
    problem = refused(lambda: fix(one, bench))
    assert problem.code == "artifact-corrupt"
    assert bench.machine.names(PARENT) == []
    assert bench.machine.names("/") == ["opt", "var"]


@pytest.mark.parametrize("body", [b"", b"<html>404</html>", tiny.archive()[:-40], tiny.archive()[:100], tiny.archive()[20:]])
def test_unsound_archive_is_corrupt(bench: strict.Bench, body: bytes) -> None:
    one = artifact.Artifact(cases.RELEASE_PATH, kind="tree", digest=tiny.put(bench.machine, body))
    assert refused(lambda: fix(one, bench)).code == "artifact-corrupt"
    assert bench.machine.names(PARENT) == []


def test_hard_link_inside_becomes_a_file(bench: strict.Bench) -> None:
    body = tiny.pack_entries([entry("a", body=b"x"), entry("b", tarfile.LNKTYPE, "a")])
    one = artifact.Artifact(cases.RELEASE_PATH, kind="tree", digest=tiny.put(bench.machine, body))
    fix(one, bench)
    assert bench.machine.read(cases.RELEASE_PATH + "/b") == b"x"
    assert one.actual(bench.machine) == one.wanted()


@pytest.mark.parametrize(
    "wrong",
    [{"path": "relative"}, {"path": "/a/../b"}, {"path": "/"}, {"kind": "folder"}, {"digest": ""}, {"digest": "", "build": "x" * 12}],
)
def test_nonsense_is_refused_when_the_manifest_is_read(wrong: dict[str, str]) -> None:
    assert refused(lambda: artifact.Artifact(**{"path": "/a", "digest": "a" * 64, **wrong})).code == "manifest-invalid"  # type: ignore[arg-type]
