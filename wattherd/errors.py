"""The one error of Wattherd and the list of its codes.

A code is a contract: tests, JSON output and the docs name it. The message is for people and may change.
This module knows nothing of hosts, files or networks; whoever raises a Problem supplies the context.

Codes by room (docs/problems.md says what each means to an operator):

  usage        unknown-host unknown-key unknown-model unknown-role unknown-tag bad-pattern bad-flag hosts-required
               nothing-selected not-confirmed tool-missing
  inventory    inventory-missing inventory-syntax inventory-invalid inventory-conflict bad-variable template-missing template-variable
               template-syntax role-invalid
  sources      source-unknown source-missing source-unreachable source-changed source-not-archive digest-mismatch gguf-html
               gguf-lfs-pointer gguf-magic gguf-version gguf-endian gguf-corrupt gguf-truncated gguf-split gguf-not-servable
               model-mismatch source-forbidden source-not-fetched memory-short build-too-old
  secrets      secret-missing secret-empty secret-invalid secret-locked
  link         ssh-config unreachable connect-timeout auth-failed host-key-unknown host-key-changed host-key-revoked jump-failed
               login-noise python-missing python-old sudo-missing sudo-password-needed sudo-password-wrong host-silent stream-cut
               program-rejected bulk-failed
  node         node-busy protocol-mismatch manifest-invalid permission disk-full command-failed resource-failed internal
               generation-missing server-unreachable server-answer reboot-timeout
  resources    file-conflict folder-missing user-unknown group-unknown user-busy package-unavailable package-failed unit-invalid
               unit-failed unit-not-ready drain-timeout proxy-config port-in-use address-missing artifact-missing artifact-corrupt
               release-does-not-run build-failed build-tool-missing
               flag-unknown flag-value flag-refused cuda-unfit mode-unknown mode-failed
  cards        driver-silent card-unknown card-lost power-range power-failed power-permission over-budget power-put-back
               card-busy tune-load tune-unfit
  fleet        release-not-built batch-stopped
  lab          lab-needs-root lab-missing lab-failed lab-node-failed
"""

from __future__ import annotations

from typing import Any, Dict, Mapping


class Problem(Exception):  # noqa: N818 - the field's word for "an error that a person is told about"
    """Something that went wrong and that a person can act on: a stable code, a sentence, and what to do next.

    Used as an exception where this run (or this host) cannot go on, and as a value in an Outcome.
    """

    def __init__(self, code: str, message: str, *, hint: str = "", **context: object) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.context: Dict[str, object] = {key: value for key, value in context.items() if value is not None}

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"

    def to_dict(self) -> Dict[str, object]:
        document: Dict[str, object] = {"code": self.code, "message": self.message, "hint": self.hint}
        if self.context:
            document["context"] = {
                key: value if isinstance(value, (int, float, bool)) else str(value) for key, value in self.context.items()
            }
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Problem:
        """Read a problem that a node sent. Its words are data: control characters are replaced, lengths are bounded."""
        context = document.get("context")
        pairs = context.items() if isinstance(context, dict) else ()
        known = ("code", "message", "hint")
        return cls(
            _plain(document.get("code"), 60) or "internal",
            _plain(document.get("message"), 4000) or "the node named no reason",
            hint=_plain(document.get("hint"), 1000),
            **{
                _plain(key, 60): value if isinstance(value, (int, float, bool)) else _plain(value, 1000)
                for key, value in pairs
                if key not in known
            },
        )


def _plain(value: object, limit: int) -> str:
    text = value if isinstance(value, str) else ""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text[:limit])
