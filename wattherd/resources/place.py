"""What lies at a path, who may use it, and what is in the way: shared by the types that own a path.

Knows modes, owners and kinds of files; not what should be in them.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
from typing import Optional, Tuple

from wattherd import errors
from wattherd import machine as machines
from wattherd.resources import base

#: What --diff may show of one file. A longer text is named by its digest only.
TEXT_LIMIT_BYTES = 256 * 1024
_KINDS = (
    (stat.S_ISREG, "a file"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISFIFO, "a pipe"),
)


def plain_path(label: str, path: str) -> str:
    """The path without a trailing slash. One that is relative, climbs by '..' or could be read in two ways is refused."""
    plain = path.rstrip("/")
    if not plain.startswith("/") or posixpath.normpath(plain) != plain or not plain.isprintable():
        raise errors.Problem("manifest-invalid", f"{label}: {path!r} is not an absolute, plain path")
    return plain


def mode_bits(label: str, mode: str) -> int:
    if len(mode) not in {3, 4} or mode.strip("01234567"):
        raise errors.Problem(
            "manifest-invalid", f"{label}: the mode {mode!r} is not three or four octal digits", hint='write it as text: "0644"'
        )
    return int(mode, 8)


def kind(found: os.stat_result) -> str:
    return next((word for fits, word in _KINDS if fits(found.st_mode)), "something unknown")


def conflict(label: str, path: str, found: os.stat_result, wanted: str) -> errors.Problem:
    return errors.Problem(
        "file-conflict",
        f"{label}: {path} is {kind(found)}, not {wanted}",
        hint="look at it, move it away, and run again: what Wattherd did not make it does not delete",
    )


def check_folders(machine: machines.Machine, label: str, path: str) -> None:
    """`file-conflict` when something that is no directory stands where a folder above `path` is, or would be made."""
    above = posixpath.dirname(path)
    while above != "/" and not machine.exists(above):
        above = posixpath.dirname(above)
    found = machine.lstat(above)
    if found is not None and not machine.is_dir(above):
        raise conflict(label, above, found, "a directory")


def need_folder(machine: machines.Machine, label: str, path: str) -> None:
    """The folder must be there already: a folder made in passing would have no owner, and nobody would remove it."""
    above = posixpath.dirname(path)
    if not machine.is_dir(above):
        check_folders(machine, label, path)
        raise errors.Problem("folder-missing", f"{label}: the folder {above} does not exist", hint=f"list directory:{above} before it")


def rights(machine: machines.Machine, found: os.stat_result) -> base.State:
    return {"mode": machine.mode_text(found), "owner": machine.owner_name(found.st_uid), "group": machine.group_name(found.st_gid)}


def set_rights(machine: machines.Machine, path: str, mode: int, owner: Tuple[int, int]) -> None:
    """From the old rights to the new ones through what both allow, so that no moment grants what neither does."""
    found = machine.lstat(path)
    if found is not None:
        machine.chmod(path, stat.S_IMODE(found.st_mode) & mode)
    machine.chown(path, owner)
    machine.chmod(path, mode)


def sweep(machine: machines.Machine, path: str) -> None:
    """Delete what a killed run left half written beside `path`. One lock a node, so nobody else is writing it now."""
    folder, name = posixpath.split(path)
    left = re.compile(re.escape(name) + r"\.wattherd-[0-9]+\Z")
    for other in machine.names(folder):
        if left.match(other):
            machine.unlink(f"{folder}/{other}")


def shown(body: Optional[bytes]) -> Optional[str]:
    """The text of a small text file; None for what a terminal should not get."""
    body = body or b""
    if len(body) > TEXT_LIMIT_BYTES or b"\0" in body:
        return None
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return None


def both_shown(old: Optional[bytes], new: Optional[bytes]) -> Tuple[str, str]:
    before, after = shown(old), shown(new)
    return ("", "") if before is None or after is None else (before, after)
