"""The builder, building for real: the miniature llama.cpp with this machine's cmake."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.node import tiny
from wattherd import errors, store
from wattherd import machine as machines
from wattherd.node import builder, release
from wattherd.resources import build, outcome, tree
from wattherd.wire import fields

CHECKOUT = Path(builder.__file__).resolve().parents[2]
_START = "import sys; sys.path.insert(0, sys.argv[1]); from wattherd.node import builder; builder.main(*sys.argv[2:])"


@pytest.fixture
def machine(tmp_path: Path) -> machines.Machine:
    return machines.Machine(str(tmp_path / "root"))


def refused(machine: machines.Machine, wanted: build.Build) -> errors.Problem:
    with pytest.raises(errors.Problem) as caught:
        builder.Builder(machine, wanted).run()
    return caught.value


def leftovers(machine: machines.Machine, wanted: build.Build) -> list[str]:
    """What a build that ended must not leave: its work folder, and anything in the store that is no blob."""
    found = [name for name in machine.names(store.BLOBS) if len(name) != 64]
    return found + ([wanted.workplace] if machine.exists(wanted.workplace) else [])


def start(machine: machines.Machine, wanted: build.Build) -> subprocess.Popen[bytes]:
    """The builder as the unit runs it, in a process group of its own that can be ended at once, as a power cut does."""
    machine.make_dirs(wanted.folder)
    machine.write(outcome.spec_path(wanted.folder), json.dumps(fields.plain(wanted)).encode())
    argv = [sys.executable, "-I", "-S", "-c", _START, str(CHECKOUT), outcome.spec_path(wanted.folder), machine.root]
    return subprocess.Popen(argv, start_new_session=True)


def test_release_is_built_probed_and_recorded(machine: machines.Machine) -> None:
    wanted = tiny.wanted(machine)
    built = builder.Builder(machine, wanted).run()
    assert store.built(machine, wanted.fingerprint) == built
    assert machine.digest(store.blob(built.digest)) == built.digest
    assert built.size_bytes == store.size_bytes(machine, built.digest)
    assert built.seconds > 0
    assert leftovers(machine, wanted) == []
    log = machine.text(wanted.log)
    assert "-DCMAKE_BUILD_TYPE=Release -DLLAMA_BUILD_NUMBER=11434" in log
    assert "version: 0.6.0-dev (build 11434, commit tiny)" in log
    assert "Available devices:" in log


def test_archive_holds_the_products_and_what_they_are(machine: machines.Machine) -> None:
    wanted = tiny.wanted(machine)
    built = builder.Builder(machine, wanted).run()
    with tarfile.open(machine.path(store.blob(built.digest))) as archive:
        members = archive.getmembers()
        marker = archive.extractfile(tree.MARKER)
        assert marker is not None
        told = json.load(marker)
    assert [member.name for member in members] == ["bin", "bin/llama-bench", "bin/llama-server", "release.json"]
    assert {(member.uid, member.gid, member.uname, member.mtime) for member in members} == {(0, 0, "", 0)}
    assert told["build"] == wanted.fingerprint
    assert told["options"] == {"LLAMA_BUILD_NUMBER": "11434"}
    assert [row["path"] for row in told["files"]] == ["bin/llama-bench", "bin/llama-server"]
    assert not {"seconds", "built_at", "host"} & set(told)


def test_unpacked_release_runs(machine: machines.Machine) -> None:
    built = builder.Builder(machine, tiny.wanted(machine)).run()
    tree.unpack(machine, store.blob(built.digest), "/opt/r")
    done = machine.run([machine.path("/opt/r/bin/llama-server"), "--version"])
    assert (done.code, done.out) == (0, b"")
    assert b"build 11434" in done.err


def test_building_twice_gives_the_same_bytes(machine: machines.Machine) -> None:
    wanted = tiny.wanted(machine)
    first = builder.Builder(machine, wanted).run()
    machine.unlink(f"{store.BUILDS}/{wanted.fingerprint}.json")
    machine.unlink(store.blob(first.digest))
    assert builder.Builder(machine, wanted).run().digest == first.digest


def test_packing_does_not_see_times_owners_or_order(machine: machines.Machine) -> None:
    digests = set()
    for index, names in enumerate((["b", "a"], ["a", "b"])):
        folder = f"/r{index}"
        machine.make_dirs(f"{folder}/bin")
        for name in names:
            machine.write(f"{folder}/bin/{name}", b"body", mode=0o755 if index else 0o700)
            os.utime(machine.path(f"{folder}/bin/{name}"), (index * 1000, index * 1000))
        machine.symlink(f"{folder}/bin/link", "a")
        digests.add(release.pack(machine, folder, f"r{index}"))
    assert len(digests) == 1


def test_built_already_is_not_built_again(machine: machines.Machine) -> None:
    wanted = tiny.wanted(machine)
    first = builder.Builder(machine, wanted).run()
    machine.unlink(store.blob(wanted.source))
    assert builder.Builder(machine, wanted).run() == first


def test_libraries_keep_their_links(machine: machines.Machine) -> None:
    out = "/out"
    machine.make_dirs(f"{out}/lib")
    machine.write(f"{out}/lib/libx.so.1.2", b"elf", mode=0o755)
    machine.symlink(f"{out}/lib/libx.so", "libx.so.1.2")
    machine.symlink(f"{out}/lib/other", "/etc/hostname")
    assert release.gather(machine, out, ("lib/libx.so*", "lib/other"), "/release") == ["libx.so", "libx.so.1.2", "other"]
    assert machine.readlink("/release/bin/libx.so") == "libx.so.1.2"
    assert machine.readlink("/release/bin/other") is None


# -- failures


def test_first_compiler_error_is_the_reason(machine: machines.Machine) -> None:
    wanted = tiny.wanted(machine, {"tiny/ggml/number.c": "int number(void) { return NUMBER + nope; }\nint x = also_nope;\n"})
    problem = refused(machine, wanted)
    assert problem.code == "build-failed"
    assert (
        problem.message
        == "tiny b11434 did not compile: ggml/number.c:1:36: error: \u2018nope\u2019 undeclared (first use in this function)"
    )
    assert wanted.log in problem.hint
    assert "also_nope" in machine.text(wanted.log)
    assert leftovers(machine, wanted) == []
    assert store.built(machine, wanted.fingerprint) is None


def test_cmake_error_is_the_reason(machine: machines.Machine) -> None:
    text = tiny.CMAKE + 'message(FATAL_ERROR "no such\n  option")\n'
    problem = refused(machine, tiny.wanted(machine, {"tiny/CMakeLists.txt": text}))
    assert problem.code == "build-failed"
    assert problem.message.startswith("tiny b11434 did not configure: CMake Error at CMakeLists.txt:")
    assert problem.message.endswith("(message): no such")
    assert problem.context["phase"] == "configure"


def test_product_that_was_not_made_is_named(machine: machines.Machine) -> None:
    wanted = tiny.wanted(machine, products=("bin/llama-server", "bin/llama-swerver"))
    problem = refused(machine, wanted)
    assert problem.code == "build-failed"
    assert "bin/llama-swerver" in problem.message
    assert leftovers(machine, wanted) == []


@pytest.mark.parametrize("product", ["/etc/passwd", "../../x"])
def test_product_outside_the_build_is_refused(machine: machines.Machine, product: str) -> None:
    assert refused(machine, tiny.wanted(machine, products=(product,))).code == "manifest-invalid"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("int main(void) { return 3; }", "--version ended with 3"),
        ("int main(void) { __builtin_trap(); }", "was ended by SIGILL"),
    ],
)
def test_release_that_does_not_run_is_not_recorded(machine: machines.Machine, body: str, words: str) -> None:
    wanted = tiny.wanted(machine, {"tiny/server.c": f"{body}\n"})
    problem = refused(machine, wanted)
    assert problem.code == "release-does-not-run"
    assert words in problem.message
    assert "another CPU" in problem.hint or "SIGILL" not in words
    assert store.built(machine, wanted.fingerprint) is None


def test_damaged_source_is_removed_and_named(machine: machines.Machine) -> None:
    wanted = tiny.wanted(machine)
    machine.write(store.blob(wanted.source), b"damaged")
    problem = refused(machine, wanted)
    assert problem.code == "artifact-corrupt"
    assert not store.has(machine, wanted.source)


def test_source_without_cmake_is_named(machine: machines.Machine) -> None:
    wanted = tiny.wanted(machine)
    body = tiny.pack_tar({"x/README": b""})
    other = build.Build(**{**vars(wanted), "source": tiny.put(machine, body)})
    assert "no CMakeLists.txt" in refused(machine, other).message


def test_source_folder_is_the_one_beside_ggml(tmp_path: Path) -> None:
    for name in ("a/sub", "b/llama.cpp/ggml", "b/llama.cpp/app"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "CMakeLists.txt").write_text("")
    (tmp_path / "b/llama.cpp/CMakeLists.txt").write_text("")
    assert builder.find_source(str(tmp_path)) == str(tmp_path / "b/llama.cpp")
    (tmp_path / "CMakeLists.txt").write_text("")
    assert builder.find_source(str(tmp_path)) == str(tmp_path / "b/llama.cpp")
    (tmp_path / "ggml").mkdir()
    assert builder.find_source(str(tmp_path)) == str(tmp_path)


def test_release_that_would_do_the_wrong_thing_is_not_recorded(machine: machines.Machine) -> None:
    """It starts and ends well, and shows no card: what the role expects of it decides."""
    wanted = tiny.wanted(machine, expected=(("--list-devices", r"CUDA\d", "it shows no CUDA device"),))
    problem = refused(machine, wanted)
    assert problem.code == "release-does-not-run"
    assert "it shows no CUDA device (--list-devices says: Available devices:)" in problem.message
    assert store.built(machine, wanted.fingerprint) is None
    assert leftovers(machine, wanted) == []


def test_nvcc_is_the_toolkits_and_no_other(machine: machines.Machine) -> None:
    wanted = tiny.wanted(machine, toolkit="/usr/local/cuda-12.6")
    builder.Builder(machine, wanted).run()
    place = machine.path("/usr/local/cuda-12.6")
    assert f"-DCMAKE_CUDA_COMPILER={place}/bin/nvcc" in machine.text(wanted.log)
    assert f"-DCUDAToolkit_ROOT={place} " in machine.text(wanted.log)


def test_what_the_files_need_is_recorded(machine: machines.Machine) -> None:
    built = builder.Builder(machine, tiny.wanted(machine)).run()
    assert [word for word in built.versions if word.startswith("GLIBC_2.")]
    with tarfile.open(machine.path(store.blob(built.digest))) as archive:
        marker = archive.extractfile(tree.MARKER)
        assert marker is not None
        told = json.load(marker)
    assert told["needs"] == list(built.versions)
    assert all(row["needs"] for row in told["files"])


@pytest.mark.parametrize("moment", ["compiling", "gathering"])
def test_disk_full_in_the_middle_leaves_nothing_half_done(
    machine: machines.Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    environment = {}
    if moment == "compiling":
        said = "fatal error: error writing to /tmp/ccUq7.s: No space left on device"
        script(tmp_path, "cmake", f'case "$*" in *--build*) echo "{said}"; exit 1;; esac\nexec /usr/bin/cmake "$@"\n')
        environment = {"PATH": f"{tmp_path}/tools:/usr/bin:/bin"}
    else:

        def full(*_given: object) -> list[str]:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(release, "gather", full)
    wanted = tiny.wanted(machine, environment=environment)
    problem = refused(machine, wanted)
    assert problem.code == ("build-failed" if moment == "compiling" else "disk-full")
    assert "df -h" in problem.hint
    assert leftovers(machine, wanted) == []
    assert store.built(machine, wanted.fingerprint) is None


# -- tools


def script(tmp_path: Path, name: str, text: str) -> None:
    tmp_path.joinpath("tools").mkdir(exist_ok=True)
    place = tmp_path / "tools" / name
    place.write_text(f"#!/bin/sh\n{text}")
    place.chmod(0o755)


def test_out_of_memory_is_tried_again_with_fewer_jobs(machine: machines.Machine, tmp_path: Path) -> None:
    """The compiler dies while more than one runs; what it said then is gcc's own sentence."""
    killed = "c++: fatal error: Killed signal terminated program cc1plus"
    script(
        tmp_path,
        "cmake",
        f'case "$*" in *"--parallel 1 "*) ;; *--parallel*) echo "{killed}"; exit 1;; esac\nexec /usr/bin/cmake "$@"\n',
    )
    environment = {"PATH": f"{tmp_path}/tools:/usr/bin:/bin"}
    wanted = tiny.wanted(machine, jobs=4, environment=environment)
    assert builder.Builder(machine, wanted).run().digest
    log = machine.text(wanted.log)
    assert [f"--parallel {jobs} " in log for jobs in (4, 2, 1)] == [True, True, True]


