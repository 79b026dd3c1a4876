"""A package index on loopback: the real protocol (PEP 503 pages or PEP 691 JSON) over files in a folder, with faults on demand."""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Faults:
    """What the next answers do wrong. Each entry of `cuts` ends one file's answer after that many bytes."""

    cuts: list[int] = field(default_factory=list)
    page: bytes = b""
    status: int = 0
    ignores_ranges: bool = False
    index_page: bytes = b""


@dataclass(frozen=True)
class Asked:
    path: str
    range: str
    authorization: str


class PackageIndex:
    """Files are added by `add`; `asked` lists every request that came."""

    def __init__(self, folder: Path, *, form: str = "json") -> None:
        self.folder = folder
        self.form = form
        self.faults = Faults()
        self.asked: list[Asked] = []
        self.files_url = ""
        self._projects: dict[str, dict[str, str]] = {}
        self._sizes: dict[str, int] = {}
        outer = self

        class Handler(_Handler):
            index = outer

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def netloc(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.netloc}/simple"

    def add(self, project: str, file_name: str, body: bytes, sha256: str | None = None) -> str:
        """`sha256` '' is left out of the index; None is the true one."""
        place = self.folder / file_name.rpartition("/")[2]
        place.write_bytes(body)
        self._sizes[file_name] = len(body)
        said = hashlib.sha256(body).hexdigest() if sha256 is None else sha256
        self._projects.setdefault(project, {})[file_name] = said
        return said

    def files_asked(self) -> list[Asked]:
        return [one for one in self.asked if one.path.startswith("/files/")]

    def project(self, name: str) -> bytes | None:
        files = self._projects.get(name)
        if files is None:
            return None
        base = self.files_url or f"http://{self.netloc}"
        if self.form == "html":
            links = (f'<a href="{base}/files/{n.rpartition("/")[2]}{f"#sha256={s}" if s else ""}">{n}</a><br>' for n, s in files.items())
            return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()
        rows = [
            {
                "filename": name,
                "url": f"{base}/files/{name.rpartition('/')[2]}",
                "hashes": {"sha256": said} if said else {},
                "size": self._sizes[name],
            }
            for name, said in files.items()
        ]
        return json.dumps({"meta": {"api-version": "1.1"}, "name": name, "versions": [], "files": rows}).encode()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    index: PackageIndex

    def do_GET(self) -> None:
        index = self.index
        index.asked.append(Asked(self.path, self.headers.get("Range", ""), self.headers.get("Authorization", "")))
        if index.faults.status and self.path.startswith("/files/"):
            self._answer(index.faults.status, "text/plain", b"no")
        elif self.path.startswith("/simple/"):
            body = index.faults.index_page or index.project(self.path.removeprefix("/simple/").strip("/"))
            kind = "text/html" if index.form == "html" or index.faults.index_page else "application/vnd.pypi.simple.v1+json"
            self._answer(404 if body is None else 200, kind, body or b"")
        elif index.faults.page:
            self._answer(200, "text/html", index.faults.page)
        else:
            self._file((index.folder / self.path.removeprefix("/files/")).read_bytes())

    def _file(self, body: bytes) -> None:
        faults = self.index.faults
        asked = self.headers.get("Range", "")
        start = 0 if faults.ignores_ranges or not asked else int(asked.removeprefix("bytes=").rstrip("-"))
        if start and start >= len(body):
            self._answer(416, "text/plain", b"", {"Content-Range": f"bytes */{len(body)}"})
            return
        headers = {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"} if start else {}
        cut = faults.cuts.pop(0) if faults.cuts else None
        self._answer(206 if start else 200, "application/octet-stream", body[start:], headers, cut)

    def _answer(self, status: int, kind: str, body: bytes, headers: dict[str, str] | None = None, cut: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body if cut is None else body[:cut])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        pass
