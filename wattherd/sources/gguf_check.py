"""Is this file a GGUF, is it whole, and can a server serve it? One exact problem for each way in which it is not.

Judges by the header alone, never by the file's name (a split model's parts excepted). Knows no cache, no network and no build
of llama.cpp.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from pathlib import Path

from wattherd import errors
from wattherd.records import dataclass
from wattherd.sources import gguf_reader, gguf_tables, page

#: Part of the key under which a verdict is remembered: raise it when the rules here change.
RULES = 1
_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MOST_PARTS = 65_535
_OLD = {b"ggml": "GGML", b"ggmf": "GGMF", b"ggjt": "GGJT", b"ggla": "GGLA (an old LoRA adapter)"}
_OTHERS: tuple[tuple[bytes, str], ...] = (
    (b"\0\0\0\0", "the file begins with zeros: room was set aside for a download that never arrived"),
    (b"PK\x03\x04", "this is a zip archive (PyTorch weights or a wheel)"),
    (b"\x1f\x8b", "this is packed with gzip"),
    (b"\x28\xb5\x2f\xfd", "this is packed with zstd"),
    (b"<?xm", "this is an XML text, probably an error from a storage server"),
    (b'{"', "this is a JSON text, probably an error from a server"),
)
_PAGE_HINT = (
    "delete it and fetch it again; an address with /blob/ shows a page about the file, the one with /resolve/ in its place gives the file "
    "(if it was that one, a proxy or a login page answered)"
)
_PROJECTORS = {"mmproj", "clip-vision"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a GGUF says of itself. `kind` is model, vocabulary, adapter, imatrix, projector or other; 0 and '' are unknown."""

    version: int
    kind: str
    architecture: str
    tensor_count: int
    parameters: int
    type: str = ""
    name: str = ""
    base_model: str = ""
    file_type: str = ""
    context_length: int = 0
    pooling: str = ""
    pre_tokenizer: str = ""
    chat_template: bool = False
    split_part: int = 1
    split_count: int = 1
    tensor_types: Mapping[str, int]


def check(path: Path, shown: str = "") -> Header:
    """The header of a whole GGUF in one file. `shown` names the file in messages where its path would say nothing."""
    header = read(path, shown)
    if header.split_count > 1:
        raise _split(path, header, shown or str(path))
    return header


