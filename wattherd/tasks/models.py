"""Commands about models: what the catalogue holds, and what the nodes hold for nobody."""

from __future__ import annotations

from wattherd.tasks.flags import LOOK, Common, command


@command(
    ("inventory", "extra_vars", "verbose", "json"),
    help={"model": "only this entry", "fetch": "bring what is not in this controller's cache"},
)
def models(common: Common, *, model: str | None = None, fetch: bool = False) -> int:
    """List the catalogue with what the headers of the files say."""
    from wattherd.console import models as shown
    from wattherd.verbs import models as catalogue
    from wattherd.verbs import secrets

    here = common.project
    loaded = here.load(common.selection)
    rows = catalogue.show(
        here,
        loaded,
        [model] if model else [],
        secrets.book(here.root),
        lambda what, done, total: common.screen.moved("", what, done, total),
        fetches=fetch,
    )
    return shown.catalogue(common.screen, rows)


@command((*LOOK, "check", "yes"), help={"delete": "remove what is listed"})
def models_gc(common: Common, *, delete: bool = False) -> int:
    """List what on the nodes no current or previous generation refers to; remove it with --delete."""
    from wattherd.console import models as shown
    from wattherd.verbs import garbage

    removes = delete and not common.check
    if removes:
        common.require_hosts()
    if removes and not common.confirmed(f"Remove what nothing refers to on {common.hosts}?"):
        return 1
    return shown.collected(common.screen, garbage.collect(common.access(), common.selection, common.screen, delete=removes), delete=removes)
