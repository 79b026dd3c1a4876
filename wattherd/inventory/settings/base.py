"""Settings of the role `base`: users, folders, files, packages, units."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, model_validator

from wattherd.inventory.settings.kinds import Account, Line, Many, Mode, Package, Path, Sysctl, Unit_name, Word, scalar, wrong


class User(BaseModel, extra="forbid", frozen=True, strict=True):
    name: Account
    system: bool = False
    shell: Path = "/usr/sbin/nologin"
    home: Path | None = None
    groups: Many[Account] = ()
    comment: Line = ""


class Directory(BaseModel, extra="forbid", frozen=True, strict=True):
    path: Path
    mode: Mode = "0755"
    owner: Account = "root"
    group: Account = "root"


class File(BaseModel, extra="forbid", frozen=True, strict=True):
    path: Path
    text: str | None = None
    template: Word | None = None
    source: str | None = None
    mode: Mode = "0644"
    owner: Account = "root"
    group: Account = "root"

    @model_validator(mode="after")
    def _one_origin(self) -> File:
        if sum(origin is not None for origin in (self.text, self.template, self.source)) != 1:
            raise wrong("given exactly one of text, template and source")
        return self


class Link(BaseModel, extra="forbid", frozen=True, strict=True):
    path: Path
    target: Word


class Unit(BaseModel, extra="forbid", frozen=True, strict=True):
    """Without text and template: a unit that something else has installed. A change in `started_from` starts its process anew."""

    name: Unit_name
    text: str | None = None
    template: Word | None = None
    started_from: Many[Path] = ()
    enabled: bool = True
    state: Literal["started", "stopped"] = "started"

    @model_validator(mode="after")
    def _one_origin(self) -> Unit:
        if self.text is not None and self.template is not None:
            raise wrong("given text or template, not both")
        if self.started_from and self.text is None and self.template is None:
            raise wrong("given text or template too, since started_from is written into the unit")
        return self


class Base(BaseModel, extra="forbid", frozen=True, strict=True):
    users: Many[User] = ()
    directories: Many[Directory] = ()
    packages: Many[Package] = ()
    files: Many[File] = ()
    links: Many[Link] = ()
    sysctl: dict[Sysctl, Annotated[str | int, BeforeValidator(scalar)]] = {}
    units: Many[Unit] = ()
