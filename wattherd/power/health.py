"""How a node is while a new power policy settles: cards that are lost, what holds them back, units of ours that fail. Two of them compared.

Only what was well before and is ill now is held against a policy.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Tuple

from wattherd import machine as machines
from wattherd.power import reading, throttle
from wattherd.records import dataclass, field
from wattherd.wire import finding

#: Units whose failing is held against a policy.
UNITS = ("llama@*.service", "wattherd-proxy.service")
#: Restarts by systemd itself since before the policy: one may be bad luck.
_LOOP_RESTARTS = 2
_LIMIT_S = 20.0
_PROPERTIES = "Id,ActiveState,NRestarts"


@dataclass(frozen=True)
class Vitals:
    """`cards` are those that could be read, `held` maps a card to the heat and hardware reasons that bind it, `fault` is why none could.

    `failed` are units that had failed, `restarts` how often systemd had started each again.
    """

    cards: Tuple[str, ...] = ()
    held: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)
    fault: str = ""
    failed: Tuple[str, ...] = ()
    restarts: Mapping[str, int] = field(default_factory=dict)


def take(machine: machines.Machine, look: reading.Look) -> Vitals:
    """`look` and what systemd says of our units. Reads only."""
    failed, restarts = _units(machine)
    slowed = throttle.THERMAL | throttle.HARDWARE
    well = [card for card in look.cards if not card.fault]
    held = {card.uuid: tuple(reason for reason in card.binding if reason in slowed) for card in well}
    return Vitals(tuple(card.uuid for card in well), {uuid: why for uuid, why in held.items() if why}, look.fault, failed, restarts)


def complaints(before: Vitals, now: Vitals) -> Tuple[str, ...]:
    """What got worse, in words; empty when nothing did."""
    found: List[str] = []
    if now.fault and not before.fault:
        found.append(f"the cards cannot be read any more: {now.fault}")
    elif not now.fault:
        found += [f"card {uuid[:12]} is lost" for uuid in before.cards if uuid not in now.cards]
    for uuid, reasons in now.held.items():
        new = [throttle.WORDS.get(one, one) for one in reasons if one not in before.held.get(uuid, ())]
        found += [f"card {uuid[:12]} is held back by {' and '.join(new)}"] if new else []
    found += [f"{name} failed" for name in now.failed if name not in before.failed]
    for name, count in now.restarts.items():
        was = before.restarts.get(name, 0)
        # A start by hand sets the count to 0 again.
        again = count - was if count >= was else count
        found += [f"{name} restarts again and again ({again} times)"] if again >= _LOOP_RESTARTS else []
    return tuple(finding.plain_line(words, 200) for words in found)


def _units(machine: machines.Machine) -> Tuple[Tuple[str, ...], Dict[str, int]]:
    done = machine.run(["systemctl", "show", *UNITS, f"--property={_PROPERTIES}"], timeout_s=_LIMIT_S)
    failed: List[str] = []
    restarts: Dict[str, int] = {}
    for block in done.text.split("\n\n") if done.code == 0 else ():
        rows = dict(line.partition("=")[::2] for line in block.splitlines() if "=" in line)
        name, count = rows.get("Id", ""), rows.get("NRestarts", "")
        if name and rows.get("ActiveState") == "failed":
            failed.append(name)
        if name and count.isdigit():
            restarts[name] = int(count)
    return tuple(failed), restarts
