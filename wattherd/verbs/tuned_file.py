"""What `power-tune --write` puts into a host's own variable file: `power_tuned`, and nothing else of that file is touched.

Every other line stays byte for byte as it was written, comments within `power_tuned` too. The file appears whole or not at all.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import pathlib
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from wattherd import errors

KEY = "power_tuned"
_SUFFIXES = (".yml", ".yaml", ".json")
_IN_FOLDER = "power.yaml"
#: The remark behind a UUID.
_SIMULATED = "measured on a simulated card"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One file as it is and as it should be. `shown` is its name for people."""

    path: pathlib.Path
    shown: str
    before: str
    after: str

    @property
    def diff(self) -> str:
        old = self.shown if self.path.exists() else "/dev/null"
        return "".join(
            difflib.unified_diff(self.before.splitlines(keepends=True), self.after.splitlines(keepends=True), old, self.shown, n=2)
        )


def change(folder: pathlib.Path, root: pathlib.Path, host: str, cards: Mapping[str, Mapping[str, object]], *, simulated: bool) -> Change:
    """`cards`: UUID -> its values. Raises `inventory-conflict` where the file's form leaves no room: the hint has the lines to put in."""
    path = place(folder, host)
    shown = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
    before = _read(path, shown)
    try:
        after = rewritten(before, cards, simulated=simulated)
        _prove(before, after, cards)
    except (yaml.YAMLError, ValueError) as error:
        raise errors.Problem(
            "inventory-conflict",
            f"{shown}: {KEY} cannot be written into it: {str(error).splitlines()[0]}",
            hint=f"put it in by hand:\n{rewritten('', cards, simulated=simulated)}",
        ) from error
    return Change(path=path, shown=shown, before=before, after=after)


def write(one: Change) -> None:
    """A temporary file beside it, then a rename. A link stays a link; rights stay as they are."""
    target = one.path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            stream.write(one.after)
            stream.flush()
            os.fchmod(stream.fileno(), target.stat().st_mode & 0o7777 if target.exists() else 0o644)
            os.fsync(stream.fileno())
        pathlib.Path(name).replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            pathlib.Path(name).unlink()
        raise


def place(folder: pathlib.Path, host: str) -> pathlib.Path:
    """The host's own file as the inventory reads it: a folder of its name counts first, then .yml, .yaml, .json; a new one is .yaml."""
    own = folder / "host_vars"
    for bare in (own / host,):
        if bare.is_dir():
            return _inside(bare)
        if bare.is_file():
            return bare
    return next((own / f"{host}{suffix}" for suffix in _SUFFIXES if (own / f"{host}{suffix}").is_file()), own / f"{host}.yaml")


def _inside(folder: pathlib.Path) -> pathlib.Path:
    """Of a folder the file that has the key already; else one of ours."""
    for file in sorted(folder.rglob("*.y*ml")):
        if file.is_file() and not file.name.startswith(".") and any(line.startswith(f"{KEY}:") for line in _lines(file)):
            return file
    return folder / _IN_FOLDER


def _lines(file: pathlib.Path) -> Sequence[str]:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return file.read_text("utf-8").splitlines()
    return ()


def _read(path: pathlib.Path, shown: str) -> str:
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            return stream.read()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise errors.Problem("inventory-missing", f"{shown} cannot be read: {error}", file=shown) from error


def rewritten(text: str, cards: Mapping[str, Mapping[str, object]], *, simulated: bool = False) -> str:
    """The text with the new values. ValueError, or YAML's own error, where it is no plain block mapping."""
    if text.startswith("$ANSIBLE_VAULT"):
        raise ValueError("the file is encrypted with ansible-vault")
    end = "\r\n" if "\r\n" in text else "\n"
    lines = text.splitlines(keepends=True)
    span = _span(text)
    block = _block("".join(lines[span[0] : span[1]]) if span else "", cards, simulated=simulated).replace("\n", end)
    if span:
        return "".join([*lines[: span[0]], block, *lines[span[1] :]])
    at = next((index for index, line in enumerate(lines) if line.rstrip() == "..."), len(lines))
    head = "".join(lines[:at])
    gap = end if head and not head.endswith(("\n", "\r")) else ""
    return head + gap + (end if head.strip() and not head.rstrip(" ").endswith(end * 2) else "") + block + "".join(lines[at:])


def _span(text: str) -> tuple[int, int] | None:
    """First and last line (the latter not included) of the key and its value, without the comments that belong to what comes next."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    if node is None or (isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"):
        return None
    if not isinstance(node, yaml.MappingNode) or node.flow_style:
        raise ValueError("it is not a plain mapping of names to values, one a line")
    lines = text.splitlines()
    for key, value in node.value:
        if key.value == KEY:
            if not isinstance(value, yaml.MappingNode) and value.tag != "tag:yaml.org,2002:null":
                raise ValueError(f"{KEY} is there and is no mapping")
            end = value.end_mark.line + (1 if value.end_mark.column else 0)
            end = max(end, key.end_mark.line + 1)
            while end > key.start_mark.line + 1 and (not lines[end - 1].strip() or lines[end - 1].startswith("#")):
                end -= 1
            return key.start_mark.line, end
    return None


def _block(text: str, cards: Mapping[str, Mapping[str, object]], *, simulated: bool) -> str:
    import ruamel.yaml
    from ruamel.yaml import comments

    parser = ruamel.yaml.YAML()
    parser.preserve_quotes = True
    parser.width = 4096
    parser.indent(mapping=_indent(text), sequence=_indent(text) + 2, offset=_indent(text))
    # Our own remark goes with the figures that it was about.
    text = re.sub(rf"(?m)^(\s+(?:{'|'.join(map(re.escape, cards))}):.*?)[ \t]*# {_SIMULATED}$", r"\1", text)
    data: Any = parser.load(text) if text.strip() else None
    if data is None:
        data = comments.CommentedMap()
    if data.get(KEY) is None:
        data[KEY] = comments.CommentedMap()
    for uuid, values in cards.items():
        if not isinstance(data[KEY].get(uuid), dict):
            data[KEY][uuid] = comments.CommentedMap()
        row = data[KEY][uuid]
        for gone in [name for name in row if name not in values]:
            del row[gone]
        for name, value in values.items():
            row[name] = value
        if simulated:
            data[KEY].yaml_add_eol_comment(_SIMULATED, uuid)
    out = io.StringIO()
    parser.dump(data, out)
    return out.getvalue()


def _indent(text: str) -> int:
    """As the block has it; two without one."""
    inner = next((line for line in text.splitlines()[1:] if line.strip() and not line.lstrip().startswith("#")), "  x")
    return max(2, len(inner) - len(inner.lstrip()))


def _prove(before: str, after: str, cards: Mapping[str, Mapping[str, object]]) -> None:
    """Read again: everything else means what it meant, and the cards have their values. ValueError otherwise."""
    old, new = (yaml.load(text, Loader=yaml.BaseLoader) or {} for text in (before, after))  # noqa: S506 - BaseLoader makes text alone
    had, has = old.pop(KEY, None) or {}, new.pop(KEY, None) or {}
    kept = {uuid: row for uuid, row in had.items() if uuid not in cards}
    wanted = {uuid: {name: str(value) for name, value in row.items()} for uuid, row in cards.items()}
    if old != new or has != {**kept, **wanted}:
        raise ValueError("the text would not mean what it should")
