"""Secrets in a deploy: read before any host is touched, and sent apart from the manifest to the nodes that lack them."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Sequence

from wattherd import errors, inventory
from wattherd.serving import secrets as serving_secrets
from wattherd.verbs import running
from wattherd.wire import fields


def book(root: pathlib.Path) -> serving_secrets.Book:
    """Empty: what reads a secret is loaded when a host names the first one."""

    def read(place: inventory.settings.Secret) -> serving_secrets.Hidden:
        from wattherd.sources import secrets

        return secrets.read(place, root)

    return serving_secrets.Book(read)


def read_all(held: serving_secrets.Book, hosts: Sequence[inventory.Host]) -> None:
    """Everything secret that the selected hosts serve with. One that cannot be had, or cannot be a key, ends the run here."""
    for host in hosts:
        for server in host.settings.serve if "server" in host.settings.roles else ():
            if server.api_key is not None:
                _named(host, server, "api_key", functools.partial(held.api_key, server.api_key))
            if server.tls is not None:
                _named(host, server, "tls.key", functools.partial(held.private, server.tls.key))


def _named(host: inventory.Host, server: inventory.settings.Serve, key: str, read: Callable[[], object]) -> None:
    """The same place may serve many: whose it is belongs to the words."""
    try:
        read()
    except errors.Problem as problem:
        words = f"{host.name}: {key} of the server {server.name}: {problem.message}"
        raise errors.Problem(problem.code, words, hint=problem.hint, **problem.context) from None


def send(run: running.Run, name: str, answer: fields.Document, held: serving_secrets.Book) -> None:
    """What the node said it lacks (the end of `needs`), one verb each: an id and raw bytes, which no event repeats."""
    for resource_id, digest in fields.document(answer.get("secrets", {}), "secrets").items():
        content = held.content(str(digest))
        if content is None:
            raise errors.Problem(
                "secret-missing", f"the node asks for the content of {resource_id[:200]}, which this controller did not make"
            )
        run.call(name, {"verb": "secret", "id": resource_id}, content.reveal())
