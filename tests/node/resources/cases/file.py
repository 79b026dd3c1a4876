"""The four cases of a file."""

from __future__ import annotations

from tests.node import strict
from wattherd.resources import file

PATH = "/etc/demo.conf"
TEXT = "listen = 8080\n"


def wanted(bench: strict.Bench) -> file.File:
    return file.File(PATH, text=TEXT, mode="0640", owner=bench.me, group=bench.my_group)


def absent(bench: strict.Bench) -> file.File:
    bench.folder("/etc")
    return wanted(bench)


def drifted(bench: strict.Bench) -> file.File:
    bench.put(PATH, "listen = 1\n", mode=0o666)
    return wanted(bench)


def settled(bench: strict.Bench) -> file.File:
    bench.put(PATH, TEXT, mode=0o640)
    return wanted(bench)


def checked(bench: strict.Bench) -> file.File:
    return drifted(bench)
