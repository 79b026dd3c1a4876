"""Dataclasses made without writing code: the same words, and to a type checker the same things, as the standard library's.

The standard decorator composes and compiles half a dozen methods for every class at every start, and imports what it needs for that: 14
of the 38 ms that a session's imports cost on a node (measured). One set of methods serves all classes instead. What is not here (order,
InitVar, `dataclasses.fields` of such a class) is not used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it, without its import
if TYPE_CHECKING:
    from dataclasses import MISSING, dataclass, field, fields, replace
    from typing import Any, Callable, Dict, Tuple

__all__ = ["MISSING", "dataclass", "field", "fields", "is_record", "replace"]


class _Missing:
    """What a field without a default has as its default."""


class _Field:
    """One field of a record: the attributes that `dataclasses.Field` has, as far as somebody reads them."""

    __slots__ = ("compare", "default", "default_factory", "name", "repr", "type")

    def __init__(self, default: Any, default_factory: Any, repr: bool, compare: bool) -> None:  # noqa: A002 - dataclasses' own word
        self.name = ""
        self.type = ""
        self.default = default
        self.default_factory = default_factory
        self.repr = repr
        self.compare = compare


class _Methods:  # noqa: PLW1641 - only a frozen record has a hash
    """What every record can do. Never instantiated: the functions are copied into each class."""

    __fields__: Tuple[_Field, ...]

    def __init__(self, *given: Any, **named: Any) -> None:
        held = self.__dict__  # past the frozen __setattr__
        known = self.__fields__
        if len(given) > len(known):
            raise TypeError(f"{type(self).__name__} takes {len(known)} values, not {len(given)}")
        for one, value in zip(known, given):
            held[one.name] = value
        for one in known[len(given) :]:
            if one.name in named:
                held[one.name] = named.pop(one.name)
            elif one.default is not _MISSING:
                held[one.name] = one.default
            elif one.default_factory is not _MISSING:
                held[one.name] = one.default_factory()
            else:
                raise TypeError(f"{type(self).__name__} lacks '{one.name}'")
        if named:
            raise TypeError(f"{type(self).__name__} takes no second or unknown '{next(iter(named))}'")
        after = getattr(self, "__post_init__", None)
        if after is not None:
            after()

    def __repr__(self) -> str:
        shown = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in self.__fields__ if one.repr)
        return f"{type(self).__qualname__}({shown})"

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return _values(self) == _values(other)


class _Frozen:
    """What a frozen record can do besides, or rather cannot."""

    def __hash__(self) -> int:
        return hash(_values(self))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"cannot delete field {name!r}")


_MISSING = _Missing()
_EVERY = ("__init__", "__repr__", "__eq__")
_FROZEN = ("__hash__", "__setattr__", "__delattr__")


def _values(record: Any) -> Tuple[Any, ...]:
    return tuple([getattr(record, one.name) for one in record.__fields__ if one.compare])


def _dataclass(kind: Any = None, *, frozen: bool = False, slots: bool = False, kw_only: bool = False) -> object:
    """`slots` and `kw_only` are kept by the type checker alone."""
    del slots, kw_only
    return _made(kind, frozen=frozen) if kind is not None else lambda given: _made(given, frozen=frozen)


def _made(kind: Any, *, frozen: bool) -> object:
    found: Dict[str, _Field] = {one.name: one for one in getattr(kind, "__fields__", ())}
    for name, wanted in kind.__annotations__.items():
        if not wanted.startswith("ClassVar"):
            found[name] = _declared(kind, name, wanted)
    kind.__fields__ = tuple(found.values())
    methods = {name: vars(_Methods)[name] for name in _EVERY}
    methods.update({name: vars(_Frozen)[name] for name in _FROZEN} if frozen else {"__hash__": None})
    for name, method in methods.items():
        # An __eq__ or __repr__ of the class's own stays; Python itself puts a __hash__ of None beside an own __eq__.
        if name not in vars(kind) or (name == "__hash__" and vars(kind)[name] is None):
            setattr(kind, name, method)
    return kind


def _declared(kind: Any, name: str, wanted: str) -> _Field:
    """The field; afterwards the class attribute of its name is its default, or is not there."""
    given = vars(kind).get(name, _MISSING)
    one = given if isinstance(given, _Field) else _Field(given, _MISSING, repr=True, compare=True)
    one.name, one.type = name, wanted
    if one.default is not _MISSING:
        setattr(kind, name, one.default)
    elif given is not _MISSING:
        delattr(kind, name)
    return one


def _field(
    *,
    default: Any = _MISSING,
    default_factory: Any = _MISSING,
    repr: bool = True,  # noqa: A002 - dataclasses' own word
    compare: bool = True,
) -> _Field:
    return _Field(default, default_factory, repr, compare)


def _fields(record: Any) -> Tuple[_Field, ...]:
    found: Tuple[_Field, ...] = record.__fields__
    return found


def _replace(record: Any, **changes: Any) -> object:
    return type(record)(**{one.name: changes.pop(one.name, getattr(record, one.name)) for one in record.__fields__}, **changes)


def is_record(value: object) -> bool:
    """True for an instance of a class that `dataclass` made."""
    return hasattr(type(value), "__fields__")


if not TYPE_CHECKING:
    MISSING: Any = _MISSING
    dataclass: Callable[..., Any] = _dataclass
    field, fields, replace = _field, _fields, _replace
