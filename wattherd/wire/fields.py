"""Typed reading of JSON: the only place where a value of unknown type is touched.

A document from the other side is data, never trusted: every getter returns the asked type or raises a Problem that
names the key. `build` and `plain` turn documents into frozen dataclasses and back by the dataclass's own annotations.
"""

from __future__ import annotations

import json
import math
import re
import typing
from typing import Any, Dict, List, Mapping, Optional, Tuple, Type, TypeVar, Union

from wattherd import errors, records

T = TypeVar("T")
Document = Mapping[str, Any]
_SIMPLE: Dict[str, Tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)}
_OPTIONAL = re.compile(r"Optional\[(.+)\]$")
_TUPLE = re.compile(r"[Tt]uple\[(.+), \.\.\.\]$")
_MAPPING = re.compile(r"Mapping\[str, (.+)\]$")


def parsed(text: Union[str, bytes]) -> object:
    """JSON that somebody else wrote, or could have edited. Raises ValueError for what is none, nesting without an end among it."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def document(value: object, where: str) -> Document:
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return value
    raise _wrong(where, "an object", value)


def text(source: Document, key: str, default: Optional[str] = None) -> str:
    value = source.get(key, default)
    if isinstance(value, str):
        return value
    raise _wrong(key, "a string", value)


def integer(source: Document, key: str, default: Optional[int] = None) -> int:
    value = source.get(key, default)
    if isinstance(value, int) and not isinstance(value, bool):
        return _whole(value, key)
    raise _wrong(key, "an integer", value)


def number(source: Document, key: str, default: Optional[float] = None) -> float:
    value = source.get(key, default)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return finite(value, key)
    raise _wrong(key, "a number", value)


def finite(value: float, where: str) -> float:
    """JSON as Python reads it has Infinity, NaN, and integers of any length: none of them is a number that anything here could mean."""
    try:
        made = float(value)
    except OverflowError:
        made = math.inf
    if not math.isfinite(made):
        raise errors.Problem("manifest-invalid", f"{where} must be a number, not {'one too large' if made == math.inf else made}")
    return made


def flag(source: Document, key: str, default: Optional[bool] = None) -> bool:
    value = source.get(key, default)
    if isinstance(value, bool):
        return value
    raise _wrong(key, "true or false", value)


def texts(source: Document, key: str) -> Tuple[str, ...]:
    value = source.get(key, [])
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise _wrong(key, "a list of strings", value)


def objects(source: Document, key: str) -> Tuple[Document, ...]:
    value = source.get(key, [])
    if isinstance(value, list):
        return tuple(document(item, f"{key}[{index}]") for index, item in enumerate(value))
    raise _wrong(key, "a list of objects", value)


def build(kind: Type[T], source: Document, where: str = "") -> T:
    """Make the frozen dataclass `kind` from a document. Unknown and missing keys, and wrong types, raise `manifest-invalid`.

    Annotations understood: str, int, float, bool, object, a dataclass of the same module, and Optional[…], Tuple[…, ...],
    Mapping[str, …] of these.
    """
    known = {item.name: item for item in records.fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(source) - set(known))
    label = where or kind.__name__
    if unknown:
        raise errors.Problem(
            "manifest-invalid", f"{label} does not know '{unknown[0]}'", hint="controller and node program differ in version"
        )
    space = vars(typing.cast("Any", __import__("sys").modules[kind.__module__]))
    values: Dict[str, Any] = {}
    for name, item in known.items():
        if name in source:
            values[name] = _value(str(item.type), source[name], f"{label}.{name}", space)
        elif item.default is records.MISSING and item.default_factory is records.MISSING:
            raise errors.Problem("manifest-invalid", f"{label} lacks '{name}'")
    return kind(**values)


def plain(value: object) -> Any:
    """The JSON form of a dataclass: tuples become lists; fields that hold their default are left out, so that documents stay short."""
    if records.is_record(value):
        shown: Dict[str, Any] = {}
        for item in records.fields(value):  # type: ignore[arg-type]
            held = getattr(value, item.name)
            if item.default is not records.MISSING and held == item.default:
                continue
            if item.default_factory is not records.MISSING and held == item.default_factory():
                continue
            shown[item.name] = plain(held)
        return shown
    if hasattr(type(value), "__dataclass_fields__"):
        raise TypeError(f"{type(value).__name__} travels as a document, so it must be a record (wattherd.records)")
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(held) for key, held in value.items()}
    return value


def _value(wanted: str, value: Any, where: str, space: Mapping[str, Any]) -> Any:
    optional = _OPTIONAL.match(wanted)
    if optional:
        return None if value is None else _value(optional.group(1), value, where, space)
    many = _TUPLE.match(wanted)
    if many:
        if not isinstance(value, list):
            raise _wrong(where, "a list", value)
        items: List[Any] = [_value(many.group(1), item, f"{where}[{index}]", space) for index, item in enumerate(value)]
        return tuple(items)
    pairs = _MAPPING.match(wanted)
    if pairs:
        return {key: _value(pairs.group(1), held, f"{where}.{key}", space) for key, held in document(value, where).items()}
    if wanted == "object":
        return value
    simple: Optional[Tuple[type, ...]] = _SIMPLE.get(wanted)
    if simple is None:
        return build(space[wanted], document(value, where), where)
    if not isinstance(value, simple) or (isinstance(value, bool) and wanted != "bool"):
        raise _wrong(where, f"of type {wanted}", value)
    return _bounded(wanted, value, where)


def _bounded(wanted: str, value: Any, where: str) -> Any:
    if wanted == "int":
        return _whole(value, where)
    return finite(value, where) if wanted == "float" else value


def _whole(value: int, where: str) -> int:
    """Counters of the driver have 64 bits; what has more is no count of anything, and no float can hold it."""
    if abs(value) >= 1 << 64:
        raise errors.Problem("manifest-invalid", f"{where} must be an integer of at most 64 bits")
    return value


def _wrong(where: str, wanted: str, value: object) -> errors.Problem:
    return errors.Problem("manifest-invalid", f"{where} must be {wanted}, not {type(value).__name__}")
