"""Which holders of a card are llama-servers that have put their model down: asked on the one page that neither wakes nor keeps one awake.

Such a server still holds its context, and so most of the watts (facts/power.md, c). What does not say is unknown.
"""

from __future__ import annotations

import contextlib
from typing import Dict, Mapping, Optional, Sequence

from wattherd import errors, records
from wattherd import machine as machines
from wattherd.node import usage
from wattherd.node.findings import environment
from wattherd.policy import idle
from wattherd.power import reading
from wattherd.resources import readiness
from wattherd.wire import fields

_PROGRAM = "llama-server"
_PAGE = "/props"
_NEVER = {"", "-1"}
_ANY = {"0.0.0.0": "127.0.0.1", "localhost": "127.0.0.1", "::": "::1"}  # noqa: S104 - what a server was told to listen on; here it is asked


class Sleepers:
    """One look's servers, each asked once: a model over four cards is one process on all four.

    `key_files` names, by unit, the node's file with the API key of an instance; without its key a server tells nothing.
    """

    def __init__(self, machine: machines.Machine, key_files: Mapping[str, str]) -> None:
        self._machine = machine
        self._key_files = key_files
        self._known: Dict[int, Optional[bool]] = {}

    def told(self, card: reading.Card) -> reading.Card:
        """The same card, with `asleep` of each of its holders."""
        return records.replace(card, holders=tuple(records.replace(one, asleep=self._asleep(one)) for one in card.holders))

    def _asleep(self, holder: reading.Holder) -> Optional[bool]:
        if holder.name != _PROGRAM:
            return None
        if holder.pid not in self._known:
            self._known[holder.pid] = self._ask(holder)
        return self._known[holder.pid]

    def _ask(self, holder: reading.Holder) -> Optional[bool]:
        words = [word.decode("utf-8", "replace") for word in self._read(f"/proc/{holder.pid}/cmdline").split(b"\0")]
        if len(words) < 2:
            return None
        if option(words, "--sleep-idle-seconds") in _NEVER:
            return False
        url = address(words, environment.of_process(self._read(f"/proc/{holder.pid}/environ")))
        if not url or idle.wakes(_PAGE):
            return None
        headers = usage.authorization(self._machine, self._key_files.get(holder.unit, ""))
        status, body = readiness.fetch(url + _PAGE, root=self._machine.root, headers=headers)
        with contextlib.suppress(ValueError, errors.Problem):
            return fields.flag(fields.document(fields.parsed(body), _PAGE), "is_sleeping") if status == readiness.READY else None
        return None

    def _read(self, path: str) -> bytes:
        """Nothing for a process that has ended."""
        with contextlib.suppress(OSError):
            return self._machine.read(path) or b""
        return b""


def address(words: Sequence[str], variables: Mapping[str, str]) -> str:
    """Where this node asks a llama-server, as readiness takes it; empty for one that speaks TLS itself."""
    if option(words, "--ssl-cert-file") or variables.get("LLAMA_ARG_SSL_CERT_FILE"):
        return ""
    host = option(words, "--host") or variables.get("LLAMA_ARG_HOST", "") or "127.0.0.1"
    port = option(words, "--port") or variables.get("LLAMA_ARG_PORT", "") or "8080"
    if host.endswith(".sock"):
        return f"unix:{host}:"
    host = _ANY.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def option(words: Sequence[str], name: str) -> str:
    """The value of an option, as one word or two; the last one counts, as llama-server reads it."""
    found = ""
    for at, word in enumerate(words):
        head, mark, tail = word.partition("=")
        if head == name:
            found = tail if mark else (words[at + 1] if at + 1 < len(words) else "")
    return found
