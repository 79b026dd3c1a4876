"""The kinds of value that settings are made of: a slug, a port, a digest. Each says in its error what is allowed."""

from __future__ import annotations

import posixpath
import re
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, Strict
from pydantic_core import PydanticCustomError

T = TypeVar("T")

_WRONG = "allowed"  # the type of our own errors: their message says what is allowed


def wrong(allowed: str) -> PydanticCustomError:
    return PydanticCustomError(_WRONG, "{allowed}", {"allowed": allowed})


def matching(pattern: str, allowed: str) -> AfterValidator:
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


def switch(given: object) -> object:
    """YAML 1.1 reads a bare on or off as true or false."""
    return {True: "on", False: "off"}[given] if isinstance(given, bool) else given


def gpu_layers(given: object) -> object:
    if given in {"auto", "all"} or (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
        return given
    raise wrong("a number of layers, 'auto' or 'all'")


def scalar(given: object) -> object:
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise wrong("text or a whole number")
    return given


def option(given: object) -> object:
    if not isinstance(given, str | int) or (isinstance(given, str) and not given.isprintable()):
        raise wrong("text of one line, a whole number, or true or false")
    return given


Many = Annotated[tuple[T, ...], Strict(False)]  # YAML has lists; a list and nothing else becomes a tuple
Word = Annotated[str, matching(r"[^\s-]\S*", "a word without spaces")]
#: Names with commas between them, as llama-server takes them.
Alias = Annotated[str, matching(r"[^\s,-]\S{0,199}", "a word without spaces, of at most 200 characters")]
Line = Annotated[str, matching(r"[^\n\r:]*", "one line of text without ':'")]
Account = Annotated[str, matching(r"[a-z_][a-z0-9_-]{0,31}", "a user's or group's name (small letters, digits, '_' and '-')")]
Slug = Annotated[str, matching(r"[a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?", "a slug of small letters, digits and '-' (at most 48)")]
Unit_name = Annotated[
    str,
    matching(
        r"[\w:.\\@-]+\.(?:service|socket|timer|mount|path|target|slice)", "a systemd unit's full name, such as 'node-exporter.service'"
    ),
]
Package = Annotated[str, matching(r"[a-z0-9][a-z0-9+.-]+(?::[a-z0-9]+)?", "a package's name, such as 'cmake'")]
Sysctl = Annotated[str, matching(r"[\w./*-]+", "a sysctl key, such as 'vm.swappiness'")]
Option = Annotated[str, matching(r"[A-Za-z_][A-Za-z0-9_]*", "a CMake option's name, such as 'GGML_NATIVE'")]
Digest = Annotated[str, matching(r"[0-9a-f]{64}", "64 hexadecimal digits in small letters")]
Name = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]*", "a name of letters, digits, '.', '_' and '-'")]
Address = Annotated[str, matching(r"[0-9A-Za-z:.%_-]+", "one address or host name to listen on")]
Mode = Annotated[str, BeforeValidator(_mode)]
Path = Annotated[str, AfterValidator(_path)]
Port = Annotated[int, Field(ge=1, le=65535)]
Count = Annotated[int, Field(ge=1)]
CacheType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]
Program = Annotated[
    str, matching(r"pypi:[A-Za-z0-9][\w.-]*==\w[\w.+!]*|(?:path|file):\S.*\.tar\.gz", "'pypi:NAME==VERSION' or 'path:/FOLDER/FILE.tar.gz'")
]
Bytes = Annotated[str, matching(r"[1-9][0-9]*(?:\.[0-9]+)?[KMGT]?", "a size such as '16G' (K, M, G, T are powers of 1024)")]
Switch = Annotated[Literal["on", "off", "auto"], BeforeValidator(switch)]
GpuLayers = Annotated[int | Literal["auto", "all"], BeforeValidator(gpu_layers)]
Natural = Annotated[int, Field(ge=0)]
Seconds = Annotated[int, Field(ge=1)]
GpuUuid = Annotated[str, matching(r"(?:GPU|MIG)-[0-9A-Za-z/-]{4,80}", "a card's UUID (GPU-… or MIG-…, from nvidia-smi -L)")]
Endpoint = Annotated[str, matching(r"[0-9A-Za-z.:_-]+:[0-9]{1,5}", "HOST:PORT")]
Location = Annotated[str, matching(r"(?:/|~/|\./|[^\s/-])\S*", "a path without spaces")]
