"""What the keeper has to tell: settings over which somebody else fights, a policy that went back, and a keeper that is not there. Pure."""

from __future__ import annotations

from typing import List, Optional

from wattherd.power import drift, settings
from wattherd.power.jetson import held
from wattherd.wire import finding

UNIT = "wattherd-keeper.service"


def judge(record: drift.Record, back: Optional[drift.PutBack], active: str) -> List[finding.Finding]:
    """`back` is the put-back that is still in force, `active` what systemd says of the keeper; empty where no policy wants one."""
    found = [_conflict(one) for one in record.conflicts]
    if back is not None:
        words = f"the last power policy was put back: {back.why}"
        do = "mend that, or choose another value, and invoke power-apply"
        found.append(finding.found("power-put-back", finding.WARNING, "power policy", words, do=do))
    if active and active not in {"active", "activating", "reloading"}:
        words = f"there is a power policy, and the keeper that holds it does not run ({active}): limits are lost at the next boot"
        do = f"systemctl start {UNIT}, or invoke power-apply; journalctl -u {UNIT} -b tells why it ended"
        found.append(finding.found("keeper-stopped", finding.ERROR, UNIT, words, do=do))
    return found


def _conflict(one: drift.Drift) -> finding.Finding:
    name = {**settings.NAMES, **held.NAMES}.get(one.setting, one.setting)
    words = f"{name}: {one.found}, not {one.wanted}; put right {drift.ROUNDS} times and changed again each time, so it is left alone"
    who = one.writers[0].partition(":")[0] if one.writers else "what else sets it"
    evidence = "; ".join(one.writers) or "nobody was found that sets it"
    return finding.found(
        "power-conflict", finding.WARNING, one.card or one.owner, words, do=f"stop {who}, then invoke power-apply", evidence=evidence
    )
