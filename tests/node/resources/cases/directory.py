"""The four cases of a directory."""

from __future__ import annotations

from tests.node import strict
from wattherd.resources import directory

PATH = "/etc/demo.d"


def wanted(bench: strict.Bench) -> directory.Directory:
    return directory.Directory(PATH, mode="0750", owner=bench.me, group=bench.my_group)


def absent(bench: strict.Bench) -> directory.Directory:
    bench.folder("/etc")
    return wanted(bench)


def drifted(bench: strict.Bench) -> directory.Directory:
    bench.folder(PATH, mode=0o777)
    return wanted(bench)


def settled(bench: strict.Bench) -> directory.Directory:
    bench.folder(PATH, mode=0o750)
    return wanted(bench)


def checked(bench: strict.Bench) -> directory.Directory:
    return drifted(bench)
