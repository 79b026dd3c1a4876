"""A package: dpkg's file as it is found, and what apt-get says when it does not go well."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.node import strict
from tests.node.resources.cases import package as cases
from wattherd import errors
from wattherd import machine as machines
from wattherd.resources import base, dpkg, package

RECORDED = (Path(__file__).parent / "recorded" / "dpkg-status").read_bytes()
UPDATE = ("apt-get", "update", "-o", "DPkg::Lock::Timeout=120")
REMOVE = ("apt-get", "remove", "-y", "-o", "APT::Get::AutomaticRemove=false", "-o", "DPkg::Lock::Timeout=120")
CONFIGURE = ("dpkg", "--force-confold", "--configure", "-a")
BROKEN_SCRIPT = """dpkg: error processing package haproxy (--configure):
 installed haproxy package post-installation script subprocess returned error exit status 1
Errors were encountered while processing:
 haproxy
E: Sub-process /usr/bin/dpkg returned an error code (1)
"""
UNMET = """The following packages have unmet dependencies:
 haproxy : Depends: liblua5.3-0 but it is not installable
E: Unable to correct problems, you have held broken packages.
"""
LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 812 (apt-get)\n"


def _fix(one: package.Package, bench: strict.Bench) -> None:
    one.fix(bench.machine, base.delta(one.wanted(), one.actual(bench.machine)), bench.tell)


def _refused(one: package.Package, bench: strict.Bench) -> errors.Problem:
    with pytest.raises(errors.Problem) as caught:
        _fix(one, bench)
    return caught.value


# -- dpkg's file


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("mawk", "installed"),
        ("g++", "installed"),
        ("libc6", "installed"),
        ("libc6:i386", "installed"),
        ("libc6:arm64", None),
        ("adduser", "installed"),
        ("adduser:amd64", "installed"),
        ("curl", "installed"),
        ("ccache", None),
        ("rsync", "half-configured"),
        ("aria2", "half-installed"),
        ("ninja-build", None),
        ("ninja-build:arm64", "installed"),
        ("ninja-build:any", "installed"),
        ("awk", "installed"),
        ("c++-compiler", "installed"),
        ("g++-x86-64-linux-gnu", "installed"),
        ("g", None),
        ("libc", None),
        ("nonesuch", None),
    ],
)
def test_states_of_a_recorded_file(name: str, state: str | None) -> None:
    assert dpkg.parse(RECORDED, [name])[name] == state
    assert dpkg.parse(RECORDED, ["mawk", "nonesuch", name])[name] == state


def test_the_first_and_the_last_stanza_are_seen() -> None:
    body = (cases.stanza("first") + "\n" + cases.stanza("last")).encode()
    assert dpkg.parse(body, ["first", "last"]) == {"first": "installed", "last": "installed"}
    assert dpkg.parse(body.rstrip(), ["last"]) == {"last": "installed"}
    assert dpkg.parse(b"", ["first"]) == {"first": None}


def test_what_a_removed_package_provided_is_gone_with_it() -> None:
    body = (cases.stanza("exim4", "deinstall ok config-files", Provides="mail-transport-agent, mta (= 4)") + "\n").encode()
    assert dpkg.parse(body, ["mail-transport-agent", "mta"]) == {"mail-transport-agent": None, "mta": None}
    there = body.replace(b"deinstall ok config-files", b"install ok installed")
    assert dpkg.parse(there, ["mail-transport-agent", "mta"]) == {"mail-transport-agent": "installed", "mta": "installed"}


def test_a_description_does_not_pass_for_a_package() -> None:
    body = b"Package: a\nStatus: install ok installed\nDescription: x\n Package: b\n .\n Provides: c\n\n"
    assert dpkg.parse(body, ["b", "c"]) == {"b": None, "c": None}


def test_megabytes_take_milliseconds() -> None:
    body = b"".join(RECORDED.replace(b"Package: ", b"Package: x%d-" % index) for index in range(400)) + RECORDED
    assert len(body) > 5_000_000
    best_s = 1.0
    for _ in range(5):
        begun_s = time.perf_counter()
        found = dpkg.parse(body, ["mawk", "awk", "nonesuch", "cmake", "g++", "curl"])
        best_s = min(best_s, time.perf_counter() - begun_s)
    assert found["awk"] == "installed"
    assert best_s < 0.1  # 7 ms on a quiet machine; the margin is for a busy one


def test_the_file_is_read_once_for_a_batch(bench: strict.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    cases.put(bench, cases.stanza("a"), cases.stanza("b"))
    reads: list[str] = []
    read = bench.machine.read

    def watch(path: str) -> bytes | None:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(bench.machine, "read", watch)
    batch = [package.Package(name) for name in ("a", "b", "c")]
    assert package.Package.observe(bench.machine, batch) == {
        "package:a": {"status": "installed"},
        "package:b": {"status": "installed"},
        "package:c": None,
    }
    assert reads == [dpkg.STATUS]


# -- installing


def test_installing_asks_nothing_and_restarts_nothing(bench: strict.Bench) -> None:
    _fix(cases.absent(bench), bench)
    (call,) = bench.runner.ran
    assert call.environment["DEBIAN_FRONTEND"] == "noninteractive"
    assert call.environment["NEEDRESTART_SUSPEND"] == "1"
    assert call.given is None


def test_lists_are_read_first_when_there_are_none(bench: strict.Bench) -> None:
    cases.put(bench)
    bench.runner.plan(*UPDATE)
    cases.plan_install(bench)
    _fix(package.Package("haproxy"), bench)
    assert [argv[1] for argv in bench.runner.commands] == ["update", "install"]
    assert bench.tell.words == ["reading the package lists", "installing haproxy"]


@pytest.mark.parametrize(
    "words",
    [
        "E: Unable to locate package haproxy",
        "E: Package 'haproxy' has no installation candidate",
        "E: Failed to fetch http://x/y.deb  404  Not Found",
    ],
)
def test_lists_are_read_again_when_the_name_is_unknown_or_they_are_old(bench: strict.Bench, words: str) -> None:
    cases.put(bench)
    bench.put(cases.LIST)
    bench.runner.plan(*cases.INSTALL, "haproxy", code=100, err=words)
    bench.runner.plan(*UPDATE)
    cases.plan_install(bench)
    _fix(package.Package("haproxy"), bench)
    assert [argv[1] for argv in bench.runner.commands] == ["install", "update", "install"]


def test_an_unknown_name_tells_which_repositories_were_read(bench: strict.Bench) -> None:
    cases.put(bench)
    bench.put(cases.LIST)
    bench.put("/var/lib/apt/lists/deb.example.org_debian_dists_bookworm_InRelease")
    bench.put("/var/lib/apt/lists/cuda.example.com_repos_debian12_x86%5f64_._Packages")
    bench.runner.plan(*cases.INSTALL, "haprxy", code=100, err="E: Unable to locate package haprxy\n", times=2)
    bench.runner.plan(*UPDATE)
    problem = _refused(package.Package("haprxy"), bench)
    assert problem.code == "package-unavailable"
    assert "deb.example.org/debian bookworm" in problem.message
    assert problem.message.count("deb.example.org") == 1
    assert "cuda.example.com" in problem.message
    assert "check the name" in problem.hint


def test_a_repository_that_cannot_be_reached_is_named_without_its_password(bench: strict.Bench) -> None:
    cases.put(bench)
    bench.runner.plan(
        *UPDATE,
        err="W: Failed to fetch https://fleet:hunter2@deb.example.org/dists/x/InRelease  Could not resolve\nW: Some index files failed\n",
    )
    bench.runner.plan(*cases.INSTALL, "haproxy", code=100, err="E: Unable to locate package haproxy\n")
    problem = _refused(package.Package("haproxy"), bench)
    assert problem.code == "package-unavailable"
    assert "https://deb.example.org/dists/x/InRelease  Could not resolve" in problem.message
    assert "hunter2" not in problem.message
    assert "apt-get update" in problem.hint


def test_a_virtual_package_names_its_providers(bench: strict.Bench) -> None:
    cases.put(bench)
    bench.put(cases.LIST)
    words = "Package mta is a virtual package provided by:\n  exim4 4.96\n\nE: Package 'mta' has no installation candidate\n"
    bench.runner.plan(*cases.INSTALL, "mta", code=100, err=words, times=2)
    bench.runner.plan(*UPDATE)
    problem = _refused(package.Package("mta"), bench)
    assert problem.code == "package-unavailable"
    assert "is a virtual package" in problem.message
    assert problem.hint == "name one of the packages that provide it"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("E: You don't have enough free space in /var/cache/apt/archives/.\n", "You don't have enough free space"),
        (BROKEN_SCRIPT, "haproxy (--configure): installed haproxy package post-installation script"),
        (UNMET, "haproxy : Depends: liblua5.3-0 but it is not installable"),
        ("E: Sub-process /usr/bin/dpkg returned an error code (1)\n", "Sub-process"),
        ("", "named no reason"),
    ],
)
def test_a_failure_tells_the_line_that_matters(bench: strict.Bench, words: str, expected: str) -> None:
    cases.put(bench)
    bench.put(cases.LIST)
    bench.runner.plan(*cases.INSTALL, "haproxy", code=100, err=words)
    problem = _refused(package.Package("haproxy"), bench)
    assert problem.code == "package-failed"
    assert expected in problem.message


def test_another_package_that_is_broken_does_not_fail_this_one(bench: strict.Bench) -> None:
    cases.put(bench)
    bench.put(cases.LIST)

    def effect(argv: Sequence[str]) -> machines.Result:
        cases.put(bench, cases.stanza(argv[-1]))
        return machines.Result(100, b"", b"dpkg: error processing package other (--configure):\n exit status 1\n")

    bench.runner.plan(*cases.INSTALL, "haproxy", effect=effect)
    _fix(package.Package("haproxy"), bench)
    assert (
        bench.tell.words[-1]
        == "haproxy is installed, but apt-get also says: dpkg: error processing package other (--configure): exit status 1"
    )


# -- a dpkg that was interrupted


def test_an_interrupted_dpkg_is_finished_first(bench: strict.Bench) -> None:
    one = cases.absent(bench)
    bench.put("/var/lib/dpkg/updates/0003", "Package: x\n")
    bench.runner.plan(*CONFIGURE)
    _fix(one, bench)
    assert bench.runner.commands[0] == CONFIGURE
    assert bench.tell.words[0].startswith("dpkg was interrupted before")


def test_an_interruption_that_only_apt_sees_is_finished_once(bench: strict.Bench) -> None:
    cases.put(bench)
    bench.put(cases.LIST)
    words = "E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to correct the problem.\n"
    bench.runner.plan(*cases.INSTALL, "haproxy", code=100, err=words, times=2)
    bench.runner.plan(*CONFIGURE)
    problem = _refused(package.Package("haproxy"), bench)
    assert problem.code == "package-failed"
    assert bench.runner.commands.count(CONFIGURE) == 1


def test_an_interruption_that_cannot_be_finished_stops_there(bench: strict.Bench) -> None:
    one = cases.absent(bench)
    bench.put("/var/lib/dpkg/updates/0003", "Package: x\n")
    bench.runner.plan(*CONFIGURE, code=1, err="dpkg: error processing package x (--configure):\n no luck\n")
    problem = _refused(one, bench)
    assert problem.code == "package-failed"
    assert "no luck" in problem.message
    assert bench.runner.commands == [CONFIGURE]


def test_another_package_program_is_waited_for(bench: strict.Bench) -> None:
    cases.put(bench)
    bench.runner.plan(*UPDATE, code=100, err=LOCKED, times=3)
    bench.runner.plan(*UPDATE)
    cases.plan_install(bench)
    _fix(package.Package("haproxy"), bench)
    assert len(bench.machine.waits) == 3
    assert ("waiting for another package program", 5.0, 120.0, "s") in bench.tell.steps


def test_the_wait_for_another_package_program_ends(bench: strict.Bench) -> None:
    cases.put(bench)
    bench.runner.plan(*UPDATE, code=100, err=LOCKED, times=None)
    bench.runner.plan(*cases.INSTALL, "haproxy", code=100, err=LOCKED)
    problem = _refused(package.Package("haproxy"), bench)
    assert problem.code == "package-failed"
    assert "held by process 812" in problem.message
    assert sum(bench.machine.waits) == 120.0


# -- removing


def _plan_trial(bench: strict.Bench, out: str, code: int = 0, err: str = "") -> None:
    bench.runner.plan(*REMOVE, "-s", "haproxy", out=out, code=code, err=err)


def test_remove_takes_the_package_alone(bench: strict.Bench) -> None:
    cases.put(bench, cases.stanza("haproxy"))
    _plan_trial(bench, "The following packages will be REMOVED:\n  haproxy\nRemv haproxy [2.6.12-1]\n")
    bench.runner.plan(*REMOVE, "haproxy", effect=lambda argv: cases.put(bench))  # noqa: ARG005
    one = package.Package("haproxy")
    one.remove(bench.machine, bench.tell)
    one.remove(bench.machine, bench.tell)
    assert one.actual(bench.machine) is None
    assert len(bench.runner.ran) == 2


@pytest.mark.parametrize("line", ["Remv other [1.0]", "Inst replacement (1.0)", "Purg other:i386 [1.0]"])
def test_remove_leaves_it_when_anything_else_would_go_too(bench: strict.Bench, line: str) -> None:
    cases.put(bench, cases.stanza("haproxy"))
    _plan_trial(bench, f"{line}\nRemv haproxy [2.6.12-1]\n")
    package.Package("haproxy").remove(bench.machine, bench.tell)
    assert len(bench.runner.ran) == 1
    other = line.split()[1].partition(":")[0]
    assert bench.tell.words == [f"haproxy was left as it is: {other} would go or change with it"]


def test_remove_of_what_another_package_provides_does_nothing(bench: strict.Bench) -> None:
    cases.put(bench, cases.stanza("real", Provides="haproxy"))
    _plan_trial(bench, "Package 'haproxy' is not installed, so not removed\n")
    package.Package("haproxy").remove(bench.machine, bench.tell)
    assert "another package provides it" in bench.tell.words[0]


def test_remove_that_apt_refuses_is_a_word(bench: strict.Bench) -> None:
    cases.put(bench, cases.stanza("haproxy"))
    _plan_trial(bench, "", code=100, err="E: Unable to locate package haproxy\n")
    package.Package("haproxy").remove(bench.machine, bench.tell)
    assert "Unable to locate package haproxy" in bench.tell.words[0]


def test_a_removal_that_fails_is_a_failure(bench: strict.Bench) -> None:
    cases.put(bench, cases.stanza("haproxy"))
    _plan_trial(bench, "Remv haproxy [2.6.12-1]\n")
    bench.runner.plan(*REMOVE, "haproxy", code=100, err="E: Write error - write (28: No space left on device)\n")
    with pytest.raises(errors.Problem, match="No space left") as caught:
        package.Package("haproxy").remove(bench.machine, bench.tell)
    assert caught.value.code == "package-failed"


@pytest.mark.parametrize("name", ["foo-", "-y", "Foo", "foo bar", "", "foo=1.0", "foo/bookworm", "^foo", "a*"])
def test_names_that_apt_would_read_otherwise_are_refused(name: str) -> None:
    with pytest.raises(errors.Problem) as caught:
        package.Package(name)
    assert caught.value.code == "manifest-invalid"


@pytest.mark.parametrize("name", ["g++", "libstdc++-12-dev", "libc6:i386", "python3.11", "cuda-toolkit-12-4", "0ad"])
def test_real_names_are_taken(name: str) -> None:
    assert package.Package(name).id == f"package:{name}"
