"""Commands that only look. Each imports its verb when it runs, so that none pays for the others."""

from __future__ import annotations

from wattherd import errors
from wattherd.tasks.flags import LOOK, Common, command, number


@command(LOOK)
def ping(common: Common) -> int:
    """Log in to hosts and start the node program: who answers, as what, how fast."""
    from wattherd.console import reports
    from wattherd.verbs import survey

    return reports.pinged(common.screen, survey.survey(common.access(), common.selection, common.screen))


@command(LOOK)
def facts(common: Common) -> int:
    """Show what hosts say of themselves."""
    from wattherd.console import reports
    from wattherd.verbs import survey

    return reports.told(common.screen, survey.survey(common.access(), common.selection, common.screen))


@command(
    LOOK,
    help={"server": "which served instance, where a host has several", "max_tokens": "longest answer", "timeout": "seconds to wait"},
    positional=["prompt"],
)
def ask(common: Common, prompt: str, *, server: str | None = None, max_tokens: str = "128", timeout: str = "120") -> int:
    """Get one real completion from every host, through the SSH connection."""
    from wattherd.console import reports
    from wattherd.verbs import ask as asking

    if not prompt.strip():
        raise errors.Problem("bad-flag", "there is nothing to ask", hint='invoke ask --hosts NAME "Say hello"')
    tokens, timeout_s = number("max-tokens", max_tokens, 1_000_000), float(number("timeout", timeout, 86_400))
    question = asking.Question(prompt=prompt, server=server, max_tokens=tokens, timeout_s=timeout_s)
    return reports.answered(common.screen, asking.ask(common.access(), common.selection, question, common.screen))


@command(LOOK)
def doctor(common: Common) -> int:
    """Look for what is wrong on hosts: units, builds, devices, driver, kernel log. Changes nothing."""
    from wattherd.console import findings
    from wattherd.verbs import doctor as examining

    return findings.diagnosed(common.screen, examining.doctor(common.access(), common.selection, common.screen))


@command(LOOK)
def history(common: Common) -> int:
    """List the generations that each node keeps."""
    from wattherd.console import reports
    from wattherd.verbs import generations

    return reports.histories(common.screen, generations.history(common.access(), common.selection, common.screen))


@command(LOOK, help={"explain": "one variable: every candidate, the winner, and why"})
def inventory_show(common: Common, *, explain: str | None = None) -> int:
    """Show hosts, groups and variables as Wattherd reads them."""
    from wattherd.console import inventories

    return inventories.show(common.screen, common.project, common.selection, explain)


@command(
    LOOK,
    help={
        "format": "env, litellm or openwebui; without it a table",
        "measure": "ask the hosts how full a slot has ever been (wakes no model)",
    },
)
def endpoints(common: Common, *, format: str | None = None, measure: bool = False) -> int:  # noqa: A002 - the flag's name is the contract
    """Print what clients and gateways need: addresses, models, token budgets. Keys are named, never shown."""
    from wattherd.console import endpoints as shown
    from wattherd.verbs import endpoints as verb
    from wattherd.verbs import watch

    if format is not None and format not in shown.FORMATS:
        raise errors.Problem("bad-flag", f"--format {format} is none of {', '.join(shown.FORMATS)}")
    # A text for a file must stay alone on stdout.
    seen = common.screen if format is None else watch.Silent()
    found = verb.endpoints(common.project, common.selection, seen)
    if format is not None:
        return shown.text(common.screen, found, format)
    uses, lost = verb.measured(common.access(), common.selection, found, seen) if measure else ({}, {})
    return shown.table(common.screen, found, uses, lost)
