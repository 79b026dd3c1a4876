"""One real completion from a server on this node, over loopback. Knows HTTP and the unit's port, not how the server was made."""

from __future__ import annotations

import http.client
import json
from typing import Any, Mapping

from wattherd import errors
from wattherd import machine as machines
from wattherd.wire import fields

_ANSWER_LIMIT_BYTES = 4 * 1024 * 1024


def complete(machine: machines.Machine, order: fields.Document) -> Mapping[str, Any]:
    """Ask `{"host", "port", "prompt", "max_tokens", "timeout_s"}`; gives text, model, token counts and seconds as the server told them."""
    begun_s = machine.monotonic_s()
    body = {
        "messages": [{"role": "user", "content": fields.text(order, "prompt")}],
        "max_tokens": fields.integer(order, "max_tokens", 128),
        "temperature": fields.number(order, "temperature", 0.0),
    }
    answer = _post(fields.text(order, "host", "127.0.0.1"), fields.integer(order, "port"), body, fields.number(order, "timeout_s", 120.0))
    choices = fields.objects(answer, "choices")
    if not choices:
        raise errors.Problem("server-answer", "the server answered without a choice", answer=json.dumps(answer)[:300])
    usage = fields.document(answer.get("usage", {}), "usage")
    return {
        "text": fields.text(fields.document(choices[0].get("message"), "message"), "content", ""),
        "model": fields.text(answer, "model", ""),
        "prompt_tokens": fields.integer(usage, "prompt_tokens", 0),
        "completion_tokens": fields.integer(usage, "completion_tokens", 0),
        "build": fields.text(answer, "system_fingerprint", ""),
        "seconds": round(machine.monotonic_s() - begun_s, 3),
    }


def _post(host: str, port: int, body: Mapping[str, Any], timeout_s: float) -> fields.Document:
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s, source_address=(host, 0))
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read(_ANSWER_LIMIT_BYTES)
    except OSError as error:
        raise errors.Problem(
            "server-unreachable",
            f"nothing answers on {host}:{port}: {error}",
            hint="invoke deploy brings it up; systemctl status 'llama@*' shows it",
        ) from error
    finally:
        connection.close()
    if response.status != 200:
        raise errors.Problem("server-answer", f"the server answered {response.status}: {text[:300].decode('utf-8', 'replace')}")
    try:
        return fields.document(json.loads(text), "answer")
    except ValueError as error:
        raise errors.Problem("server-answer", "the server's answer is not JSON") from error
