"""One real answer from a server on this node, at the address that clients use: through the front proxy where there is one.

The API key is read here, from the server's own environment file, and never comes from a controller. Knows HTTP and the port, not how the
server was made.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
from typing import Any, Dict, Mapping

from wattherd import errors
from wattherd import machine as machines
from wattherd.node import questions
from wattherd.resources import place, secret
from wattherd.wire import fields

_ANSWER_LIMIT_BYTES = 4 * 1024 * 1024
_CERTIFICATE = r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----"


def complete(machine: machines.Machine, order: fields.Document) -> Mapping[str, Any]:
    """Ask `{"host", "port", "kind", "prompt", "max_tokens", "timeout_s"}`; gives text, model, token counts and seconds.

    `key_file` is the file of this node that holds the API key, `certificate` the one with the certificate that the port must show.
    """
    begun_s = machine.monotonic_s()
    question = questions.of_kind(fields.text(order, "kind", "chat"), order)
    headers = {"Content-Type": "application/json", **_key(machine, fields.text(order, "key_file", ""))}
    answer = _post(_connection(machine, order), question, headers)
    usage = fields.document(answer.get("usage", {}), "usage")
    return {
        "text": question.read(answer),
        "model": fields.text(answer, "model", ""),
        "prompt_tokens": fields.integer(usage, "prompt_tokens", 0),
        "completion_tokens": fields.integer(usage, "completion_tokens", 0),
        "build": fields.text(answer, "system_fingerprint", ""),
        "seconds": round(machine.monotonic_s() - begun_s, 3),
    }


def _connection(machine: machines.Machine, order: fields.Document) -> http.client.HTTPConnection:
    """Bound to the address it asks: nothing leaves the node."""
    host, port, limit_s = fields.text(order, "host", "127.0.0.1"), fields.integer(order, "port"), fields.number(order, "timeout_s", 120.0)
    path = fields.text(order, "certificate", "")
    if not path:
        return http.client.HTTPConnection(host, port, timeout=limit_s, source_address=(host, 0))
    found = re.search(_CERTIFICATE, machine.text(place.plain_path("ask", path)), re.DOTALL)
    if not found:
        raise errors.Problem("server-unreachable", f"{path} holds no certificate", hint="invoke deploy puts it there")
    return _Pinned(host, port, limit_s, ssl.PEM_cert_to_DER_cert(found.group(0)))


class _Pinned(http.client.HTTPSConnection):
    """TLS with exactly the certificate that this node was given: it names the node's outside, never 127.0.0.1."""

    def __init__(self, host: str, port: int, limit_s: float, certificate: bytes) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # compared byte for byte below, before a word is said
        super().__init__(host, port, timeout=limit_s, source_address=(host, 0), context=context)
        self._certificate = certificate

    def connect(self) -> None:
        super().connect()
        shown = self.sock.getpeercert(binary_form=True) if isinstance(self.sock, ssl.SSLSocket) else None
        if shown != self._certificate:
            self.close()
            raise ssl.SSLError("another certificate is shown there")


def _key(machine: machines.Machine, path: str) -> Dict[str, str]:
    if not path:
        return {}
    key = secret.api_key(machine.text(place.plain_path("ask", path)))
    if not key:
        raise errors.Problem("server-unreachable", f"{path} holds no {secret.API_KEY}", hint="invoke deploy puts it there")
    return {"Authorization": f"Bearer {key}"}


def _post(connection: http.client.HTTPConnection, question: questions.Question, headers: Mapping[str, str]) -> fields.Document:
    try:
        connection.request("POST", question.path, json.dumps(dict(question.body)), dict(headers))
        response = connection.getresponse()
        text = response.read(_ANSWER_LIMIT_BYTES)
    except (OSError, http.client.HTTPException) as error:
        words = "no end of its answer in time" if isinstance(error, socket.timeout) else error
        raise errors.Problem(
            "server-unreachable",
            f"nothing answers on {connection.host}:{connection.port}: {words}",
            hint="invoke deploy brings it up; systemctl status 'llama@*' 'wattherd-proxy' shows it",
        ) from error
    finally:
        connection.close()
    if response.status != 200:
        raise errors.Problem("server-answer", f"the server answered {response.status}: {text[:300].decode('utf-8', 'replace')}")
    try:
        return fields.document(fields.parsed(text), "answer")
    except ValueError as error:
        raise errors.Problem("server-answer", "the server's answer is not JSON") from error
