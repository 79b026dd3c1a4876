"""A user: what is compared, what is left alone, and why one is not removed."""

from __future__ import annotations

import os
import pwd

import pytest

from tests.node import strict
from tests.node.resources import accounts
from tests.node.resources.cases import user as cases
from wattherd import errors
from wattherd import machine as machines
from wattherd.resources import base, user

LLAMA = "llama:x:991:991:llama.cpp server:/nonexistent:/usr/sbin/nologin\n"


def _fix(one: user.User, bench: strict.Bench) -> None:
    one.fix(bench.machine, base.delta(one.wanted(), one.actual(bench.machine)), bench.tell)


def test_a_system_user_gets_no_home_and_a_group_of_its_own(bench: strict.Bench) -> None:
    _fix(cases.absent(bench), bench)
    (argv,) = bench.runner.commands
    assert argv[0] == "useradd"
    assert argv[-1] == "llama"
    assert {"--system", "--no-create-home", "--user-group"} <= set(argv)
    assert argv[argv.index("--home-dir") + 1] == "/nonexistent"
    assert argv[argv.index("--groups") + 1] == "video,render"
    assert bench.machine.text("/etc/group").splitlines()[-1].startswith("llama:")


def test_a_person_gets_a_home(bench: strict.Bench) -> None:
    accounts.Accounts(bench, cases.PASSWD, cases.GROUP)
    _fix(user.User("zoe", system=False, shell="/bin/bash", home="/home/zoe"), bench)  # noqa: S604 - a login shell
    (argv,) = bench.runner.commands
    assert "--create-home" in argv
    assert "--system" not in argv


def test_groups_that_are_not_listed_are_left_alone(bench: strict.Bench) -> None:
    one = cases.drifted(bench)
    assert one.actual(bench.machine) == {"shell": "/bin/bash", "groups": "video", "comment": ""}
    _fix(one, bench)
    assert "audio:x:29:llama" in bench.machine.text("/etc/group").splitlines()
    assert (
        "usermod",
        "--shell",
        "/usr/sbin/nologin",
        "--comment",
        "llama.cpp server",
        "--append",
        "--groups",
        "llama,render",
        "llama",
    ) in bench.runner.commands
    assert one.actual(bench.machine) == one.wanted()


def test_what_is_not_asked_for_is_not_compared(bench: strict.Bench) -> None:
    bench.put("/etc/passwd", "llama:x:991:991:anything:/anywhere:/usr/sbin/nologin\n")
    bench.put("/etc/group", "llama:x:991:\n")
    one = user.User("llama")
    assert base.delta(one.wanted(), one.actual(bench.machine)) == {}
    asked = user.User("llama", home="/srv/llama", comment="server")
    assert set(base.delta(asked.wanted(), asked.actual(bench.machine))) == {"home", "comment"}


def test_a_missing_group_is_named_before_anything_is_made(bench: strict.Bench) -> None:
    accounts.Accounts(bench, cases.PASSWD, cases.GROUP)
    with pytest.raises(errors.Problem) as caught:
        _fix(user.User("llama", groups=("video", "docker", "nvidia")), bench)
    assert caught.value.code == "group-unknown"
    assert "no group docker and no group nvidia" in caught.value.message
    bench.runner.planned.clear()
    assert bench.runner.ran == []


def test_a_group_that_a_killed_useradd_left_is_taken(bench: strict.Bench) -> None:
    accounts.Accounts(bench, cases.PASSWD, cases.GROUP + "llama:x:991:\n")
    _fix(cases.wanted(), bench)
    (argv,) = bench.runner.commands
    assert argv[argv.index("--gid") + 1] == "llama"
    assert "--user-group" not in argv
    assert cases.wanted().actual(bench.machine) == cases.wanted().wanted()


def test_membership_by_primary_group_counts(bench: strict.Bench) -> None:
    bench.put("/etc/passwd", "llama:x:991:44::/:/usr/sbin/nologin\n")
    bench.put("/etc/group", "video:x:44:\nllama:x:991:llama\n")
    one = user.User("llama", groups=("video",))
    assert one.actual(bench.machine) == one.wanted()


def test_a_name_that_begins_alike_is_another_user(bench: strict.Bench) -> None:
    bench.put("/etc/passwd", "llamas:x:1:1::/:/bin/sh\nllama2:x:2:2::/:/bin/sh\n")
    assert user.User("llama").actual(bench.machine) is None


def test_the_real_root_asks_the_name_service() -> None:
    found = pwd.getpwuid(os.geteuid())
    state = user.User(found.pw_name, shell="/x", home="/x", comment="x").actual(machines.Machine())  # noqa: S604 - a login shell
    assert state is not None
    assert (state["shell"], state["home"], state["comment"]) == (found.pw_shell, found.pw_dir, found.pw_gecos)
    assert found.pw_name in str(state["groups"])
    assert user.User("no-such-user-here").actual(machines.Machine()) is None


def test_remove_keeps_the_home(bench: strict.Bench) -> None:
    accounts.Accounts(bench, LLAMA.replace("/nonexistent", "/srv/llama"), "llama:x:991:\n")
    bench.put("/srv/llama/model.gguf", "data")
    cases.wanted().remove(bench.machine, bench.tell)
    cases.wanted().remove(bench.machine, bench.tell)
    assert bench.runner.commands == [("userdel", "llama")]
    assert bench.machine.exists("/srv/llama/model.gguf")
    assert bench.tell.words == ["the home /srv/llama of llama was left as it is"]


@pytest.mark.parametrize("uids", ["991 991 991 991", "0 991 0 0"])
def test_a_user_with_processes_is_not_removed(bench: strict.Bench, uids: str) -> None:
    bench.put("/etc/passwd", LLAMA)
    bench.put("/proc/77/status", f"Name:\tllama-server\nUid:\t{uids}\nGid:\t1 1 1 1\n".replace(" ", "\t"))
    bench.put("/proc/78/status", "Name:\tsh\nUid:\t0\t0\t0\t0\nGid:\t991\t991\t991\t991\n")
    with pytest.raises(errors.Problem) as caught:
        cases.wanted().remove(bench.machine, bench.tell)
    assert caught.value.code == "user-busy"
    assert "still run: 77" in caught.value.message
    assert bench.runner.ran == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "-x"},
        {"name": "Big"},
        {"name": "a:b"},
        {"name": "a", "groups": ("x,y",)},
        {"name": "a", "comment": "a:b"},
        {"name": "a", "home": "/a\nb"},
    ],
)
def test_wrong_fields_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(errors.Problem) as caught:
        user.User(**wrong)  # type: ignore[arg-type]
    assert caught.value.code == "manifest-invalid"


def test_a_name_that_was_unknown_is_asked_again(machine: machines.Machine) -> None:
    """A folder whose user is gone is looked at before this very run makes that user again."""
    known: dict[str, str] = {}
    assert machine._cached("g", 996, lambda: known["app"]) == "996"
    known["app"] = "app"
    assert machine._cached("g", 996, lambda: known["app"]) == "app"
