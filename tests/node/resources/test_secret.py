"""A secret on a node: seen when it differs, placed from what is kept, and shown by nothing."""

from __future__ import annotations

import json

import pytest

from tests.node import strict
from tests.node.resources.cases import secret as cases
from wattherd import errors, resources
from wattherd.resources import base, secret


def difference(one: secret.Secret, bench: strict.Bench) -> base.Delta:
    return base.delta(one.wanted(), one.actual(bench.machine))


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400])
def test_another_mode_alone_is_set_without_writing(bench: strict.Bench, mode: int) -> None:
    one = cases.settled(bench)
    bench.put(cases.PATH, cases.BODY, mode=mode)
    inode = bench.tree()["etc/demo.env"][0]
    found = difference(one, bench)
    assert set(found) == (set() if mode == 0o600 else {"mode"})
    one.fix(bench.machine, found, bench.tell)
    assert difference(one, bench) == {}
    assert bench.tree()["etc/demo.env"][0] == inode


def test_other_content_is_seen_and_neither_is_shown(bench: strict.Bench) -> None:
    one = cases.settled(bench)
    bench.put(cases.PATH, 'DEMO_KEY="somebody-elses-word"\n', mode=0o600)
    found = difference(one, bench)
    assert set(found) == {"content"}
    said = [json.dumps(found), repr(one), str(one.wanted()), json.dumps(resources.encode(one, role="r").spec), *one.texts(bench.machine)]
    assert not any("opens-nothing" in words or "somebody" in words for words in said)
    one.fix(bench.machine, found, bench.tell)
    assert bench.machine.read(cases.PATH) == cases.BODY


def test_another_host_or_path_makes_another_digest(bench: strict.Bench) -> None:
    one = cases.settled(bench)
    assert not secret.Secret(cases.PATH, digest=one.digest, salt="atlas").fits(cases.BODY)
    assert not secret.Secret("/etc/other.env", digest=one.digest, salt=cases.SALT).fits(cases.BODY)


@pytest.mark.parametrize("kept", [None, b"damaged"])
def test_without_its_content_nothing_is_written(bench: strict.Bench, kept: bytes | None) -> None:
    one = cases.drifted(bench)
    bench.machine.unlink(one.kept_path)
    if kept is not None:
        bench.put(one.kept_path, kept)
    before = bench.machine.read(cases.PATH)
    with pytest.raises(errors.Problem) as caught:
        one.fix(bench.machine, difference(one, bench), bench.tell)
    assert caught.value.code == "secret-missing"
    assert bench.machine.read(cases.PATH) == before
    assert not bench.machine.exists(one.kept_path), "what is damaged is asked for again"


def test_what_is_no_file_stays(bench: strict.Bench) -> None:
    one = cases.absent(bench)
    bench.folder(f"{cases.PATH}/mine")
    with pytest.raises(errors.Problem) as caught:
        one.fix(bench.machine, difference(one, bench), bench.tell)
    assert caught.value.code == "file-conflict"
    one.remove(bench.machine, bench.tell)
    assert bench.machine.is_dir(f"{cases.PATH}/mine")


def test_removing_deletes_the_file(bench: strict.Bench) -> None:
    one = cases.settled(bench)
    one.remove(bench.machine, bench.tell)
    assert one.gone(bench.machine)


@pytest.mark.parametrize(
    "fields",
    [{"mode": "0644"}, {"mode": "0601"}, {"digest": "x"}, {"digest": "../../../etc/shadow"}, {"path": "/etc/../x"}, {"path": "etc/x"}],
)
def test_what_a_manifest_may_not_say(fields: dict[str, str]) -> None:
    given = {"path": "/etc/x", "digest": "0" * 64, "salt": "titan", **fields}
    with pytest.raises(errors.Problem) as caught:
        secret.Secret(**given)
    assert caught.value.code == "manifest-invalid"
