"""Which models of the catalogue a host holds: those it lists, those it serves, and the draft models of those that draft. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wattherd.inventory import settings


def held_models(wanted: settings.Settings, draft_of: Callable[[str], str]) -> tuple[str, ...]:
    """Names, once, in first-seen order; `draft_of` gives the draft model of an entry, '' where it has none."""
    names = list(wanted.model_names)
    names += [draft_of(name) for name in drafting(wanted) if draft_of(name)]
    return tuple(dict.fromkeys(names))


def drafting(wanted: settings.Settings) -> tuple[str, ...]:
    """The models that are served with speculative decoding."""
    found: list[str] = []
    for server in wanted.serve:
        if server.router is not None:
            found += [one.model for one in server.router.models if one.draft is not None]
        elif server.model and server.draft is not None:
            found.append(server.model)
    return tuple(dict.fromkeys(found))
