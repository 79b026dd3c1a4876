"""Names in an inventory: host ranges, ports behind a colon, IPv6 in brackets, and which known name a mistyped one is nearest to.

Pure text; knows nothing of files, hosts or groups. A name that cannot be read raises ValueError with a sentence; the reader of
the file adds where it stood.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_RANGE = re.compile(r"\[([^\[\]]*)\]")
_PORT = re.compile(r"(?P<name>(?:[^:\[\]]|\[[^\]]*\])+):(?P<port>[0-9]+)\Z")
_BRACKETED = re.compile(r"\[(?P<name>[^\[\]]+)\](?::(?P<port>[0-9]+))?\Z")
_PLAIN = re.compile(r"\w(?:[\w.-]*\w)?\Z")
_LETTERS = string.ascii_letters
_MOST_HOSTS = 100_000


@dataclass(frozen=True)
class Written:
    """What one host entry stands for."""

    hosts: tuple[str, ...]
    port: int | None
    is_range: bool


def written(text: str) -> Written:
    """`www[01:50:2].lab:2222` -> the hosts, their port, and whether a range was written."""
    name, port = _split_port(text)
    hosts = tuple(_expand(name, text))
    for host in hosts:
        _check(host, text)
    return Written(hosts, port, is_range="[" in name)


def address(text: str) -> str | None:
    """The IPv6 address in `fe80::1`, `[fe80::1]` or `[fe80::1]:22`; None for every other text."""
    match = _BRACKETED.match(text)
    inner = match["name"] if match else text
    return inner if _is_ipv6(inner) else None


def has_range(text: str) -> bool:
    """True for text that someone may expect to be expanded: `10.0.0.[31:33]`, never `[fe80::1]:8080`."""
    return any(len(part.split(":")) in {2, 3} and re.fullmatch(r"[0-9A-Za-z]*(:[0-9A-Za-z]+){1,2}", part) for part in _RANGE.findall(text))


def unexpanded(variable: str, value: object, entry: Written) -> bool:
    """True where a value holds a range that someone expects to be expanded along with the host's name, or in an address."""
    return isinstance(value, str) and has_range(value) and (entry.is_range or variable in {"ansible_host", "ansible_ssh_host"})


def nearest(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """At most three known names, the most alike first."""
    return tuple(difflib.get_close_matches(name, list(known), n=3, cutoff=0.6))


def meant(name: str, known: Iterable[str]) -> str:
    """A hint: `did you mean 'titan' or 'titania'?`, or '' when nothing is alike."""
    found = nearest(name, known)
    return f"did you mean {' or '.join(repr(item) for item in found)}?" if found else ""


def slip(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` is one or two typing slips away from. Short names allow one slip: 'name' is not a 'base'."""
    best: tuple[int, str] | None = None
    for candidate in known:
        allowed = 1 if len(candidate) <= 4 else 2
        slips = distance(name, candidate) if abs(len(name) - len(candidate)) <= allowed else allowed + 1
        if 0 < slips <= allowed and (slips == 1 or name[:1] == candidate[:1]):
            best = min(best or (slips, candidate), (slips, candidate))
    return best[1] if best else None


def distance(one: str, two: str) -> int:
    """Edits between two words: insert, delete, replace, or swap two neighbours."""
    before: list[int] = []
    row = list(range(len(two) + 1))
    for i, left in enumerate(one, 1):
        before, last, row = row, before, [i]
        for j, right in enumerate(two, 1):
            edits = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (left != right))
            if i > 1 and j > 1 and left == two[j - 2] and one[i - 2] == right:
                edits = min(edits, last[j - 2] + 1)
            row.append(edits)
    return row[-1]


def _split_port(text: str) -> tuple[str, int | None]:
    bracketed = _BRACKETED.match(text)
    if bracketed and _is_ipv6(bracketed["name"]):
        return bracketed["name"], _port(bracketed["port"], text)
    if _is_ipv6(text):
        return text, None
    match = _PORT.match(text)
    return (match["name"], _port(match["port"], text)) if match else (text, None)


def _port(digits: str | None, text: str) -> int | None:
    if digits is None:
        return None
    if not 1 <= int(digits) <= 65535:
        raise ValueError(f"'{text}': a port is a number from 1 to 65535")
    return int(digits)


def _expand(name: str, whole: str) -> Iterator[str]:
    match = _RANGE.search(name)
    if match is None:
        yield name
        return
    head, tail = name[: match.start()], name[match.end() :]
    for middle in _sequence(match[1], whole):
        yield from _expand(head + middle + tail, whole)


def _sequence(inside: str, whole: str) -> list[str]:
    bounds = inside.split(":")
    if len(bounds) not in {2, 3}:
        raise ValueError(f"'{whole}': [{inside}] is not a range; a range is [begin:end] or [begin:end:step]")
    begin, end = bounds[0] or "0", bounds[1]
    step = bounds[2] if len(bounds) == 3 else "1"
    if not step.isdecimal() or int(step) == 0:
        raise ValueError(f"'{whole}': the step of a range is a number of at least 1, not '{step}'")
    if len(begin) == len(end) == 1 and begin in _LETTERS and end in _LETTERS:
        found = list(_LETTERS[_LETTERS.index(begin) : _LETTERS.index(end) + 1 : int(step)])
    else:
        found = _numbers(begin, end, int(step), whole)
    if not found:
        raise ValueError(f"'{whole}': [{inside}] is an empty range; begin comes before end")
    return found


def _numbers(begin: str, end: str, step: int, whole: str) -> list[str]:
    if not (begin.isdecimal() and end.isdecimal()):
        raise ValueError(f"'{whole}': the bounds of a range are two numbers or two single letters")
    width = len(begin) if begin[0] == "0" and len(begin) > 1 else 0
    if width and width != len(end):
        raise ValueError(f"'{whole}': with leading zeros both bounds have the same length, such as [01:50] or [098:101]")
    if int(end) - int(begin) > _MOST_HOSTS * step:
        raise ValueError(f"'{whole}': the range is longer than {_MOST_HOSTS} hosts")
    return [str(number).zfill(width) for number in range(int(begin), int(end) + 1, step)]


def _check(host: str, whole: str) -> None:
    """A host's name becomes part of file names and of an ssh command line, so what it may hold is narrow."""
    if _is_ipv6(host) or _PLAIN.match(host):
        return
    if "@" in host:
        raise ValueError(f"'{whole}' is no host name; the user is a variable: ansible_user")
    if host.endswith(":"):
        raise ValueError(f"'{whole}' ends with ':', and a port has to follow it")
    raise ValueError(f"'{whole}' is no host name; letters, digits, '.', '-' and '_' make one")


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
