"""The four cases of a package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.node import strict
from wattherd.resources import package

LIST = "/var/lib/apt/lists/deb.example.org_debian_dists_bookworm_main_binary-amd64_Packages"
INSTALL = (
    "apt-get",
    "install",
    "-y",
    "--no-install-recommends",
    "-o",
    "DPkg::Lock::Timeout=120",
    "-o",
    "Dpkg::Options::=--force-confold",
)
DPKG = "Package: dpkg\nEssential: yes\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.21.22\n"


def stanza(name: str, status: str = "install ok installed", architecture: str = "amd64", **fields: str) -> str:
    more = "".join(f"{key}: {value}\n" for key, value in fields.items())
    return (
        f"Package: {name}\nStatus: {status}\nPriority: optional\nArchitecture: {architecture}\n{more}Description: a package\n more of it\n"
    )


def put(bench: strict.Bench, *stanzas: str) -> None:
    bench.put("/var/lib/dpkg/status", "\n".join((DPKG, *stanzas)) + "\n")


def plan_install(bench: strict.Bench, name: str = "haproxy") -> None:
    def effect(argv: Sequence[str]) -> None:
        assert argv[-1] == name
        status = Path(bench.machine.path("/var/lib/dpkg/status"))
        status.write_text(status.read_text().replace(stanza(name, "install ok unpacked"), "") + "\n" + stanza(name) + "\n")

    bench.runner.plan(*INSTALL, name, effect=effect)


def absent(bench: strict.Bench) -> package.Package:
    put(bench, stanza("haproxy-doc"))
    bench.put(LIST)
    plan_install(bench)
    return package.Package("haproxy")


def drifted(bench: strict.Bench) -> package.Package:
    put(bench, stanza("haproxy", "install ok unpacked"))
    bench.put(LIST)
    bench.runner.plan("dpkg", "--force-confold", "--configure", "-a")
    plan_install(bench)
    return package.Package("haproxy")


def settled(bench: strict.Bench) -> package.Package:
    put(bench, stanza("haproxy"))
    return package.Package("haproxy")


def checked(bench: strict.Bench) -> package.Package:
    return absent(bench)
