"""The benchmark's role: the state that all tools share, out of the variables app_…; but for the blob, which a role of its own wants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from wattherd.role import Directory, Facts, File, Host, Package, Resource, Symlink, Unit, User


def resources(host: Host, facts: Facts) -> Iterator[Resource]:
    del facts
    user = str(host.variables["app_user"])
    yield User(name=user)
    yield from (Directory(path=path, group=user, mode="0750") for path in _words(host, "app_folders"))
    yield from (Package(name=name) for name in _words(host, "app_packages"))
    for index in _words(host, "app_indexes"):
        text = host.text("app/app.conf.j2", index=index)
        yield File(path=f"{host.variables['app_conf']}/f{index}.conf", text=text, group=user, mode="0640")
    for link in cast("Sequence[Mapping[str, str]]", host.variables["app_links"]):
        yield Symlink(path=link["path"], target=link["target"])
    sysctl = cast("Mapping[str, str]", host.variables["app_sysctl"])
    yield File(path=sysctl["path"], text=sysctl["text"])
    yield from (Unit(name=name, text=str(host.variables["app_unit_text"])) for name in _words(host, "app_units"))


def _words(host: Host, name: str) -> Sequence[str]:
    return cast("Sequence[str]", host.variables[name])
