"""A web page where a file was expected: how it is known, and what its title says. Pure; knows bytes only."""

from __future__ import annotations

import html
import re

#: How much of a file is enough to know a page and to find its title.
HEAD_BYTES = 64 * 1024
_TITLE = re.compile(r"<title[^>]{0,200}>(.{0,1000}?)</title", re.IGNORECASE | re.DOTALL)
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def is_page(head: bytes) -> bool:
    return _text(head[:1024]).lstrip().lower().startswith(("<!doctype html", "<html"))


def title(head: bytes) -> str:
    """The page's <title> in one line, '' when it has none. The page is a stranger's: only what can be printed is passed on."""
    found = _TITLE.search(_text(head))
    words = " ".join(html.unescape(found[1]).split()) if found else ""
    return "".join(c if c.isprintable() else "\ufffd" for c in words)[:120]


def _text(head: bytes) -> str:
    return head.decode("utf-16" if head.startswith(_UTF16) else "utf-8-sig", "replace")
