"""Models that lie on the node: never touched, never believed, and a split one is whole or nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.node import strict
from tests.node.resources.cases import weights as cases
from tests.unit.sources import gguf_files
from tests.unit.sources.gguf_files import Tensor, U16Value
from wattherd import errors
from wattherd.resources import base, weights

BODY = gguf_files.make()


def refused(one: weights.Weights, bench: strict.Bench) -> errors.Problem:
    """What preflight says; the state says the same, so that a check and a run see it."""
    state = one.actual(bench.machine)
    assert base.delta(one.wanted(), state)
    with pytest.raises(errors.Problem) as caught:
        one.preflight(bench.machine, state)
    assert caught.value.hint
    return caught.value


def part(number: int, count: int) -> bytes:
    split = {"split.no": U16Value(number - 1), "split.count": U16Value(count)}
    return gguf_files.make({**gguf_files.MODEL, **split}, [Tensor(f"blk.{number}.a")])


def big(count: int) -> weights.Weights:
    return weights.Weights(
        paths=tuple(f"/var/lib/wattherd/models/big/big-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)),
        places=tuple(f"/mnt/nas/Big-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)),
    )


def test_the_file_stays_as_it_is_from_the_first_run_to_the_removal(bench: strict.Bench) -> None:
    one = cases.absent(bench)
    real = Path(bench.machine.path(cases.PLACE))
    real.chmod(0o444)
    before = (real.read_bytes(), real.stat())
    one.fix(bench.machine, {}, bench.tell)
    assert bench.machine.readlink(cases.PATH) == cases.PLACE
    assert not one.needs(bench.machine)
    assert one.ours(bench.machine)
    one.remove(bench.machine, bench.tell)
    assert one.gone(bench.machine)
    assert (real.read_bytes(), real.stat()) == before


def test_a_file_that_is_not_there_is_probably_not_mounted(bench: strict.Bench) -> None:
    problem = refused(weights.Weights(paths=(cases.PATH,), places=(cases.PLACE,)), bench)
    assert problem.code == "artifact-missing"
    assert cases.PLACE in problem.message
    assert "mounted" in problem.hint


def test_a_share_that_went_away_after_the_deploy(bench: strict.Bench) -> None:
    one = cases.settled(bench)
    assert not base.delta(one.wanted(), one.actual(bench.machine))
    bench.machine.unlink(cases.PLACE)
    assert refused(one, bench).code == "artifact-missing"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"<!doctype html>", "gguf-html"),
        (b"version https://git-lfs.github.com/spec/v1\n", "gguf-lfs-pointer"),
        (BODY[:-100], "gguf-truncated"),
        (gguf_files.make({"general.type": "imatrix"}), "gguf-not-servable"),
        (gguf_files.make({**gguf_files.MODEL, "general.file_type": 7}), "model-mismatch"),
        (gguf_files.make({**gguf_files.MODEL, "llama.context_length": 4096}), "model-mismatch"),
        (part(1, 2), "gguf-split"),
    ],
)
def test_what_is_no_such_model_is_said_before_anything_is_touched(bench: strict.Bench, body: bytes, code: str) -> None:
    one = cases.settled(bench)
    bench.put(cases.PLACE, body)
    problem = refused(one, bench)
    assert problem.code == code
    assert cases.PLACE in problem.message or code == "gguf-not-servable"


def test_a_pinned_file_is_compared_by_its_digest(bench: strict.Bench) -> None:
    one = weights.Weights(paths=(cases.PATH,), places=(cases.PLACE,), digests=(hashlib.sha256(BODY).hexdigest(),))
    bench.put(cases.PLACE, BODY)
    one.fix(bench.machine, {}, bench.tell)
    assert not base.delta(one.wanted(), one.actual(bench.machine))
    bench.put(cases.PLACE, BODY[:-1] + b"!")
    assert refused(one, bench).code == "digest-mismatch"


def test_every_missing_part_is_named(bench: strict.Bench) -> None:
    one = big(4)
    for number in (1, 3):
        bench.put(one.places[number - 1], part(number, 4))
    problem = refused(one, bench)
    assert "Big-00002-of-00004.gguf, /mnt/nas/Big-00004-of-00004.gguf" in problem.message
    for number in (2, 4):
        bench.put(one.places[number - 1], part(number, 4))
    one.fix(bench.machine, {}, bench.tell)
    assert [bench.machine.readlink(path) for path in one.paths] == list(one.places)
    bench.put(one.places[2], part(4, 4))
    assert refused(one, bench).code == "gguf-split"


def test_what_servers_cannot_read_is_said(bench: strict.Bench) -> None:
    one = cases.absent(bench)
    Path(bench.machine.path(cases.PLACE)).chmod(0o600)
    assert refused(one, bench).code == "permission"
    Path(bench.machine.path(cases.PLACE)).chmod(0o644)
    Path(bench.machine.path("/mnt/nas")).chmod(0o700)
    assert "/mnt/nas" in refused(one, bench).message
    home = weights.Weights(paths=(cases.PATH,), places=("/home/ops/big.gguf",))
    bench.put("/home/ops/big.gguf", BODY)
    assert "home folder" in refused(home, bench).message


def test_a_real_file_under_the_name_is_not_replaced(bench: strict.Bench) -> None:
    one = cases.absent(bench)
    bench.put(cases.PATH, b"somebody's")
    problem = refused(one, bench)
    assert problem.code == "file-conflict"
    assert not one.is_new(bench.machine, one.actual(bench.machine))
    one.remove(bench.machine, bench.tell)
    assert bench.machine.read(cases.PATH) == b"somebody's"


@pytest.mark.parametrize(
    ("paths", "places", "digests"),
    [((), (), ()), (("/a",), ("/b", "/c"), ()), (("/a",), ("/b",), ("1" * 64, "2" * 64)), (("/a",), ("b/../c",), ())],
)
def test_what_makes_no_sense_is_refused(paths: tuple[str, ...], places: tuple[str, ...], digests: tuple[str, ...]) -> None:
    with pytest.raises(errors.Problem) as caught:
        weights.Weights(paths=paths, places=places, digests=digests)
    assert caught.value.code == "manifest-invalid"
