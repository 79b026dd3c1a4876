"""Commands about what cards and boards may draw. Each imports its verb when it runs, so that none pays for the others."""

from __future__ import annotations

from wattherd import errors
from wattherd.tasks.flags import CHANGE, LOOK, Common, command, decimal, number


@command(
    CHANGE,
    help={
        "restore": "back to what was there before Wattherd's first change, and hold nothing any more",
        "reboot": "reboot hosts whose power mode waits for one: one at a time, drained, and waited for",
    },
)
def power_apply(common: Common, *, restore: bool = False, reboot: bool = False) -> int:
    """Set power limits, clocks and power modes as the inventory says, prove them, and hold them."""
    from wattherd.console import reports
    from wattherd.verbs import power_apply as applying
    from wattherd.verbs import running

    options = running.Options(check=common.check, diff=common.diff, tags=common.tags, skip_tags=common.skip_tags)
    work = applying.restore if restore else applying.apply
    return reports.deployed(common.screen, work(common.access(), common.selection, options, common.screen, reboots=reboot))


@command(
    LOOK,
    help={
        "watch": "look again and again until Ctrl-C, every so many seconds (--watch alone: 5)",
        "brief": "tell what is as it should be in one line",
    },
    optional=["watch"],
)
def power_status(common: Common, *, watch: str | bool | None = None, brief: bool = False) -> int:
    """Show what cards and boards were told to be, what they are and draw, and what idling costs. Changes nothing."""
    from wattherd.console import power

    if watch is None:
        from wattherd.verbs import power_status as looking

        return power.shown(common.screen, looking.power_status(common.access(), common.selection, common.screen), brief=brief)
    from wattherd.verbs import power_watch

    every_s = float(number("watch", 5 if watch is True else watch, 3600))
    with power_watch.Following(common.access(), common.selection, common.screen, every_s=every_s) as following:
        return power.watched(common.screen, following, every_s=every_s, brief=brief)


@command(
    (*LOOK, "check"),
    help={
        "write": "put what was found into the host's own variables (host_vars), as power_tuned",
        "card": "UUID of the card, or its beginning (default: one that nobody holds)",
        "server": "which served instance's model, where a host has several",
        "floor": "per cent of the best tok/s that must be kept",
        "weight": "what must keep it and whose energy counts: both, prefill or decode",
        "steps": "how many limits to try",
        "seconds_per_step": "how long one measurement takes, for prefill and for decode",
        "highest": "watts to begin at (default: the card's own default limit)",
        "hours_per_day": "hours a day under load, for the yearly saving (default: what the server has seen, else 24)",
    },
)
def power_tune(
    common: Common,
    *,
    write: bool = False,
    card: str | None = None,
    server: str | None = None,
    floor: str = "95",
    weight: str = "both",
    steps: str = "8",
    seconds_per_step: str = "10",
    highest: str | None = None,
    hours_per_day: str | None = None,
) -> int:
    """Find the power limit with the least energy per token that keeps the speed, on one idle card per host, under its real model."""
    from wattherd.console import tuning
    from wattherd.policy import knee
    from wattherd.verbs import power_tune as tunes

    if weight not in knee.WEIGHTS:
        raise errors.Problem("bad-flag", f"--weight {weight} is none of {', '.join(knee.WEIGHTS)}")
    if number("steps", steps, 40) < 2:
        raise errors.Problem("bad-flag", "--steps 1: a single limit compares with nothing", hint="6 or more show where the knee is")
    hours = decimal("hours-per-day", hours_per_day, 24) if hours_per_day is not None else None
    options = tunes.Options(
        card=card or "",
        server=server,
        floor_percent=float(decimal("floor", floor, 100)),
        weight=weight,
        steps=number("steps", steps, 40),
        seconds_per_step=number("seconds-per-step", seconds_per_step, 600),
        most_w=number("highest", highest, 10_000) if highest is not None else None,
        hours_per_day=hours,
        write=write,
        check=common.check,
    )
    seen = tuning.Watching(common.screen)
    return tuning.tuned(common.screen, tunes.power_tune(common.access(), common.selection, options, seen), options)
