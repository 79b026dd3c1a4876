"""HTTP as the sources need it: one session with the index's sign-in, and failures said in words.

Of an address only its host name is ever printed: the rest may hold a token. Imports requests, so it is itself imported late.
"""

from __future__ import annotations

import base64
import os
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass

import requests
import urllib3.exceptions

from wattherd import errors

TIMEOUT_S = (10.0, 60.0)
#: What may go wrong between here and the other end while a body arrives.
BROKEN: tuple[type[Exception], ...] = (requests.RequestException, urllib3.exceptions.HTTPError, ConnectionError, TimeoutError)
NOT_HTTP: tuple[type[Exception], ...] = (
    requests.exceptions.InvalidURL,
    requests.exceptions.MissingSchema,
    requests.exceptions.InvalidSchema,
)
FAILED: tuple[type[Exception], ...] = (*BROKEN, *NOT_HTTP)

_TRY_LATER = "run again later; what has arrived is kept"
_CERTIFICATE = "PIP_CERT or REQUESTS_CA_BUNDLE names the file with your certificate authority"
_PROXY = "look at HTTPS_PROXY and NO_PROXY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The kind of the other end: how it is spoken of, and what helps when it refuses or does not answer.

    `word` is who says what a file's digest is.
    """

    word: str
    sign_in: str
    address: str
    no_answer: str
    missing: tuple[str, str]
    between: str
    mismatch: str


INDEX = Site(
    word="the index",
    sign_in="the index wants a user and a password: put them in its address (PIP_INDEX_URL) or in ~/.netrc",
    address="PIP_INDEX_URL (or pip's configuration) names the index; a file on this machine is named by path:",
    no_answer="is this machine online? a firewall may need HTTPS_PROXY; another index is named by PIP_INDEX_URL",
    missing=(
        "it answers 404, although the index lists the file",
        "the index and its files disagree; try another index, or run again later",
    ),
    between="a proxy, a filter or a login page stands between this machine and the index",
    mismatch="the file was damaged or exchanged on its way and was not kept; run again, and ask the index's owner if it stays so",
)

#: The kinds of an error, a word in its text, and what to say (or which word of the site). The first that fits.
_REASONS: tuple[tuple[tuple[type[Exception], ...], str, str, str], ...] = (
    ((requests.exceptions.SSLError, urllib3.exceptions.SSLError), "", "its certificate is not trusted here", _CERTIFICATE),
    ((requests.exceptions.ProxyError, urllib3.exceptions.ProxyError), "", "the proxy does not let the connection through", _PROXY),
    ((requests.Timeout, urllib3.exceptions.TimeoutError, TimeoutError), "", f"no answer within {TIMEOUT_S[1]:.0f} s", "no_answer"),
    (NOT_HTTP, "", "its address is not http or https", "address"),
    ((requests.ConnectionError,), "NameResolution", "its name is not known here", "no_answer"),
    ((OSError,), "CA certificate bundle", "the file of certificates that is set here is missing", _CERTIFICATE),
    ((requests.ConnectionError,), "NewConnection", "the connection is refused", "no_answer"),
)


def open_session(index: str, environ: Mapping[str, str] = os.environ) -> tuple[requests.Session, str]:
    """A session that signs in at the index's own host and nowhere else, and the index's address without user and password."""
    parts = urllib.parse.urlsplit(index)
    host = parts.netloc.rpartition("@")[2]
    session = requests.Session()
    session.headers["User-Agent"] = f"wattherd ({requests.utils.default_user_agent()})"
    if environ.get("PIP_CERT"):
        session.verify = environ["PIP_CERT"]
    if parts.username is not None:
        pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        value = f"Basic {base64.b64encode(pair.encode()).decode()}"

        def sign_in(request: requests.PreparedRequest) -> requests.PreparedRequest:
            asked = urllib.parse.urlsplit(request.url or "")
            if (asked.scheme, asked.netloc) == (parts.scheme, host):
                request.headers["Authorization"] = value
            return request

        session.auth = sign_in
    return session, urllib.parse.urlunsplit(parts._replace(netloc=host))


def host_of(address: str) -> str:
    return urllib.parse.urlsplit(address).hostname or "the package index"


def problem(what: str, address: str, error: Exception, more: str = "", site: Site = INDEX) -> errors.Problem:
    """`source-unreachable`. The error's own text is left out, because it repeats the address."""
    host = host_of(address)
    reason, hint = _reason(error, site)
    return errors.Problem("source-unreachable", f"{what} cannot be fetched from {host}: {reason}{more}", hint=hint, host=host)


def _reason(error: Exception, site: Site) -> tuple[str, str]:
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return _status(error.response.status_code, site)
    for kinds, sign, reason, hint in _REASONS:
        # The sign is looked for and never shown.
        if isinstance(error, kinds) and sign in repr(error):
            return reason, {"no_answer": site.no_answer, "address": site.address}.get(hint, hint)
    return "the connection broke off", _TRY_LATER


def _status(status: int, site: Site) -> tuple[str, str]:
    if status in {401, 403, 407}:
        return f"it answers {status}, not permitted", site.sign_in if status != 407 else _PROXY
    if status == 404:
        return site.missing
    return f"it answers {status}", _TRY_LATER
