"""Links to a GGUF on the web: the short form, every link that a person copies from Hugging Face, and plain addresses. Pure."""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, replace

HUB = "https://huggingface.co"
_HUB_HOSTS = {"huggingface.co", "www.huggingface.co", "hf.co"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}\Z")
_QUANTISATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,40}\Z")
#: What stands between the repository and the revision in links to a file; only `resolve` gives the file itself.
_VIEWS = {"resolve", "blob", "raw", "edit", "blame", "commits", "delete"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WebFile:
    """One file behind an address. `repository` and `path` only on the Hub. `note` is what was corrected in the link.

    `key` names it in the controller's memory and in messages: no query, which may hold a signature.
    """

    url: str
    key: str
    file_name: str
    repository: str = ""
    revision: str = ""
    path: str = ""
    note: str = ""

    def __str__(self) -> str:
        return self.key

    def sibling(self, file_name: str) -> WebFile:
        """The file of another name in the same folder."""
        if self.repository:
            folder = self.path.rpartition("/")[0]
            return on_hub(self.repository, f"{folder}/{file_name}" if folder else file_name, self.revision)
        parts = urllib.parse.urlsplit(self.url)
        path = f"{parts.path.rpartition('/')[0]}/{urllib.parse.quote(file_name)}"
        url = urllib.parse.urlunsplit(parts._replace(path=path))
        return WebFile(url=url, key=_without_query(url), file_name=file_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantised:
    """A repository on the Hub and the quantisation that is wanted of it; which file that is only the Hub can say."""

    repository: str
    quantisation: str
    revision: str = "main"

    def __str__(self) -> str:
        return f"hf:{self.repository}:{self.quantisation}" + ("" if self.revision == "main" else f"@{self.revision}")


def endpoint(environ: Mapping[str, str] = os.environ) -> str:
    """HF_ENDPOINT, as Hugging Face's own programs know it, names a mirror."""
    return (environ.get("HF_ENDPOINT") or HUB).rstrip("/")


def on_hub(repository: str, path: str, revision: str) -> WebFile:
    quoted = urllib.parse.quote(path)
    url = f"{endpoint()}/{repository}/resolve/{urllib.parse.quote(revision, safe='')}/{quoted}"
    shown = "" if revision == "main" else f"@{revision}"
    return WebFile(
        url=url,
        key=f"hf:{repository}/{path}{shown}",
        file_name=path.rpartition("/")[2],
        repository=repository,
        revision=revision,
        path=path,
    )


def short(rest: str) -> WebFile | Quantised:
    """`ORG/REPO/FILE.gguf[@REVISION]` or `ORG/REPO:QUANTISATION[@REVISION]`; raises ValueError with what is wrong."""
    body, _, revision = rest.partition("@")
    repository, colon, quantisation = body.partition(":")
    if colon:
        if not _is_repository(repository) or not _QUANTISATION.match(quantisation):
            raise ValueError("names no quantisation of a repository: write hf:ORG/REPO:Q4_K_M")
        return Quantised(repository=repository, quantisation=quantisation, revision=_revision(revision))
    organisation, _, rest_of = body.partition("/")
    repository_name, _, path = rest_of.partition("/")
    repository = f"{organisation}/{repository_name}"
    if not _is_repository(repository):
        raise ValueError("names no repository: write hf:ORG/REPO/FILE.gguf")
    return on_hub(repository, _file(path, repository), _revision(revision))


def address(url: str) -> WebFile | Quantised:
    """A link as it was copied. One to a page about the file is corrected to the file."""
    parts = urllib.parse.urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise ValueError("holds a user or a password; write a token beside it (token:), from a secret")
    if not parts.hostname:
        raise ValueError("names no host")
    if parts.hostname in _HUB_HOSTS or url.startswith(endpoint() + "/"):
        return _hub_link(parts)
    file_name = urllib.parse.unquote(parts.path).rpartition("/")[2]
    if not file_name.lower().endswith(".gguf"):
        raise ValueError(f"names no .gguf but {file_name or 'a folder'!r}")
    return WebFile(url=url, key=_without_query(url), file_name=file_name)


def _hub_link(parts: urllib.parse.SplitResult) -> WebFile | Quantised:
    prefix = urllib.parse.urlsplit(endpoint()).path
    words = [urllib.parse.unquote(word) for word in parts.path.removeprefix(prefix).strip("/").split("/")]
    repository = "/".join(words[:2])
    if not _is_repository(repository) or words[0] in {"datasets", "spaces"}:
        raise ValueError("names no model repository: write hf:ORG/REPO/FILE.gguf")
    asked = urllib.parse.parse_qs(parts.query)
    if len(words) == 2 and asked.get("show_file_info"):
        # The link of the Hub's own view of a GGUF.
        found = on_hub(repository, _file(asked["show_file_info"][0], repository), "main")
        return replace(found, note=f"the link shows a page about the file; {found.key} was taken")
    if len(words) >= 5 and words[2] in _VIEWS:
        path = "/".join(words[4:])
        found = on_hub(repository, _file(path, repository), _revision(words[3]))
        corrected = f"the link with /{words[2]}/ shows a page about the file; /resolve/ was taken in its place"
        return replace(found, note="" if words[2] == "resolve" else corrected)
    raise ValueError(f"names a repository and no file: write hf:{repository}/FILE.gguf or hf:{repository}:QUANTISATION")


def _file(path: str, repository: str) -> str:
    if not path.lower().endswith(".gguf") or any(part in {"", ".", ".."} for part in path.split("/")) or not path.isprintable():
        raise ValueError(f"names no .gguf in {repository}: write hf:{repository}/FILE.gguf or hf:{repository}:QUANTISATION")
    return path


def _revision(text: str) -> str:
    if text and (not text.isprintable() or " " in text or ".." in text):
        raise ValueError(f"names no revision: {text!r} after '@'")
    return text or "main"


def _is_repository(text: str) -> bool:
    organisation, slash, name = text.partition("/")
    return bool(slash and _NAME.match(organisation) and _NAME.match(name))


def _without_query(url: str) -> str:
    return urllib.parse.urlunsplit(urllib.parse.urlsplit(url)._replace(query="", fragment=""))
