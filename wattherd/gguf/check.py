"""Is this file a GGUF, and is it whole? One exact problem for each way in which it is not. Judges by the header, never by the name."""

from __future__ import annotations

import os
import re
import stat
from typing import Tuple

from wattherd import errors
from wattherd.gguf import header, page, reader

#: Part of the key under which a verdict is remembered: raise it when the rules here, or what a header holds, change.
RULES = 2
_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_OLD = {b"ggml": "GGML", b"ggmf": "GGMF", b"ggjt": "GGJT", b"ggla": "GGLA (an old LoRA adapter)"}
_OTHERS: Tuple[Tuple[bytes, str], ...] = (
    (b"\0\0\0\0", "the file begins with zeros: room was set aside for a download that never arrived"),
    (b"PK\x03\x04", "this is a zip archive (PyTorch weights or a wheel)"),
    (b"\x1f\x8b", "this is packed with gzip"),
    (b"\x28\xb5\x2f\xfd", "this is packed with zstd"),
    (b"<?xm", "this is an XML text, probably an error from a storage server"),
    (b'{"', "this is a JSON text, probably an error from a server"),
)
_PATHS_HINT = "paths are relative to the project's folder"
_PAGE_HINT = (
    "delete it and fetch it again; an address with /blob/ shows a page about the file, the one with /resolve/ in its place gives the file "
    "(if it was that one, a proxy or a login page answered)"
)


def read(path: str | os.PathLike[str], shown: str = "", *, paths_hint: str = _PATHS_HINT) -> header.Header:
    """The header of a whole GGUF file, which may be one part of a split model. `shown` names it where its path would say nothing."""
    shown = shown or str(path)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise errors.Problem("source-missing", f"{shown} is a folder or a device, not a file", hint="name the .gguf itself", file=shown)
        with open(path, "rb", buffering=1024 * 1024) as handle:
            size_bytes = os.fstat(handle.fileno()).st_size
            check_beginning(handle.read(page.HEAD_BYTES), size_bytes, shown)
            handle.seek(4)
            version = _version(handle.read(4), size_bytes, shown)
            raw = reader.read(handle, size_bytes, shown)
    except OSError as error:
        code = "permission" if isinstance(error, PermissionError) else "source-missing"
        hint = paths_hint if code == "source-missing" else "the file must be readable for you on this machine"
        raise errors.Problem(code, f"{shown} cannot be read: {error.strerror}", hint=hint, file=shown) from error
    if raw.end_bytes > size_bytes:
        raise reader.cut(shown, size_bytes, raw.end_bytes, "in its weights:")
    return header.of(version, raw)


def check_beginning(head: bytes, size_bytes: int, shown: str) -> None:
    """Its first bytes are enough to refuse what is no GGUF; `size_bytes` is of the whole file."""
    if not head:
        raise errors.Problem("gguf-truncated", f"{shown} is empty", hint="fetch the file again", file=shown, size_bytes=0)
    if page.is_page(head):
        raise _html(head, shown)
    if head.startswith((b"version https://git-lfs.github.com/spec", b"version https://hawser.github.com/spec")):
        raise _pointer(head, shown)
    if len(head) < len(_MAGIC) and _MAGIC.startswith(head):
        raise reader.cut(shown, size_bytes, 24, "inside its header, at least")
    if not head.startswith(_MAGIC):
        raise _wrong_magic(head, shown)


def _html(head: bytes, shown: str) -> errors.Problem:
    title = page.title(head)
    return errors.Problem(
        "gguf-html",
        f"{shown} is a web page{f' (titled {title!r})' if title else ''}, not a GGUF",
        hint=_PAGE_HINT,
        file=shown,
        title=title or None,
    )


def _pointer(head: bytes, shown: str) -> errors.Problem:
    oid = re.search(rb"^oid sha256:([0-9a-f]{64})$", head, re.MULTILINE)
    size = re.search(rb"^size (\d{1,19})$", head, re.MULTILINE)
    oid_text, size_bytes = oid[1].decode() if oid else "", int(size[1]) if size else None
    stands_for = f"; it stands for {size_bytes:,} bytes with sha256 {oid_text}" if oid and size_bytes is not None else ""
    hint = "run `git lfs pull` there, or download the file itself"
    hint += f"; with `sha256: {oid_text}` beside the source Wattherd checks what arrived" if oid else ""
    return errors.Problem(
        "gguf-lfs-pointer",
        f"{shown} is a Git LFS pointer, not the model{stands_for}",
        hint=hint,
        file=shown,
        oid=oid_text or None,
        size_bytes=size_bytes,
    )


def _wrong_magic(head: bytes, shown: str) -> errors.Problem:
    magic = head[:4]
    letters = "".join(chr(byte) if 32 <= byte < 127 else "?" for byte in magic)
    old = _OLD.get(magic) or _OLD.get(magic[::-1])
    known = next((what for start, what in _OTHERS if head.startswith(start)), "")
    what = f"this is {old}, a format from before GGUF" if old else known
    hint = (
        "fetch a GGUF of this model, or convert the original weights again"
        if old
        else "fetch the file again, and compare its sha256 with the publisher's"
    )
    message = f"{shown} is no GGUF: it begins with '{letters}' ({magic.hex(' ')})"
    return errors.Problem("gguf-magic", f"{message}; {what}" if what else message, hint=hint, file=shown, magic=magic.hex())


def _version(raw: bytes, size_bytes: int, shown: str) -> int:
    if len(raw) < 4:
        raise reader.cut(shown, size_bytes, 24, "inside its header, at least")
    version = int.from_bytes(raw, "little")
    if version and version & 0xFFFF == 0:
        message = f"{shown} is a big-endian GGUF v{int.from_bytes(raw, 'big')}, and the machines here are little-endian"
        raise errors.Problem(
            "gguf-endian", message, hint="fetch the little-endian file, or run gguf_convert_endian.py on this one", file=shown
        )
    if version not in _VERSIONS:
        hint = (
            "a newer llama.cpp and a newer Wattherd are needed"
            if version > max(_VERSIONS)
            else "convert the original weights again; llama.cpp has dropped this version"
        )
        raise errors.Problem(
            "gguf-version", f"{shown} is GGUF version {version}; versions 2 and 3 are read", hint=hint, file=shown, version=version
        )
    return version
