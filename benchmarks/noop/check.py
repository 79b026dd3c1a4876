"""What a node needs to look at itself, and nothing more: sent down one pipe, reads everything once, answers in one line.

It knows no events, no ids and no way to mend anything. `trust` names the file of remembered digests.
"""

import grp
import hashlib
import json
import os
import pwd
import stat
import subprocess


def digest(path, found, known):
    key = [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]
    if found.st_size < 1 << 20 or known.get(path, [None])[0] != key:
        summing = hashlib.sha256()
        with open(path, "rb", buffering=0) as stream:
            for block in iter(lambda: stream.read(1 << 20), b""):
                summing.update(block)
        if found.st_size < 1 << 20:
            return summing.hexdigest()
        known[path] = [key, summing.hexdigest()]
    return known[path][1]


def rights(found):
    return ["%04o" % stat.S_IMODE(found.st_mode), pwd.getpwuid(found.st_uid).pw_name, grp.getgrgid(found.st_gid).gr_name]


def wrong_files(wanted, known):
    for path, mode, owner, group, sha256 in wanted:
        try:
            found = os.lstat(path)
            fits = stat.S_ISREG(found.st_mode) and rights(found) == [mode, owner, group] and digest(path, found, known) == sha256
        except (OSError, KeyError):
            fits = False
        if not fits:
            yield path


def wrong_folders(wanted):
    for path, mode, owner, group in wanted:
        try:
            found = os.lstat(path)
            fits = stat.S_ISDIR(found.st_mode) and rights(found) == [mode, owner, group]
        except (OSError, KeyError):
            fits = False
        if not fits:
            yield path


def wrong_links(wanted):
    for path, target in wanted:
        try:
            fits = os.readlink(path) == target
        except OSError:
            fits = False
        if not fits:
            yield path


def wrong_users(wanted):
    for name in wanted:
        try:
            pwd.getpwnam(name)
        except KeyError:
            yield "user " + name


def wrong_packages(wanted):
    with open("/var/lib/dpkg/status", encoding="utf-8", errors="replace") as stream:
        stanzas = stream.read().split("\n\n")
    there = {one[9 : one.index("\n")] for one in stanzas if "\nStatus: install ok installed\n" in one}
    return ["package " + name for name in wanted if name not in there]


def wrong_units(wanted):
    argv = ["systemctl", "show", "-p", "ActiveState,UnitFileState", *wanted]
    shown = subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout.decode().strip().split("\n\n")
    for name, block in zip(wanted, shown):
        if "ActiveState=active" not in block or "UnitFileState=enabled" not in block:
            yield name


def check(wanted, trust):
    try:
        with open(trust) as stream:
            known = json.load(stream)
    except (OSError, ValueError):
        known = {}
    before = json.dumps(known)
    wrong = [*wrong_files(wanted["files"], known), *wrong_folders(wanted["folders"]), *wrong_links(wanted["links"])]
    wrong += [*wrong_users(wanted["users"]), *wrong_packages(wanted["packages"]), *wrong_units(wanted["units"])]
    if json.dumps(known) != before:
        with open(trust, "w") as stream:
            json.dump(known, stream)
    print(json.dumps({"wrong": wrong, "seen": sum(len(part) for part in wanted.values())}))
