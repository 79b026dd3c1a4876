"""Frames, fields and manifests: exact bytes, checked types, canonical text."""

from __future__ import annotations

import dataclasses
import io
import json

import hypothesis
import hypothesis.strategies as st
import pytest

from wattherd import errors
from wattherd.verbs import generations
from wattherd.wire import event, facts, fields, frame, manifest

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@hypothesis.given(st.dictionaries(st.text(max_size=10), _JSON, max_size=5))
def test_a_line_comes_back_as_it_went(message: dict[str, object]) -> None:
    line = frame.encode(message)
    assert line.count(b"\n") == 1, "one message, one line, whatever is in it"
    assert frame.decode(frame.read_line(io.BytesIO(line))) == message


@hypothesis.given(st.binary(max_size=200))
def test_garbage_is_a_problem_never_a_crash(line: bytes) -> None:
    code = ""
    try:
        frame.decode(line)
    except errors.Problem as problem:
        code = problem.code
    valid = line.strip().startswith(b"{")
    assert valid or code in {"stream-cut", "manifest-invalid"}


def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(errors.Problem, match="refused"):
        frame.read_line(io.BytesIO(b"x" * (frame.LINE_LIMIT_BYTES + 10)))


def test_a_line_of_nothing_but_brackets_is_refused() -> None:
    """The interpreter's own limit of nesting is no ValueError: one node could end the whole run by it."""
    with pytest.raises(errors.Problem, match="stream-cut"):
        frame.decode(b"[" * 100_000)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", f"1{'0' * 400}"])
def test_what_json_calls_a_number_and_nobody_can_count_is_refused(text: str) -> None:
    line = frame.decode(f'{{"threads": {text}}}'.encode())
    for read in (fields.number, fields.integer):
        with pytest.raises(errors.Problem, match="threads must be"):
            read(line, "threads")
    with pytest.raises(errors.Problem, match=r"cpu\.threads must be"):
        fields.build(facts.Cpu, {"architecture": "x86_64", **line}, "cpu")


def test_a_short_body_is_a_cut_stream() -> None:
    with pytest.raises(errors.Problem) as caught:
        frame.read_bytes(io.BytesIO(b"abc"), 5)
    assert caught.value.code == "stream-cut"


_FACTS = facts.Facts(
    system=facts.System(hostname="titan", os_id="debian"),
    cpu=facts.Cpu("x86_64", threads=4),
    python=facts.Python("/usr/bin/python3", "3.11.2"),
    builds=(facts.Built("ab12cd34ef-b1-cpu", "0" * 64, 7),),
    generation=facts.Generation(3, "d" * 64),
)


def test_facts_travel() -> None:
    assert facts.decode(json.loads(json.dumps(fields.plain(_FACTS)))) == _FACTS


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"memory_bytes": "many"}, "memory_bytes"),
        ({"memory_bytes": True}, "memory_bytes"),
        ({"builds": [{"fingerprint": 5}]}, "fingerprint"),
        ({"builds": {}}, "builds"),
        ({"surprise": 1}, "surprise"),
        ({"cpu": None}, "cpu"),
    ],
)
def test_a_wrong_fact_names_its_key(change: dict[str, object], named: str) -> None:
    with pytest.raises(errors.Problem, match=named):
        facts.decode({**fields.plain(_FACTS), **change})


def _manifest(*ids: str) -> manifest.Manifest:
    return manifest.Manifest("titan", tuple(manifest.Entry(one, "file", "base", {"path": one[5:]}) for one in ids))


def test_equal_manifests_have_equal_bytes_and_survive() -> None:
    wanted = _manifest("file:/b", "file:/a")
    assert manifest.encode(wanted) == manifest.encode(_manifest("file:/b", "file:/a"))
    assert manifest.decode(manifest.encode(wanted)) == wanted, "order is kept: it is meaning"


def test_twice_the_same_id_is_refused() -> None:
    with pytest.raises(errors.Problem, match="listed twice"):
        manifest.decode(manifest.encode(_manifest("file:/a", "file:/a")))


def test_another_version_is_refused() -> None:
    body = json.dumps({**manifest.to_plain(_manifest()), "manifest": 99}).encode()
    with pytest.raises(errors.Problem) as caught:
        manifest.decode(body)
    assert caught.value.code == "protocol-mismatch"


def test_a_problem_from_a_node_cannot_steer_the_terminal() -> None:
    told = errors.Problem.from_dict({"code": "x\x1b[2J", "message": "red \x1b[31m\x07", "context": {"resource": "file:/a\x1b", "n": 3}})
    assert "\x1b" not in told.code + told.message + str(told.context["resource"])
    assert told.context["n"] == 3


def test_what_travels_must_be_a_record() -> None:
    @dataclasses.dataclass
    class Ordinary:
        number: int = 3

    with pytest.raises(TypeError, match="Ordinary"):
        fields.plain([Ordinary()])


def test_an_end_carries_its_problem() -> None:
    message = event.end(problem=errors.Problem("disk-full", "no room", hint="df -h"), ok=1)
    assert message["event"] == "end"
    assert message["problem"] == {"code": "disk-full", "message": "no room", "hint": "df -h"}


def test_a_controller_s_own_record_may_write_tuple_small() -> None:
    found = fields.build(generations.Generation, {"number": 1, "digest": "d", "applied_at": "", "resources": 2, "units": ["a.service"]})
    assert found.units == ("a.service",)
