"""What a node needs to look at itself, and nothing more: sent down one pipe, reads everything once, answers in one line.

It knows no events, no ids and no way to mend anything. `trust` names the file of remembered digests.
"""
# ruff: noqa: PTH115

from __future__ import annotations

import grp
import hashlib
import json
import os
import pwd
import stat
import subprocess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Rows = list[list[str]]
    Known = dict[str, tuple[list[int], str]]

SMALL_BYTES = 1 << 20


def sha256(path: str) -> str:
    summing = hashlib.sha256()
    with open(path, "rb", buffering=0) as stream:
        while block := stream.read(SMALL_BYTES):
            summing.update(block)
    return summing.hexdigest()


def digest(path: str, found: os.stat_result, known: Known) -> str:
    if found.st_size < SMALL_BYTES:
        return sha256(path)
    key = [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]
    if path not in known or known[path][0] != key:
        known[path] = (key, sha256(path))
    return known[path][1]


def rights(found: os.stat_result) -> list[str]:
    return [f"{stat.S_IMODE(found.st_mode):04o}", pwd.getpwuid(found.st_uid).pw_name, grp.getgrgid(found.st_gid).gr_name]


def wrong_files(wanted: Rows, known: Known) -> Iterator[str]:
    for path, mode, owner, group, content in wanted:
        try:
            found = os.lstat(path)
            fits = stat.S_ISREG(found.st_mode) and rights(found) == [mode, owner, group] and digest(path, found, known) == content
        except (OSError, KeyError):
            fits = False
        if not fits:
            yield path


def wrong_folders(wanted: Rows) -> Iterator[str]:
    for path, mode, owner, group in wanted:
        try:
            found = os.lstat(path)
            fits = stat.S_ISDIR(found.st_mode) and rights(found) == [mode, owner, group]
        except (OSError, KeyError):
            fits = False
        if not fits:
            yield path


def wrong_links(wanted: Rows) -> Iterator[str]:
    for path, target in wanted:
        try:
            fits = os.readlink(path) == target
        except OSError:
            fits = False
        if not fits:
            yield path


def wrong_users(wanted: list[str]) -> Iterator[str]:
    for name in wanted:
        try:
            pwd.getpwnam(name)
        except KeyError:
            yield f"user {name}"


def wrong_packages(wanted: list[str]) -> list[str]:
    with open("/var/lib/dpkg/status", encoding="utf-8", errors="replace") as stream:
        stanzas = stream.read().split("\n\n")
    there = {one[9 : one.index("\n")] for one in stanzas if "\nStatus: install ok installed\n" in one}
    return [f"package {name}" for name in wanted if name not in there]


def wrong_units(wanted: list[str]) -> Iterator[str]:
    argv = ["systemctl", "show", "-p", "ActiveState,UnitFileState", *wanted]
    shown = subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout.decode().strip().split("\n\n")
    for name, block in zip(wanted, shown, strict=True):
        if "ActiveState=active" not in block or "UnitFileState=enabled" not in block:
            yield name


def check(given: str, trust: str) -> None:
    wanted = json.loads(given)
    try:
        with open(trust, encoding="utf-8") as stream:
            before = stream.read()
        known = json.loads(before)
    except (OSError, ValueError):
        before, known = "", {}
    wrong = [*wrong_files(wanted["files"], known), *wrong_folders(wanted["folders"]), *wrong_links(wanted["links"])]
    wrong += [*wrong_users(wanted["users"]), *wrong_packages(wanted["packages"]), *wrong_units(wanted["units"])]
    after = json.dumps(known)
    if after != before:
        with open(trust, "w", encoding="utf-8") as stream:
            stream.write(after)
    print(json.dumps({"wrong": wrong, "seen": sum(len(part) for part in wanted.values())}))