def test_out_of_memory_with_one_job_is_told_with_a_hint(machine: machines.Machine, tmp_path: Path) -> None:
    killed = "c++: fatal error: Killed signal terminated program cc1plus"
    script(tmp_path, "cmake", f'case "$*" in *--parallel*) echo "{killed}"; exit 1;; esac\nexec /usr/bin/cmake "$@"\n')
    problem = refused(machine, tiny.wanted(machine, jobs=2, environment={"PATH": f"{tmp_path}/tools:/usr/bin:/bin"}))
    assert problem.code == "build-failed"
    assert "ran out of memory" in problem.hint


def test_make_serves_where_ninja_is_missing(machine: machines.Machine, tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    for name in ("cmake", "make", "cc", "ar", "ranlib", "as", "ld"):
        (tmp_path / "tools" / name).symlink_to(f"/usr/bin/{name}")
    wanted = tiny.wanted(machine, environment={"PATH": f"{tmp_path}/tools"})
    assert builder.Builder(machine, wanted).run().digest
    assert "-G Ninja" not in machine.text(wanted.log)
    assert "[100%]" in machine.text(wanted.log)


def test_missing_cmake_is_a_missing_tool(machine: machines.Machine, tmp_path: Path) -> None:
    problem = refused(machine, tiny.wanted(machine, environment={"PATH": str(tmp_path)}))
    assert problem.code == "build-tool-missing"
    assert problem.context["tool"] == "cmake"


def test_build_sees_no_login_and_no_repository(machine: machines.Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFLAGS", "-DFROM_THE_LOGIN")
    text = tiny.CMAKE + 'execute_process(COMMAND env OUTPUT_VARIABLE words)\nmessage(STATUS "words ${words}")\n'
    wanted = tiny.wanted(machine, {"tiny/CMakeLists.txt": text}, environment={"EXTRA": "1"})
    builder.Builder(machine, wanted).run()
    log = machine.text(wanted.log)
    assert "FROM_THE_LOGIN" not in log
    assert "GIT_DIR=/nonexistent" in log
    assert f"CCACHE_DIR={machine.path(builder.CCACHE)}" in log
    assert "EXTRA=1" in log
    assert "SOURCE_DATE_EPOCH" not in log


# -- cut off


#: Stops in the middle of compiling until the test lets it go; the compiler is really running by then.
GATE = 'touch "$1.reached"\nuntil [ -e "$1" ]; do sleep 0.05; done\n'
GATED = {
    "tiny/gate.sh": GATE,
    "tiny/CMakeLists.txt": tiny.CMAKE
    + "add_custom_target(gate COMMAND sh ${CMAKE_SOURCE_DIR}/gate.sh ${GATE})\nadd_dependencies(llama-bench gate)\n",
}


@pytest.fixture
def gated(machine: machines.Machine, tmp_path: Path) -> build.Build:
    options = {"LLAMA_BUILD_NUMBER": "1", "GATE": str(tmp_path / "gate")}
    return tiny.wanted(machine, GATED, options=options)


@pytest.fixture
def spawn(machine: machines.Machine) -> Iterator[Callable[[build.Build], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def one(wanted: build.Build) -> subprocess.Popen[bytes]:
        started.append(start(machine, wanted))
        return started[-1]

    yield one
    for process in started:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """As systemd's KillMode=control-group does: the builder and everything below it, at once."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()


def until(found: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> None:
    """Look until it is so; a builder that ends meanwhile fails the test."""
    ticker = threading.Event()
    for _ in range(1200):
        if found():
            return
        assert process is None or process.poll() is None, "the builder ended early"
        ticker.wait(0.05)
    raise AssertionError("it never came to that")


Spawn = Callable[[build.Build], "subprocess.Popen[bytes]"]


def test_killed_in_the_middle_converges(machine: machines.Machine, gated: build.Build, tmp_path: Path, spawn: Spawn) -> None:
    process = spawn(gated)
    until((tmp_path / "gate.reached").exists, process)
    end(process)
    assert machine.exists(gated.workplace)
    assert not machine.exists(outcome.result_path(gated.folder))
    assert store.built(machine, gated.fingerprint) is None
    (tmp_path / "gate").touch()
    assert spawn(gated).wait(60) == 0
    assert outcome.read_result(machine, gated.folder) == (None, True)
    assert store.built(machine, gated.fingerprint) is not None
    assert leftovers(machine, gated) == []


def test_killed_while_packing_leaves_no_half_release(machine: machines.Machine) -> None:
    wanted = tiny.wanted(machine)
    store.prepare(machine)
    machine.write(f"{store.BLOBS}/{wanted.short}.packing", b"half a release" * 1000)
    built = builder.Builder(machine, wanted).run()
    assert machine.digest(store.blob(built.digest)) == built.digest
    assert leftovers(machine, wanted) == []


def test_second_builder_of_a_name_waits_and_then_finds_it_done(
    machine: machines.Machine, gated: build.Build, tmp_path: Path, spawn: Spawn
) -> None:
    first = spawn(gated)
    until((tmp_path / "gate.reached").exists, first)
    second = spawn(gated)
    until(lambda: _progress(machine, gated) == "waiting", second)
    assert machine.exists(gated.workplace)
    (tmp_path / "gate").touch()
    assert (first.wait(60), second.wait(60)) == (0, 0)
    assert outcome.read_result(machine, gated.folder) == (None, True)
    assert machine.text(gated.log).count("--build") == 1


def _progress(machine: machines.Machine, wanted: build.Build) -> str:
    found = outcome.read_progress(machine, wanted.folder)
    return found.phase if found else ""


def test_progress_counts_objects(machine: machines.Machine, gated: build.Build, tmp_path: Path, spawn: Spawn) -> None:
    process = spawn(gated)
    until((tmp_path / "gate.reached").exists, process)
    until(lambda: _progress(machine, gated) == "compile", process)
    found = outcome.read_progress(machine, gated.folder)
    assert found is not None
    assert found.words.startswith("compiling")
    (tmp_path / "gate").touch()
    assert process.wait(60) == 0


def test_unit_leaves_the_problem_as_its_result(machine: machines.Machine, spawn: Spawn) -> None:
    wanted = tiny.wanted(machine, {"tiny/server.c": "int main(void) { return nope; }\n"})
    assert spawn(wanted).wait(60) == 0
    problem, ended = outcome.read_result(machine, wanted.folder)
    assert ended
    assert problem is not None
    assert problem.code == "build-failed"
    assert "\u2018nope\u2019 undeclared" in problem.message
