"""Commands that only look."""

from __future__ import annotations

from wattherd.console import inventories, reports
from wattherd.tasks.flags import LOOK, Common, command
from wattherd.verbs import ask as asking
from wattherd.verbs import generations, survey


@command(LOOK)
def ping(common: Common) -> int:
    """Log in to hosts and start the node program: who answers, as what, how fast."""
    names = common.listed(writes=False)
    if names is not None:
        return reports.host_list(common.screen, names)
    return reports.pinged(common.screen, survey.survey(common.access(), common.selection, common.screen))


@command(LOOK)
def facts(common: Common) -> int:
    """Show what hosts say of themselves."""
    return reports.told(common.screen, survey.survey(common.access(), common.selection, common.screen))


@command(
    LOOK,
    help={"server": "which served instance, where a host has several", "max_tokens": "longest answer", "timeout": "seconds to wait"},
    positional=["prompt"],
)
def ask(common: Common, prompt: str, *, server: str | None = None, max_tokens: int = 128, timeout: int = 120) -> int:
    """Get one real completion from every host, through the SSH connection."""
    question = asking.Question(prompt=prompt, server=server, max_tokens=max_tokens, timeout_s=float(timeout))
    return reports.answered(common.screen, asking.ask(common.access(), common.selection, question, common.screen))


@command(LOOK)
def history(common: Common) -> int:
    """List the generations that each node keeps."""
    return reports.histories(common.screen, generations.history(common.access(), common.selection, common.screen))


@command(LOOK, help={"explain": "one variable: every candidate, the winner, and why"})
def inventory_show(common: Common, *, explain: str | None = None) -> int:
    """Show hosts, groups and variables as Wattherd reads them."""
    return inventories.show(common.screen, common.project, common.selection, explain)
