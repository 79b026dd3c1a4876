"""A model hub on loopback, as Hugging Face behaves: links that redirect to another host for the bytes, digests in headers, gates, tokens.

The bytes come from a second server, which has an ETag of its own and never should see a token. Faults on demand.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import ssl
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    range: str
    if_range: str
    authorization: str


@dataclass
class Site:
    """One server: what lies on it and what was asked of it. `files` maps a path to bytes, `etags` a path to its ETag."""

    files: dict[str, bytes] = field(default_factory=dict)
    etags: dict[str, str] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    knows_head: bool = True
    says_length: bool = True
    gives: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    url: str = ""

    def gets(self, path: str = "") -> list[Asked]:
        return [one for one in self.asked if one.method == "GET" and path in one.path]


@dataclass
class Hub:
    """`home` is the Hub, `store` where it sends people for files. Repositories in `gated` want `token`."""

    home: Site
    store: Site
    token: str = "hf_right"
    gated: set[str] = field(default_factory=set)
    digests: bool = True

    def add(self, repository: str, path: str, body: bytes, revision: str = "main") -> str:
        """Its sha256. The page about it is what /blob/ gives."""
        sha256 = hashlib.sha256(body).hexdigest()
        self.store.files[f"/{sha256}"] = body
        self.home.files[f"/{repository}/resolve/{revision}/{path}"] = body
        return sha256


@contextmanager
def served(site: Site, hub: Hub | None = None, certificate: Path | None = None) -> Iterator[str]:
    class Handler(_Handler):
        pass

    Handler.site, Handler.hub = site, hub
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    site.url = f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_address[1]}"
    try:
        yield site.url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    site: Site
    hub: Hub | None

    def do_HEAD(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def _serve(self) -> None:
        said = self.headers
        asked = Asked(self.command, self.path, said.get("Range", ""), said.get("If-Range", ""), said.get("Authorization", ""))
        self.site.asked.append(asked)
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        if path in self.site.gives:
            self._answer(*self.site.gives[path])
        elif self.command == "HEAD" and not self.site.knows_head:
            self._answer(405, {}, b"")
        elif self.hub is not None:
            self._hub(self.hub, path, asked)
        elif path in self.site.files:
            self._file(self.site.files[path], self.site.etags.get(path, ""))
        else:
            self._answer(404, {}, b"no")

    def _hub(self, hub: Hub, path: str, asked: Asked) -> None:
        words = path.strip("/").split("/")
        repository = "/".join(words[2:4] if words[0] == "api" else words[:2])
        entitled = asked.authorization == f"Bearer {hub.token}"
        if asked.authorization and not entitled:
            self._answer(401, {}, b"Invalid credentials in Authorization header")
        elif repository in hub.gated and not entitled and words[0] != "api":
            self._answer(401, {"X-Error-Code": "GatedRepo"}, b"Access to model is restricted")
        elif words[0] == "api":
            self._tree(hub, repository)
        elif path in self.site.files:
            body = self.site.files[path]
            sha256 = hashlib.sha256(body).hexdigest()
            headers = {"X-Linked-Etag": f'"{sha256}"', "X-Linked-Size": str(len(body))} if hub.digests else {}
            self._answer(302, {**headers, "Location": f"{hub.store.url}/{sha256}?signature=s3cret", "X-Repo-Commit": "c0ffee"}, b"")
        elif not any(name.startswith(f"/{repository}/") for name in self.site.files):
            self._answer(401 if not asked.authorization else 404, {"X-Error-Code": "RepoNotFound"}, b"Repository not found")
        else:
            revisions = {name.split("/")[4] for name in self.site.files if name.startswith(f"/{repository}/")}
            code = "EntryNotFound" if words[3] in revisions else "RevisionNotFound"
            self._answer(404, {"X-Error-Code": code}, b"Entry not found")

    def _tree(self, hub: Hub, repository: str) -> None:
        """Two files a page, so that pages are followed."""
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        start = int(query.get("cursor", ["0"])[0])
        prefix = f"/{repository}/resolve/main/"
        names = sorted(name.removeprefix(prefix) for name in hub.home.files if name.startswith(prefix))
        if not names:
            self._answer(401, {"X-Error-Code": "RepoNotFound"}, b"")
            return
        rows = [{"type": "file", "path": name, "size": 1} for name in names[start : start + 2]]
        base = f"{hub.home.url}{urllib.parse.urlsplit(self.path).path}"
        more = {"Link": f'<{base}?recursive=true&cursor={start + 2}>; rel="next"'} if start + 2 < len(names) else {}
        self._answer(200, {"Content-Type": "application/json", **more}, json.dumps([{"type": "directory", "path": "x"}, *rows]).encode())

    def _file(self, body: bytes, etag: str) -> None:
        said = self.headers
        start = int(said["Range"].removeprefix("bytes=").rstrip("-")) if said.get("Range") else 0
        if said.get("If-Range") and said["If-Range"] != etag:
            start = 0
        headers = {"ETag": etag} if etag else {}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        cut = self.site.cuts.pop(0) if self.site.cuts and self.command == "GET" else None
        self._answer(206 if start else 200, headers, body[start:], cut)

    def _answer(self, status: int, headers: dict[str, str], body: bytes, cut: int | None = None) -> None:
        self.send_response(status)
        if self.site.says_length:
            self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body if cut is None else body[:cut])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        pass
