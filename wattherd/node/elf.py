"""What a shared object says of itself: its SONAME, the libraries it needs, and the symbol versions it needs of them.

Reads the dynamic section of a 64-bit little-endian ELF file (x86-64, AArch64) and nothing else of it: such a file may have 500 MB.
"""

from __future__ import annotations

import struct
from typing import IO, Dict, List, Optional, Tuple

from wattherd.records import dataclass

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_VERNEED, _DT_VERNEEDNUM = 1, 5, 10, 14, 0x6FFFFFFE, 0x6FFFFFFF
#: More than any object of ours has; a damaged file must not make us read for ever.
_MOST = 4096
_STRINGS_MOST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Object:
    """`versions` are words such as GLIBC_2.34 and GLIBCXX_3.4.30."""

    soname: str = ""
    needed: Tuple[str, ...] = ()
    versions: Tuple[str, ...] = ()


def read(path: str) -> Optional[Object]:
    """None for whatever is no such file."""
    try:
        with open(path, "rb") as stream:
            return _read(stream)
    except (OSError, struct.error, ValueError):
        return None


def _read(stream: IO[bytes]) -> Optional[Object]:
    head = stream.read(64)
    if head[:6] != b"\x7fELF\x02\x01":
        return None
    offset, size, count = struct.unpack_from("<Q", head, 32)[0], *struct.unpack_from("<HH", head, 54)
    loads: List[Tuple[int, int, int]] = []
    dynamic: Dict[int, List[int]] = {}
    for index in range(min(count, _MOST)):
        kind, _flags, start, address, _physical, in_file = struct.unpack("<IIQQQQ", _at(stream, offset + index * size, 40))
        if kind == _PT_LOAD:
            loads.append((address, start, in_file))
        elif kind == _PT_DYNAMIC:
            dynamic = _dynamic(_at(stream, start, min(in_file, _MOST * 16)))
    if not dynamic.get(_DT_STRTAB):
        return Object()
    strings = _at(stream, _offset(loads, dynamic[_DT_STRTAB][0]), min(dynamic.get(_DT_STRSZ, [0])[0], _STRINGS_MOST_BYTES))
    soname = _string(strings, dynamic[_DT_SONAME][0]) if dynamic.get(_DT_SONAME) else ""
    needed = tuple(_string(strings, one) for one in dynamic.get(_DT_NEEDED, []))
    versions: List[str] = []
    if dynamic.get(_DT_VERNEED):
        versions = _versions(stream, _offset(loads, dynamic[_DT_VERNEED][0]), dynamic.get(_DT_VERNEEDNUM, [0])[0], strings)
    return Object(soname, needed, tuple(sorted(set(versions))))


def _dynamic(body: bytes) -> Dict[int, List[int]]:
    found: Dict[int, List[int]] = {}
    for tag, value in struct.iter_unpack("<QQ", body[: len(body) // 16 * 16]):
        if tag == 0:
            break
        found.setdefault(tag, []).append(value)
    return found


def _versions(stream: IO[bytes], offset: int, count: int, strings: bytes) -> List[str]:
    """A chain of Verneed (one a library), each with a chain of Vernaux (one a version)."""
    found: List[str] = []
    for _ in range(min(count, _MOST)):
        _version, names, _file, first, following = struct.unpack("<HHIII", _at(stream, offset, 16))
        at = offset + first
        for _ in range(min(names, _MOST)):
            _hash, _flags, _other, name, step = struct.unpack("<IHHII", _at(stream, at, 16))
            found.append(_string(strings, name))
            at += step
        offset += following
    return found


def _offset(loads: List[Tuple[int, int, int]], address: int) -> int:
    for begins, start, in_file in loads:
        if begins <= address < begins + in_file:
            return address - begins + start
    raise ValueError("an address outside the file")


def _at(stream: IO[bytes], offset: int, size: int) -> bytes:
    stream.seek(offset)
    body = stream.read(size)
    if len(body) < size:
        raise ValueError("the file is cut")
    return body


def _string(strings: bytes, at: int) -> str:
    return strings[at : strings.index(b"\0", at)].decode("utf-8", "replace")
