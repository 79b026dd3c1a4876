"""What a server says of a file before it is fetched: size, digest, or why it may not be had. Speaks Hugging Face's headers where they come.

A token goes to the host of the source alone, over https alone, and into no message. Imports requests, so it is itself imported late.
"""

from __future__ import annotations

import difflib
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass

import requests

from wattherd import errors
from wattherd.gguf import split
from wattherd.sources import links, web

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_REDIRECTS = 5
_PAGES = 50
SITE = web.Site(
    word="the server",
    sign_in="it wants a token: write token: beside the source, from a secret",
    address="write hf:ORG/REPO/FILE.gguf, or an address that begins with https://",
    no_answer="is this machine online? a firewall may need HTTPS_PROXY; HF_ENDPOINT names a mirror of Hugging Face",
    missing=("it has no such file", "look at the spelling of the address"),
    between="a proxy, a filter or a login page stands between this machine and the server",
    mismatch="the file was damaged on its way, or it is another one than the catalogue pins; nothing was kept",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What is known of a file. `validator` tells one state of it from another ('' where the server has no word for that)."""

    sha256: str = ""
    size_bytes: int = 0
    validator: str = ""


def open_session(url: str, token: str) -> requests.Session:
    """Sends the token with requests to the very host of `url` and with no other, a redirect's host included."""
    session = requests.Session()
    session.headers["User-Agent"] = f"wattherd ({requests.utils.default_user_agent()})"
    home = urllib.parse.urlsplit(url)
    if token and home.scheme != "https":
        raise errors.Problem(
            "source-forbidden",
            f"a token is sent over https alone, and {web.host_of(url)} is asked over {home.scheme}",
            hint="write the address with https://, or take token: away",
        )

    def sign_in(request: requests.PreparedRequest) -> requests.PreparedRequest:
        asked = urllib.parse.urlsplit(request.url or "")
        if token and (asked.scheme, asked.netloc) == (home.scheme, home.netloc):
            request.headers["Authorization"] = f"Bearer {token}"
        return request

    # Also without a token: else requests would look for a password in ~/.netrc by itself.
    session.auth = sign_in
    return session


def look(session: requests.Session, file: links.WebFile, *, token: bool) -> About:
    """Ask without fetching. Raises `source-missing` or `source-forbidden` with the server's own reason where it gives one."""
    response = _head(session, file)
    if response.status_code in {401, 403, 404, 410}:
        # A server that knows no HEAD may refuse it so; only the Hub's word is final here.
        if file.repository or response.status_code in {404, 410}:
            raise _refused(session, file, response, token=token)
        return About()
    if response.status_code >= requests.codes.bad_request:
        return About()
    said = response.headers
    sha256 = said.get("X-Linked-Etag", "").strip('"').lower()
    size = said.get("X-Linked-Size") or (said.get("Content-Length", "") if response.status_code == requests.codes.ok else "")
    known = bool(_SHA256.match(sha256))
    return About(
        sha256=sha256 if known else "", size_bytes=int(size) if size.isdecimal() else 0, validator=sha256 if known else _validator(said)
    )


def is_missing(session: requests.Session, file: links.WebFile, *, token: bool) -> bool:
    try:
        look(session, file, token=token)
    except errors.Problem as problem:
        if problem.code == "source-missing":
            return True
        raise
    return False


def choose(session: requests.Session, wanted: links.Quantised, *, token: bool) -> links.WebFile:
    """The one file (or first part) of this quantisation. Never a guess: several, or none, are an error that lists them."""
    named = [name for name in _listed(session, wanted, token=token) if _holds(name, wanted.quantisation)]
    firsts = [name for name in named if (part := split.name(name.rpartition("/")[2])) is None or part.number == 1]
    if len(firsts) != 1:
        every = firsts or [name for name in _listed(session, wanted, token=token) if _is_weights(name)]
        shown = ", ".join(every[:8]) + (f" and {len(every) - 8} more" if len(every) > 8 else "")
        what = f"has {len(firsts)} files of" if firsts else "has no file of"
        raise errors.Problem(
            "source-missing",
            f"{wanted.repository} {what} the quantisation {wanted.quantisation}: {shown or 'it lists no .gguf'}",
            hint=f"write the one you want: hf:{wanted.repository}/{every[0] if every else 'FILE.gguf'}",
        )
    return links.on_hub(wanted.repository, firsts[0], wanted.revision)


def _validator(said: Mapping[str, str]) -> str:
    etag = said.get("ETag", "")
    return etag if etag and not etag.startswith("W/") else said.get("Last-Modified", "")


def _head(session: requests.Session, file: links.WebFile) -> requests.Response:
    """Follows redirects within the host (a renamed repository). Where the bytes lie is asked when they are fetched."""
    url = file.url
    try:
        for _ in range(_REDIRECTS):
            response = session.head(url, allow_redirects=False, headers={"Accept-Encoding": "identity"}, timeout=web.TIMEOUT_S)
            target = urllib.parse.urljoin(url, response.headers.get("Location", ""))
            moved = response.is_redirect and urllib.parse.urlsplit(target)[:2] == urllib.parse.urlsplit(url)[:2]
            if not moved:
                break
            url = target
    except web.FAILED as error:
        raise web.problem(file.key, file.url, error, site=SITE) from None
    return response


def _refused(session: requests.Session, file: links.WebFile, response: requests.Response, *, token: bool) -> errors.Problem:
    said = response.headers.get("X-Error-Code", "")
    host, repository = web.host_of(file.url), file.repository
    page = f"{links.HUB}/{repository}"
    if said == "GatedRepo":
        hint = f"accept its terms on {page} with the account of the token" + ("" if token else ", and write token: beside the source")
        return errors.Problem("source-forbidden", f"{file.key} cannot be had: {repository} is gated on {host}", hint=hint, host=host)
    if said == "RevisionNotFound":
        message = f"{repository} has no revision {file.revision} on {host}"
        return errors.Problem("source-missing", message, hint="a branch, a tag or a commit comes after '@'", host=host)
    if said == "EntryNotFound" or (response.status_code == requests.codes.not_found and said != "RepoNotFound"):
        return errors.Problem("source-missing", f"{host} has no file {file.key}", hint=_nearest(session, file, token=token), host=host)
    if said == "RepoNotFound" or not token:
        hint = "look at the spelling" + ("" if token else "; a private one needs token: beside the source")
        return errors.Problem("source-missing" if said else "source-forbidden", f"{host} shows no {repository} to us", hint=hint, host=host)
    return errors.Problem(
        "source-forbidden",
        f"{file.key} cannot be had: {host} does not accept the token ({response.status_code})",
        hint="is it expired, or without the right to read this repository? it comes from token: beside the source",
        host=host,
    )


def _nearest(session: requests.Session, file: links.WebFile, *, token: bool) -> str:
    if not file.repository:
        return SITE.missing[1]
    wanted = links.Quantised(repository=file.repository, quantisation="", revision=file.revision)
    try:
        listed = [name for name in _listed(session, wanted, token=token) if name.lower().endswith(".gguf")]
    except errors.Problem:
        listed = []
    near = difflib.get_close_matches(file.path, listed, 3, 0.5) or listed[:5]
    return f"it has {', '.join(near)}" if near else "look at the spelling of repository and file"


def _listed(session: requests.Session, wanted: links.Quantised, *, token: bool) -> list[str]:
    """Every file of the repository. The answer is a stranger's: only names that can be printed are passed on."""
    revision = urllib.parse.quote(wanted.revision, safe="")
    url = f"{links.endpoint()}/api/models/{wanted.repository}/tree/{revision}?recursive=true"
    found: list[str] = []
    try:
        for _ in range(_PAGES):
            response = session.get(url, timeout=web.TIMEOUT_S, allow_redirects=False)
            if response.status_code in {401, 403, 404}:
                file = links.on_hub(wanted.repository, "FILE.gguf", wanted.revision)
                response.headers.setdefault("X-Error-Code", "RepoNotFound" if response.status_code == 404 else "")
                raise _refused(session, file, response, token=token)
            response.raise_for_status()
            rows = response.json()
            found += [
                row["path"] for row in rows if isinstance(row, dict) and row.get("type") == "file" and isinstance(row.get("path"), str)
            ]
            following = response.links.get("next", {}).get("url", "")
            if not following or urllib.parse.urlsplit(following)[:2] != urllib.parse.urlsplit(url)[:2]:
                break
            url = following
    except web.FAILED as error:
        raise web.problem(str(wanted), url, error, site=SITE) from None
    except (ValueError, TypeError) as error:
        message = f"{web.host_of(url)} does not answer as Hugging Face does"
        raise errors.Problem("source-unreachable", message, hint=SITE.between) from error
    return sorted(name for name in found if name.isprintable())


def _is_weights(path: str) -> bool:
    name = path.rpartition("/")[2].lower()
    return name.endswith(".gguf") and not any(word in name for word in ("mmproj", "imatrix", "vocab"))


def _holds(path: str, quantisation: str) -> bool:
    """The quantisation as a word of its own: Q4_K is not Q4_K_M, and IQ4_XS is no XS."""
    name = path.rpartition("/")[2]
    pattern = rf"(?:^|[-._]){re.escape(quantisation)}(?:-\d{{5}}-of-\d{{5}})?\.gguf\Z"
    return _is_weights(path) and re.search(pattern, name, re.IGNORECASE) is not None
