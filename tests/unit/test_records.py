"""Records against the standard library's dataclasses: whatever Wattherd uses of them behaves the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from wattherd import records


def shapes(dataclass: Any, field: Any) -> tuple[type[Any], type[Any]]:
    """The same two classes, made by either decorator."""

    @dataclass(frozen=True, kw_only=False)
    class Point:
        KIND: ClassVar[str] = "point"

        x: int
        name: str = "here"
        secret: str = field(default="s", repr=False)
        notes: tuple[str, ...] = field(default_factory=tuple)
        memo: object = field(default=None, compare=False)

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("negative")

        @property
        def double(self) -> int:
            return self.x * 2

    @dataclass
    class Count:
        seen: dict[str, int] = field(default_factory=dict)
        last: str = ""

    return Point, Count


BOTH = (shapes(dataclasses.dataclass, dataclasses.field), shapes(records.dataclass, records.field))


def same(ask: Callable[[type[Any], type[Any]], object]) -> object:
    """What both kinds answer; an exception counts by its type, and AttributeError stands for FrozenInstanceError."""
    answers: list[object] = []
    for pair in BOTH:
        try:
            answers.append(ask(*pair))
        except (AttributeError, TypeError, ValueError) as error:
            answers.append(AttributeError if isinstance(error, AttributeError) else type(error))
    assert answers[0] == answers[1]
    return answers[1]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ((1,), {}),
        ((1, "there", "t", ("a",)), {"memo": 5}),
        ((), {"x": 1, "notes": ("b",)}),
        ((), {}),
        ((1, "a", "b", (), None, 6), {}),
        ((1,), {"x": 2}),
        ((1,), {"strange": 2}),
        ((-1,), {}),
    ],
)
def test_making_and_showing(given: tuple[Any, ...], named: dict[str, Any]) -> None:
    shown = same(lambda point, _: repr(point(*given, **named)).rpartition(".")[2])
    assert shown in {TypeError, ValueError} or "secret" not in str(shown)


def test_equality_and_hash() -> None:
    assert same(lambda point, _: point(1) == point(1)) is True
    assert same(lambda point, _: point(1) == point(2)) is False
    assert same(lambda point, _: point(1, memo=1) == point(1, memo=2)) is True
    assert same(lambda point, _: len({point(1, memo=1), point(1, memo=2), point(3)})) == 2
    assert same(lambda point, count: point(1) == count()) is False
    assert same(lambda _, count: hash(count())) is TypeError


def test_frozen_and_not() -> None:
    def change(point: type[Any], _: type[Any]) -> None:
        point(1).x = 2

    def drop(point: type[Any], _: type[Any]) -> None:
        del point(1).x

    def count_up(_: type[Any], count: type[Any]) -> object:
        one = count()
        one.last = "x"
        one.seen["a"] = 1
        return one == count({"a": 1}, "x"), count().seen

    assert same(change) is AttributeError
    assert same(drop) is AttributeError
    assert same(count_up) == (True, {})


def test_class_attributes_and_properties() -> None:
    assert same(lambda point, _: (point.KIND, point.name, point(4).double)) == ("point", "here", 8)
    assert same(lambda point, _: point.x) is AttributeError
    assert same(lambda point, _: point.notes) is AttributeError


def test_fields_and_replace() -> None:
    point = BOTH[1][0]
    assert [one.name for one in records.fields(point)] == ["x", "name", "secret", "notes", "memo"]
    assert records.replace(point(1, memo=7), name="there") == point(1, "there")
    assert records.replace(point(1, memo=7), name="there").memo == 7
    assert records.is_record(point(1))
    assert not records.is_record(point)
    assert not records.is_record({"x": 1})


def test_an_own_method_stays() -> None:
    @records.dataclass(frozen=True)
    class Quiet:
        word: str

        def __repr__(self) -> str:
            return "quiet"

    assert repr(Quiet("x")) == "quiet"
    assert Quiet("x") == Quiet("x")
