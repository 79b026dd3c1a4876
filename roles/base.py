"""What every host has: Wattherd's own folders, the residents' place, and the plain things that the inventory lists under `base`."""

from __future__ import annotations

import base64
from collections.abc import Iterator

from wattherd.role import Directory, Facts, File, Host, Package, Resource, Symlink, Unit, User

#: The unprivileged account under which the node's residents run; root alone may write the store.
RESIDENT = "wattherd"


def resources(host: Host, facts: Facts) -> Iterator[Resource]:
    del facts
    yield User(name=RESIDENT, comment="Wattherd residents", home="/var/lib/wattherd/resident")
    # /var/lib/wattherd and /var/cache/wattherd are the node program's own: they are there before the first resource is.
    for path in ("/etc/wattherd", "/opt/wattherd", "/opt/wattherd/releases"):
        yield Directory(path=path)
    yield Directory(path="/var/lib/wattherd/resident", owner=RESIDENT, group=RESIDENT, mode="0750")
    yield from _listed(host)


def _listed(host: Host) -> Iterator[Resource]:
    """The inventory's own list, in the order in which one needs the other: packages bring users, users own folders, folders hold files."""
    base = host.settings.base
    for name in base.packages:
        yield Package(name=name)
    for user in base.users:
        yield User(name=user.name, system=user.system, shell=user.shell, home=user.home, groups=tuple(user.groups), comment=user.comment)
    for folder in base.directories:
        yield Directory(path=folder.path, mode=folder.mode, owner=folder.owner, group=folder.group)
    for item in base.files:
        text, encoding = _content(host, item.text, item.template, item.source)
        yield File(path=item.path, text=text, encoding=encoding, mode=item.mode, owner=item.owner, group=item.group)
    for link in base.links:
        yield Symlink(path=link.path, target=link.target)
    yield from _sysctl(host)
    for unit in base.units:
        text = host.text(unit.template) if unit.template else (unit.text or "")
        yield Unit(
            name=unit.name,
            text=text,
            enabled=unit.enabled,
            state=unit.state,
            started_from=tuple(f"file:{path}" for path in unit.started_from),
        )


def _content(host: Host, text: str | None, template: str | None, source: str | None) -> tuple[str, str]:
    if text is not None:
        return text, "utf-8"
    if template is not None:
        return host.text(template), "utf-8"
    body = host.source(source or "")
    try:
        return body.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode("ascii"), "base64"


def _sysctl(host: Host) -> Iterator[Resource]:
    """Kernel settings as a file that systemd-sysctl reads at boot, and a oneshot unit that reads it now and whenever it changes."""
    settings = host.settings.base.sysctl
    if not settings:
        return
    text = host.text("base/sysctl.conf.j2", settings=settings)
    yield File(path="/etc/sysctl.d/90-wattherd.conf", text=text)
    yield Unit(name="wattherd-sysctl.service", text=host.text("base/sysctl.service.j2", settings=settings))
