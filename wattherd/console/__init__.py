"""Every printed word: events and reports to a terminal, or one JSON document. Decides nothing about hosts."""

from wattherd.console.screen import Screen

__all__ = ["Screen"]
