"""The four cases of a symbolic link."""

from __future__ import annotations

from tests.node import strict
from wattherd.resources import symlink

PATH = "/opt/demo/current"
TARGET = "releases/two"
PROBE = ("/opt/demo/releases/two/bin/server", "--version")


def wanted() -> symlink.Symlink:
    return symlink.Symlink(PATH, TARGET, probes=(PROBE,))


def absent(bench: strict.Bench) -> symlink.Symlink:
    bench.folder("/opt/demo")
    bench.runner.plan(*PROBE, err="version: 2\n")
    return wanted()


def drifted(bench: strict.Bench) -> symlink.Symlink:
    bench.link(PATH, "releases/one")
    bench.runner.plan(*PROBE, err="version: 2\n")
    return wanted()


def settled(bench: strict.Bench) -> symlink.Symlink:
    bench.link(PATH, TARGET)
    return wanted()


def checked(bench: strict.Bench) -> symlink.Symlink:
    return drifted(bench)
