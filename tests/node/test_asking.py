"""One completion from this node's own server: with its key, over TLS, and never anything of the key in what is said."""

from __future__ import annotations

import datetime as dt
import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.node import strict
from wattherd import errors
from wattherd.node import asking

KEY = "a-key-of-thirty-two-characters-x"
ANSWER = {
    "choices": [{"message": {"content": "Hello."}}],
    "model": "smol",
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    "system_fingerprint": "b11434-abc",
}
KEY_FILE, CERTIFICATE = "/etc/wattherd/serve/smol.env", "/etc/wattherd/proxy/tls/smol.pem"


class Server(http.server.ThreadingHTTPServer):
    key = KEY
    answer: object = ANSWER
    asked = 0


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        server.asked += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        good = self.path == "/v1/chat/completions" and self.headers["Authorization"] == f"Bearer {server.key}"
        self.send_response(200 if good else 401)
        self.end_headers()
        self.wfile.write(json.dumps(server.answer).encode() if good else b"who are you")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing: the tests look at the answers."""


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def certificate() -> bytes:
    """A certificate for another name than the node's, and its key, as the proxy has them in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "models.example")])
    now = dt.datetime.now(dt.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + dt.timedelta(days=1))
    told = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    form = serialization.PrivateFormat.PKCS8
    return told + key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def order(server: Server, **more: object) -> dict[str, object]:
    return {"host": "127.0.0.1", "port": server.server_port, "prompt": "Hi", "max_tokens": 8, "timeout_s": 10, **more}


def refused(bench: strict.Bench, told: dict[str, object]) -> errors.Problem:
    with pytest.raises(errors.Problem) as caught:
        asking.complete(bench.machine, told)
    assert KEY not in f"{caught.value} {caught.value.hint} {caught.value.context}"
    return caught.value


def test_the_key_is_read_on_the_node_and_the_first_of_several_is_sent(bench: strict.Bench, server: Server) -> None:
    bench.put(KEY_FILE, f'LLAMA_API_KEY="{KEY},another"\n')
    answer = asking.complete(bench.machine, order(server, key_file=KEY_FILE))
    assert (answer["text"], answer["model"], answer["prompt_tokens"], answer["completion_tokens"]) == ("Hello.", "smol", 3, 2)


def test_without_the_key_the_servers_refusal_is_told(bench: strict.Bench, server: Server) -> None:
    assert "401" in refused(bench, order(server)).message


@pytest.mark.parametrize(
    "text", [None, "", "LLAMA_API_KEY=\n", "# nothing\n", f'LLAMA_API_KEY="{KEY}\nHost: x"\n', f'LLAMA_API_KEY="{KEY}é"\n']
)
def test_a_key_file_without_a_key_is_said(bench: strict.Bench, server: Server, text: str | None) -> None:
    if text is not None:
        bench.put(KEY_FILE, text)
    assert KEY_FILE in refused(bench, order(server, key_file=KEY_FILE)).message


@pytest.fixture
def tls(server: Server, tmp_path: Path) -> bytes:
    pem = certificate()
    (tmp_path / "server.pem").write_bytes(pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return pem


def test_tls_with_the_nodes_own_certificate_though_it_names_another_host(bench: strict.Bench, server: Server, tls: bytes) -> None:
    bench.put(KEY_FILE, f'LLAMA_API_KEY="{KEY}"\n')
    bench.put(CERTIFICATE, tls)
    assert asking.complete(bench.machine, order(server, key_file=KEY_FILE, certificate=CERTIFICATE))["text"] == "Hello."


def test_another_certificate_gets_no_key(bench: strict.Bench, server: Server, tls: bytes) -> None:
    assert tls
    bench.put(KEY_FILE, f'LLAMA_API_KEY="{KEY}"\n')
    bench.put(CERTIFICATE, certificate())
    problem = refused(bench, order(server, key_file=KEY_FILE, certificate=CERTIFICATE))
    assert (problem.code, "another certificate" in problem.message) == ("server-unreachable", True)
    assert server.asked == 0


@pytest.mark.parametrize("text", ["", "no certificate", "-----BEGIN CERTIFICATE-----"])
def test_a_certificate_that_is_not_there_is_said(bench: strict.Bench, server: Server, text: str) -> None:
    bench.put(CERTIFICATE, text)
    assert CERTIFICATE in refused(bench, order(server, certificate=CERTIFICATE)).message


def test_nobody_there(bench: strict.Bench, server: Server) -> None:
    assert refused(bench, {**order(server), "port": 1}).code == "server-unreachable"


@pytest.mark.parametrize("answer", [{}, {"choices": []}, [], "text"])
def test_an_answer_that_is_none(bench: strict.Bench, server: Server, answer: object) -> None:
    server.answer = answer
    bench.put(KEY_FILE, f'LLAMA_API_KEY="{KEY}"\n')
    assert refused(bench, order(server, key_file=KEY_FILE)).code in {"server-answer", "manifest-invalid"}
