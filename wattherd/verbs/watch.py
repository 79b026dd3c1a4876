"""How a verb speaks while it works. The console shows it; a test records it; doing nothing is fine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from wattherd import fleet


class Watch(Protocol):
    def phase(self, words: str, hosts: Sequence[str]) -> None:
        """A new step begins for these hosts."""

    def event(self, host: str, message: Mapping[str, Any]) -> None:
        """A node's event (docs/protocol.md)."""

    def moved(self, host: str, what: str, done_bytes: int, total_bytes: int) -> None:
        """Bulk bytes on their way to or from `host`; the empty host is this controller."""

    def tell(self, words: str) -> None:
        """Something worth knowing, with nothing to do about it."""

    def warn(self, words: str) -> None:
        """Something that the operator should know and that stops nothing."""

    def done(self, host: str, outcome: fleet.Outcome) -> None:
        """This host is through."""


class Silent:
    """Watches nothing."""

    def phase(self, words: str, hosts: Sequence[str]) -> None:
        pass

    def event(self, host: str, message: Mapping[str, Any]) -> None:
        pass

    def moved(self, host: str, what: str, done_bytes: int, total_bytes: int) -> None:
        pass

    def tell(self, words: str) -> None:
        pass

    def warn(self, words: str) -> None:
        pass

    def done(self, host: str, outcome: fleet.Outcome) -> None:
        pass
