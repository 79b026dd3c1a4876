"""Commands that change machines, or this controller's own records. Each imports its verb when it runs, so that none pays for the others."""

from __future__ import annotations

import pathlib

from wattherd.tasks import flags
from wattherd.tasks.flags import CHANGE, LOOK, Common, command

_LAST_GENERATION = 10**9


@command(CHANGE, help={"serial": "batch sizes, as Ansible's serial: 1,25%,100%"})
def deploy(common: Common, *, serial: str = "100%") -> int:
    """Bring hosts to what the inventory says: packages, build, models, servers."""
    from wattherd.console import reports
    from wattherd.verbs import deploy as deploying
    from wattherd.verbs import running

    options = running.Options(check=common.check, diff=common.diff, tags=common.tags, skip_tags=common.skip_tags, serial=serial)
    return reports.deployed(common.screen, deploying.deploy(common.access(), common.selection, options, common.screen), goes_back=True)


@command((*LOOK, "check", "yes"), help={"replace": "accept changed keys too (after you know why they changed)"})
def trust(common: Common, *, replace: bool = False) -> int:
    """Fetch and record the host keys of hosts, after showing their fingerprints."""
    from wattherd.console import trusting
    from wattherd.verbs import trust as trusts

    if common.check:
        confirm: trusts.Confirm = trusting.show_only(common.screen)
    else:
        confirm = trusting.asker(common.screen, common.confirmed)
    return trusting.report(common.screen, trusts.trust(common.access(), common.selection, confirm, common.screen, replace=replace))


@command((*LOOK, "check", "diff", "yes"), help={"to": "generation number (default: the one before the current)"})
def rollback(common: Common, *, to: str | None = None) -> int:
    """Apply an earlier generation from each node's own records."""
    from wattherd.console import reports
    from wattherd.verbs import generations

    number = flags.number("to", to, _LAST_GENERATION) if to is not None else None
    options = generations.Options(to=number, check=common.check, diff=common.diff)
    return reports.deployed(common.screen, generations.rollback(common.access(), common.selection, options, common.screen))


@command((*LOOK, "check", "yes"))
def remove(common: Common) -> int:
    """Remove everything that Wattherd created on hosts; what was there before stays."""
    from wattherd.console import reports
    from wattherd.verbs import generations

    common.require_hosts()
    if not common.check and not common.confirmed(f"Remove what Wattherd created on {common.hosts}?"):
        return 1
    return reports.deployed(common.screen, generations.remove(common.access(), common.selection, common.screen, check=common.check))


@command(("verbose", "json"), positional=["directory"])
def init(common: Common, directory: str) -> int:
    """Make a project of your own: tasks.py, inventory, roles and templates in DIRECTORY."""
    from wattherd.console import reports
    from wattherd.verbs import starting

    made = starting.init(pathlib.Path(directory).expanduser())
    return reports.made(common.screen, made)


__all__ = ["deploy", "flags", "init", "remove", "rollback", "trust"]