def read(path: Path, shown: str = "") -> Header:
    """The header of a whole GGUF file, which may be one part of a split model."""
    shown = shown or str(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise errors.Problem("source-missing", f"{shown} is a folder or a device, not a file", hint="name the .gguf itself", file=shown)
        with open(path, "rb", buffering=1024 * 1024) as handle:
            size_bytes = path.stat().st_size
            _check_beginning(handle.read(page.HEAD_BYTES), size_bytes, shown)
            handle.seek(4)
            version = _version(handle.read(4), size_bytes, shown)
            raw = gguf_reader.read(handle, size_bytes, shown)
    except OSError as error:
        code = "permission" if isinstance(error, PermissionError) else "source-missing"
        hint = (
            "paths are relative to the project's folder"
            if code == "source-missing"
            else "the file must be readable for you on this machine"
        )
        raise errors.Problem(code, f"{shown} cannot be read: {error.strerror}", hint=hint, file=shown) from error
    if raw.end_bytes > size_bytes:
        raise gguf_reader.cut(shown, size_bytes, raw.end_bytes, "in its weights:")
    return _header(version, raw)


def servable(header: Header) -> None:
    """`gguf-not-servable` with the reason, for what ends in .gguf and is no language model."""
    reason = _reason(header)
    if reason:
        called = f"'{header.name}'" if header.name else "the file"
        raise errors.Problem(
            "gguf-not-servable",
            f"{called} cannot be served: {reason[0]}",
            hint=reason[1],
            kind=header.kind,
            architecture=header.architecture,
        )


def _reason(header: Header) -> tuple[str, str] | None:
    if header.kind == "vocabulary":
        return "it holds a vocabulary and no tensors (such files are for tests of tokenizers)", "name the file with the weights"
    if header.kind == "adapter":
        base = header.base_model or f"the {header.architecture or 'same'} model that it was trained on"
        return "it is a LoRA adapter, which needs its base model", f"serve {base} and give it this file with --lora"
    if header.kind == "imatrix":
        return "it is an importance matrix, an input for making quantised files", "name one of the quantised files that lie beside it"
    if header.kind == "projector":
        return (
            "it is a projector for images or sound (mmproj), which needs its text model",
            "serve the text model and give it this file with --mmproj",
        )
    if header.kind == "other":
        what = f"its architecture '{header.architecture}'" if header.architecture else "a file that names no architecture"
        return (
            f"{what} has no context length, so it is no language model (an image or speech model, perhaps)",
            "name a text, embedding or reranking model",
        )
    return None


def _check_beginning(head: bytes, size_bytes: int, shown: str) -> None:
    if not head:
        raise errors.Problem("gguf-truncated", f"{shown} is empty", hint="fetch the file again", file=shown, size_bytes=0)
    if page.is_page(head):
        raise _html(head, shown)
    if head.startswith((b"version https://git-lfs.github.com/spec", b"version https://hawser.github.com/spec")):
        raise _pointer(head, shown)
    if len(head) < len(_MAGIC) and _MAGIC.startswith(head):
        raise gguf_reader.cut(shown, size_bytes, 24, "inside its header, at least")
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
        raise gguf_reader.cut(shown, size_bytes, 24, "inside its header, at least")
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


def _header(version: int, raw: gguf_reader.Raw) -> Header:
    architecture = raw.text("general.architecture")
    context_length = raw.number(f"{architecture}.context_length") or 0
    return Header(
        version=version,
        kind=_kind(raw, architecture, context_length),
        architecture=_plain(architecture),
        type=_plain(raw.text("general.type")),
        name=_plain(raw.text("general.name")),
        base_model=_plain(raw.text("general.base_model.0.name")),
        file_type=_named(gguf_tables.FILE_TYPES, raw.number("general.file_type")),
        context_length=context_length,
        tensor_count=raw.tensor_count,
        parameters=raw.parameters,
        pooling=_named(gguf_tables.POOLING, raw.number(f"{architecture}.pooling_type")),
        pre_tokenizer=_plain(raw.text("tokenizer.ggml.pre")),
        chat_template=any(raw.text(key) for key in raw.values if key.startswith("tokenizer.chat_template")),
        split_part=(raw.number("split.no", _MOST_PARTS) or 0) + 1,
        split_count=raw.number("split.count", _MOST_PARTS) or 1,
        tensor_types=raw.tensor_types,
    )


def _kind(raw: gguf_reader.Raw, architecture: str, context_length: int) -> str:
    declared = raw.text("general.type")
    if declared == "adapter" or raw.is_lora:
        return "adapter"
    if declared == "imatrix":
        return "imatrix"
    if declared in _PROJECTORS or architecture == "clip":
        return "projector"
    if raw.tensor_count == 0:
        # The first part of a split model may hold metadata only.
        return "model" if (raw.number("split.count", _MOST_PARTS) or 1) > 1 else "vocabulary"
    return "model" if context_length else "other"


def _split(path: Path, header: Header, shown: str) -> errors.Problem:
    own = f"-{header.split_part:05d}-of-{header.split_count:05d}.gguf"
    if not path.name.endswith(own):
        message = f"{shown} is part {header.split_part} of {header.split_count} of a split model, and its name should end in {own}"
        return errors.Problem("gguf-split", message, hint="give the parts the names under which they were published", file=shown)
    prefix = path.name[: -len(own)]
    there = {entry.name for entry in path.parent.iterdir()}
    missing = [part for part in range(1, header.split_count + 1) if f"{prefix}-{part:05d}-of-{header.split_count:05d}.gguf" not in there]
    said = [f"{shown} is part {header.split_part} of {header.split_count} of a split model"]
    if missing:
        said.append(f"missing beside it: {_ranges(missing)}")
    if header.split_part != 1:
        said.append(f"a split model is named by its first part, {prefix}-00001-of-{header.split_count:05d}.gguf")
    said.append("models in several files are not served yet")
    hint = "fetch the missing parts, then " if missing else ""
    hint += "make one file of them with `llama-gguf-split --merge FIRST-PART OUT.gguf` and name that"
    return errors.Problem("gguf-split", "; ".join(said), hint=hint, file=shown, missing=",".join(str(part) for part in missing) or None)


def _ranges(parts: list[int]) -> str:
    """[2, 3, 4, 7] -> '00002 to 00004, 00007': every part is named, a thousand of them too."""
    runs: list[list[int]] = []
    for part in parts:
        if runs and part == runs[-1][-1] + 1:
            runs[-1].append(part)
        else:
            runs.append([part])
    return ", ".join(f"{run[0]:05d} to {run[-1]:05d}" if len(run) > 2 else ", ".join(f"{part:05d}" for part in run) for run in runs)


def _named(table: Mapping[int, str], number: int | None) -> str:
    return "" if number is None else table.get(number, f"type {number}")


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split())[:200])
