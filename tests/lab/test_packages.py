"""The package resource against real apt and dpkg, from a small local repository, since a node has no way out; and an older Debian."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.lab import cli, fleet, nodes

pytestmark = pytest.mark.lab
OLD = "old"


def make_package(folder: pathlib.Path, name: str, version: str, more: str = "") -> None:
    tree = folder / f"{name}-{version}"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "usr/share/herd").mkdir(parents=True)
    (tree / "usr/share/herd" / name).write_text(version)
    control = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: lab <lab@example.org>\n"
    control += f"Description: lab package {name}\n{more}"
    (tree / "DEBIAN/control").write_text(control)
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "--build", str(tree), str(folder / f"{name}_{version}_all.deb")], check=True, capture_output=True
    )
    shutil.rmtree(tree)


def make_repository(folder: pathlib.Path) -> None:
    """An index as apt-ftparchive writes it: the control fields, and where the file is with its size and digest."""
    import hashlib

    rows = []
    for path in sorted(folder.glob("*.deb")):
        control = subprocess.run(["dpkg-deb", "-f", str(path)], check=True, capture_output=True, text=True).stdout.strip()
        body = path.read_bytes()
        rows.append(f"{control}\nFilename: ./{path.name}\nSize: {len(body)}\nSHA256: {hashlib.sha256(body).hexdigest()}\n")
    (folder / "Packages").write_text("\n".join(rows))


@pytest.fixture
def here(plain: tuple[str, str], tmp_path: pathlib.Path) -> Iterator[cli.Project]:
    """A node with a repository of three packages, one of which needs another."""
    name = plain[0]
    repository = nodes.root(name) / "srv/repository"
    shutil.rmtree(repository, ignore_errors=True)
    repository.mkdir(parents=True)
    make_package(repository, "herd-hello", "1.0")
    make_package(repository, "herd-base", "1.0")
    make_package(repository, "herd-top", "1.0", "Depends: herd-base\n")
    make_repository(repository)
    sources = nodes.root(name) / "etc/apt/sources.list.d/herd.list"
    sources.write_text("deb [trusted=yes] file:/srv/repository ./\n")
    made = cli.project(tmp_path)
    made.hosts(**{name.replace("-", "_"): next(node.address for node in fleet.status().nodes if node.name == name)})
    assert made.invoke("trust", "--hosts", "all", "--yes").code == 0
    yield made
    made.group("roles: [base]\n")
    assert made.invoke("remove", "--hosts", "all", "--yes").code == 0
    nodes.run(name, ["sh", "-c", "dpkg --purge herd-top herd-base herd-hello; rm -rf /srv/repository"])
    sources.unlink()


def installed(name: str) -> set[str]:
    return set(
        nodes.run(
            name,
            [
                "sh",
                "-c",
                "dpkg-query -W -f '${Package} ${db:Status-Status}\\n' 'herd-*' 2>/dev/null | grep ' installed' | cut -d' ' -f1 || true",
            ],
        ).stdout.split()
    )


def test_packages_come_stay_and_go(here: cli.Project, plain: tuple[str, str]) -> None:
    name = plain[0]
    here.group("roles: [base]\nbase: {packages: [herd-hello, herd-top]}\n")
    check = here.invoke("deploy", "--hosts", "all", "--check", "--json")
    assert installed(name) == set(), "a check installs nothing"
    said = here.invoke("deploy", "--hosts", "all", "--json")
    assert said.code == 0, said.words
    assert {"package:herd-hello", "package:herd-top"} <= set(said.host(name)["changes"])
    assert set(check.host(name)["changes"]) == set(said.host(name)["changes"])
    assert installed(name) == {"herd-hello", "herd-top", "herd-base"}
    assert here.invoke("deploy", "--hosts", "all", "--json").host(name)["changed"] == 0
    here.group("roles: [base]\n")
    gone = here.invoke("deploy", "--hosts", "all", "--json")
    assert gone.code == 0, gone.words
    assert "herd-hello" not in installed(name)


def test_what_was_installed_before_is_never_removed(here: cli.Project, plain: tuple[str, str]) -> None:
    name = plain[0]
    nodes.run(name, ["sh", "-c", "apt-get update -q && apt-get install -y -q herd-base"])
    here.group("roles: [base]\nbase: {packages: [herd-base]}\n")
    assert here.invoke("deploy", "--hosts", "all").code == 0
    here.group("roles: [base]\n")
    assert here.invoke("deploy", "--hosts", "all").code == 0
    assert "herd-base" in installed(name)


def test_a_package_that_others_need_is_left_and_said(here: cli.Project, plain: tuple[str, str]) -> None:
    name = plain[0]
    here.group("roles: [base]\nbase: {packages: [herd-base]}\n")
    assert here.invoke("deploy", "--hosts", "all").code == 0
    nodes.run(name, ["sh", "-c", "apt-get install -y -q herd-top"])
    here.group("roles: [base]\n")
    said = here.invoke("deploy", "--hosts", "all")
    assert said.code == 0, said.words
    assert {"herd-base", "herd-top"} <= installed(name)
    assert "herd-top" in said.words


def test_an_unknown_package_is_named(here: cli.Project, plain: tuple[str, str]) -> None:
    here.group("roles: [base]\nbase: {packages: [herd-helo]}\n")
    said = here.invoke("deploy", "--hosts", "all", "--json")
    assert said.code == 2
    assert said.host(plain[0])["problem"]["code"] == "package-unavailable"
    assert "herd-helo" in said.host(plain[0])["problem"]["message"]


def test_an_older_debian_with_python_3_9(lab: fleet.Status, tmp_path: pathlib.Path) -> None:
    assert lab.nodes
    address = nodes.add(OLD, "bullseye")
    try:
        made = cli.project(tmp_path)
        made.hosts(**{OLD: address})
        made.group("roles: [base]\nbase: {files: [{path: /etc/wattherd/here, text: x}], sysctl: {net.ipv4.tcp_syncookies: 1}}\n")
        assert made.invoke("trust", "--hosts", "all", "--yes").code == 0
        seen = made.invoke("ping", "--json")
        assert seen.host(OLD)["python"]["version"].startswith("3.9."), seen.words
        said = made.invoke("deploy", "--hosts", "all", "--json")
        assert said.code == 0, said.words
        assert "file:/etc/wattherd/here" in said.host(OLD)["changes"]
        assert made.invoke("deploy", "--hosts", "all", "--json").host(OLD)["changed"] == 0
    finally:
        nodes.remove(OLD)
