"""The quick question whether a server is ready, asked of real sockets."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.node.resources import loopback
from wattherd import errors
from wattherd.resources import readiness


@pytest.mark.parametrize(("status", "words"), [(200, "ready"), (503, "loading"), (404, "HTTP status 404"), (401, "HTTP status 401")])
def test_statuses(status: int, words: str) -> None:
    with loopback.serving(status) as server:
        assert readiness.ask(server.url) == (status, words)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    status, words = readiness.ask(f"http://127.0.0.1:{port}/")
    assert status == 0
    assert "refused" in words


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HT"])
def test_what_is_not_http(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def reply() -> None:
            link, _ = server.accept()
            with link:
                link.recv(1000)
                link.sendall(answer)

        thread = threading.Thread(target=reply)
        thread.start()
        status, words = readiness.ask(f"http://localhost:{server.getsockname()[1]}")
        thread.join()
    assert status == 0
    assert words == "an answer that is not HTTP"


def test_one_that_never_answers_costs_its_limit_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "_LIMIT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert readiness.ask(f"http://127.0.0.1:{server.getsockname()[1]}/") == (0, "no answer yet")


def test_one_that_answers_a_byte_at_a_time_costs_its_limit_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "_WHOLE_LIMIT_S", 0.1)
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            link, _ = server.accept()
            with link, contextlib.suppress(OSError):
                while not ended.wait(0.01):
                    link.sendall(b"x")

        thread = threading.Thread(target=drip)
        thread.start()
        assert readiness.fetch(f"http://127.0.0.1:{server.getsockname()[1]}/metrics") == (0, "")
        ended.set()
        thread.join()


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/health", "http://localhost:1", "http://[::1]:8080/"])
def test_addresses_of_this_machine(url: str) -> None:
    readiness.check_url("unit:x", url)
    assert readiness.ask("http://192.0.2.1:80/")[0] == 0, "an address that is not this machine's own is never asked"


@pytest.mark.parametrize(
    "url",
    ["https://127.0.0.1:1/", "http://example.org:80/", "http://127.0.0.1/", "http://127.0.0.1:80/\r\nX: y", "http://evil@127.0.0.1:80/"],
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(errors.Problem) as caught:
        readiness.check_url("unit:x", url)
    assert caught.value.code == "manifest-invalid"


@pytest.fixture
def root(tmp_path: pathlib.Path) -> Iterator[str]:
    """A node's root, deeper than a socket's address is long, where one request over a unix socket is answered."""
    folder = tmp_path / ("a" * 60) / ("b" * 60) / "run"
    folder.mkdir(parents=True)
    handle = os.open(folder, os.O_PATH)
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"/proc/self/fd/{handle}/llama.sock")
    server.listen()

    def reply() -> None:
        link, _ = server.accept()
        with link:
            asked = link.recv(1000)
            link.sendall(b"HTTP/1.1 200 OK\r\n\r\nwords" if asked.startswith(b"GET /health ") else b"HTTP/1.1 404 No\r\n\r\n")

    thread = threading.Thread(target=reply, daemon=True)
    thread.start()
    yield str(folder.parent)
    server.close()
    os.close(handle)


def test_over_a_unix_socket(root: str) -> None:
    readiness.check_url("unit:x", "unix:/run/llama.sock:/health")
    assert readiness.ask("unix:/run/llama.sock:/health", root=root) == (200, "ready")


def test_what_came_with_it(root: str) -> None:
    assert readiness.fetch("unix:/run/llama.sock:/health", root=root, headers="X: y\r\n") == (200, "words")


def test_a_socket_that_is_not_there(tmp_path: pathlib.Path) -> None:
    status, words = readiness.ask("unix:/run/no/llama.sock:/health", root=str(tmp_path))
    assert (status, "No such file" in words) == (0, True)
    assert readiness.fetch("unix:/run/no/llama.sock:/health", root=str(tmp_path)) == (0, "")


@pytest.mark.parametrize(
    "url", ["unix:run/x.sock:/health", "unix:/run/x.sock", "unix:/run/a b.sock:/", "unix:/run/../etc/x.sock:/", "unix:/tmp/x.sock:/health"]
)
def test_sockets_that_are_none(url: str) -> None:
    with pytest.raises(errors.Problem):
        readiness.check_url("unit:x", url)
    assert readiness.ask(url)[0] == 0
