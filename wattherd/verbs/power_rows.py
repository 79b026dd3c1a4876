"""What a node's answer comes to: one row for each card and board, with its verdict and the reason in words. Pure.

What was chosen for it is in `power_chosen`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from wattherd.policy import idle, unload
from wattherd.power import reading, settings, settle, wanted
from wattherd.verbs import power_chosen, power_told, rests
from wattherd.wire import facts

OK, SKIPPED, DRIFT, FAILED = "ok", "skipped", "drift", "failed"
#: From what needs nobody to what needs somebody at once.
STATUSES = (OK, SKIPPED, DRIFT, FAILED)
BOARD = power_chosen.BOARD
_APPLY = "invoke power-apply"
#: What helped others whose cards stayed awake after their last process (facts/power.md, c).
_WAKE = "persistence off and on again, or a reload of the driver, has freed such cards"

_UNSEEN = idle.Rest(why="nothing was read of it")
#: A status and why.
Found = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One card, or one Jetson board (its uuid is "board"). What is None or not there is unknown. Watts, degrees Celsius.

    `note` is worth a word and no fault; `now_s` is the node's clock when it was read, for its own times.
    """

    host: str
    uuid: str
    name: str
    status: str = OK
    reason: str = ""
    simulated: bool = False
    chosen_by: str = ""
    applied: bool | None = None
    desired: Mapping[str, settings.Value] = field(default_factory=dict)
    desired_board: wanted.BoardPolicy | None = None
    card: reading.Card | None = None
    board: reading.Board | None = None
    before: Mapping[str, object] = field(default_factory=dict)
    drifts: tuple[power_told.Drifted, ...] = ()
    highest_c: float | None = None
    rest: idle.Rest = field(default_factory=idle.Rest)
    empty_w: float | None = None
    note: str = ""
    now_s: float = 0.0

    @property
    def drift_count(self) -> int:
        return sum(one.count for one in self.drifts)

    @property
    def drift_last_s(self) -> float | None:
        return max((one.last_s for one in self.drifts if one.last_s), default=None)

    @property
    def desired_w(self) -> float | None:
        value = self.desired.get(settings.LIMIT)
        return value[0] if value else None

    @property
    def draw(self) -> reading.Draw | None:
        """What it draws now; a card that cannot be read draws nobody knows what."""
        return self.card.draw if self.card is not None else self.board.draw if self.board is not None else None


def rows(host: str, seen: facts.Facts, told: power_told.Told, want: power_chosen.Chosen, resting: rests.Resting) -> tuple[Row, ...]:
    """Every card that the node reads, then those that only its facts know, and its board. None for a host without either."""
    simulated = seen.simulated
    made = [_card(host, card, told, want, resting, simulated=simulated) for card in told.look.cards]
    known = {card.uuid for card in told.look.cards} | {card.bus for card in told.look.cards}
    unread = told.look.fault or "the driver does not show this card: is it lost, or has it another driver?"
    for one in seen.gpus:
        if one.vendor == "nvidia" and not {one.uuid, one.bus} & known - {""} and not _is_lost_row(one, told.look.cards):
            name = one.name or "NVIDIA card"
            made.append(Row(host=host, uuid=one.uuid or one.bus, name=name, status=FAILED, reason=unread, simulated=simulated))
    if told.look.board is not None:
        made.append(_board(host, told.look.board, told, want, simulated=simulated))
    return tuple(made)


def _is_lost_row(one: facts.Gpu, cards: Sequence[reading.Card]) -> bool:
    """A lost card may have forgotten its UUID and its bus: then one row without either stands for it."""
    return any(card.fault and not card.uuid and not card.bus for card in cards) and bool(one.bus)


def _card(
    host: str, card: reading.Card, told: power_told.Told, want: power_chosen.Chosen, resting: rests.Resting, *, simulated: bool
) -> Row:
    rest, empty_w = resting.rest.get(card.uuid, _UNSEEN), resting.empty_w.get(card.uuid)
    drifts = tuple(one for one in told.drifts if one.owner == card.uuid)
    applied = want.is_applied(card.uuid, told)
    status, reason = verdict(list(_about(card, told, want, drifts, applied=applied)))
    return Row(
        host=host,
        uuid=card.uuid or card.bus or f"card {card.index}",
        name=card.name or "NVIDIA card",
        status=status,
        reason=reason,
        simulated=simulated,
        chosen_by=want.source if want.of(card.uuid) else "",
        applied=applied,
        desired=want.of(card.uuid),
        card=card,
        before=told.before.get(card.uuid, {}),
        drifts=drifts,
        highest_c=_highest(told.highest.get(card.uuid), card.temperature_c),
        now_s=told.now_s,
        rest=rest,
        empty_w=empty_w,
        note=_note(card, rest, empty_w),
    )


def _about(
    card: reading.Card, told: power_told.Told, want: power_chosen.Chosen, drifts: Sequence[power_told.Drifted], *, applied: bool | None
) -> Iterator[Found]:
    if card.fault:
        yield FAILED, f"{card.fault}: it can be neither read nor set until this host has been rebooted (invoke doctor looks for the cause)"
    elif card.uuid in told.tuned:
        yield SKIPPED, "power-tune is at work on it: its settings change by themselves, and are as before when it ends"
    elif not card.suspended:
        yield from _found(card, told, want, applied=applied)
        yield from _conflicts(drifts)


def _note(card: reading.Card, rest: idle.Rest, empty_w: float | None) -> str:
    if card.suspended:
        return "asleep (runtime power management): it was not woken to be read"
    if any(one.asleep for one in card.holders):
        return unload.left_by_sleep(rest.watts, empty_w)
    if not card.holders and rest.watts is not None and empty_w is not None and idle.waste_w(rest.watts, empty_w):
        now, once = settings.watts(rest.watts), settings.watts(empty_w)
        return f"draws {now} at rest although nothing holds it, and has rested at {once} here: it did not go back to sleep ({_WAKE})"
    return ""


def verdict(found: Sequence[Found]) -> Found:
    """The gravest status, and all reasons, the gravest first."""
    told = sorted(found, key=lambda one: -STATUSES.index(one[0]))
    return (told[0][0] if told else OK), "; ".join(dict.fromkeys(words for _, words in told))


def _found(card: reading.Card, told: power_told.Told, want: power_chosen.Chosen, *, applied: bool | None) -> Iterator[Found]:
    yield from _unclear(told, want)
    for setting, why in want.unfit.get(card.uuid, {}).items():
        yield SKIPPED, f"{settings.NAMES[setting]}: {why}"
    if applied is False:
        yield DRIFT, _not_applied(told, card.uuid)
    for setting, value in want.of(card.uuid).items():
        yield from _setting(card, told, setting, value)
    suspect = settle.clock_suspect(card, want.cards.get(card.uuid, wanted.CardPolicy()))
    if suspect:
        yield DRIFT, suspect.removeprefix(f"{card.shown}: ")
    yield from _unkept(told, want)


def _unclear(told: power_told.Told, want: power_chosen.Chosen) -> Iterator[Found]:
    """Why what is wanted cannot be told as a whole, here or in the inventory."""
    if told.policy_fault:
        yield DRIFT, f"the policy on the node cannot be read ({told.policy_fault}): {_APPLY}"
    if want.doubt:
        yield DRIFT, f"what the inventory wants cannot be had: {want.doubt}"


def _put_back(told: power_told.Told) -> str:
    return "" if told.put_back is None else f"not applied: the policy was put back, since {told.put_back.why}"


def _not_applied(told: power_told.Told, owner: str) -> str:
    if told.put_back is not None:
        return _put_back(told)
    kept = ", ".join(
        f"{settings.NAMES[setting]} {settings.shown(setting, value)}" for setting, value in power_chosen.of_node(told).of(owner).items()
    )
    return f"not applied yet{f' (the node keeps {kept})' if kept else ''}: {_APPLY}"


def _setting(card: reading.Card, told: power_told.Told, setting: str, value: settings.Value) -> Iterator[Found]:
    name, shown = settings.NAMES[setting], settings.shown(setting, value)
    cannot = told.unsupported.get(card.uuid, {}).get(setting) or settings.cannot(card, setting)
    if cannot:
        yield SKIPPED, f"{name} {shown}: {cannot}"
        return
    if setting in settings.LOCKS:
        yield from _lock(card, told, setting, value)
        return
    actual = settings.read(card, setting)
    if actual is None:
        yield SKIPPED, f"{name} {shown}: the card does not say what it has"
    elif not settings.agrees(setting, value, actual):
        yield DRIFT, f"{name} is {settings.shown(setting, actual)}, not {shown}"
    elif setting == settings.LIMIT and settings.held_lower(card):
        yield DRIFT, settings.held_lower(card).removeprefix(f"{card.shown}: ")


def _lock(card: reading.Card, told: power_told.Told, setting: str, value: settings.Value) -> Iterator[Found]:
    """A lock shows nowhere: the node's own record of it must do."""
    held = told.locks.get(card.uuid, {}).get(setting)
    if held != value:
        now = settings.shown(setting, held) if held is not None else "not set"
        yield DRIFT, f"{settings.NAMES[setting]} is {now}, not {settings.shown(setting, value)}"


def _unkept(told: power_told.Told, want: power_chosen.Chosen) -> Iterator[Found]:
    if told.policy is not None and want.source and told.keeper not in {"", "active", "activating", "reloading"}:
        yield DRIFT, f"nothing keeps it: the keeper is {told.keeper} (systemctl status wattherd-keeper)"


def _conflicts(drifts: Sequence[power_told.Drifted]) -> Iterator[Found]:
    for one in drifts:
        if one.in_conflict:
            who = ", ".join(one.writers[:3]) or "something that was not found"
            yield DRIFT, f"{who} sets {settings.NAMES.get(one.setting, one.setting)} {one.found} again and again: no longer fought over"
        elif one.is_open and one.words:
            yield DRIFT, one.words


def _highest(kept: float | None, now: float | None) -> float | None:
    told = [one for one in (kept, now) if one is not None]
    return max(told) if kept is not None and told else None


# -- boards


def _board(host: str, board: reading.Board, told: power_told.Told, want: power_chosen.Chosen, *, simulated: bool) -> Row:
    drifts = tuple(one for one in told.drifts if one.owner == BOARD)
    applied = want.is_applied(BOARD, told)
    status, reason = verdict([*_board_found(host, board, told, want, applied=applied), *_conflicts(drifts)])
    return Row(
        host=host,
        uuid=BOARD,
        name=board.name or "Jetson",
        status=status,
        reason=reason,
        simulated=simulated,
        chosen_by=want.source if want.board is not None else "",
        applied=applied,
        desired_board=want.board,
        board=board,
        before=told.before.get(BOARD, {}),
        drifts=drifts,
        highest_c=_highest(told.highest.get(BOARD), board.temperature_c),
        now_s=told.now_s,
    )


def _board_found(
    host: str, board: reading.Board, told: power_told.Told, want: power_chosen.Chosen, *, applied: bool | None
) -> Iterator[Found]:
    yield from _unclear(told, want)
    if applied is False:
        yield DRIFT, _put_back(told) or f"not applied yet: {_APPLY}"
    asked = want.board
    if asked is None:
        return
    if asked.mode and board.pending_mode.lower() == asked.mode.lower() != board.mode.lower():
        until = f"it is in {board.mode or 'no mode'} until then: {_APPLY} --hosts {host} --reboot"
        yield SKIPPED, f"reboot required for mode {asked.mode}; {until}"
    elif asked.mode:
        yield from _one(board, "mode", "mode", asked.mode, board.mode)
    if asked.pinned is not None:
        now = "" if board.pinned is None else "pinned" if board.pinned else "free"
        yield from _one(board, "pinned", "clock setting", "pinned" if asked.pinned else "free", now)
    if asked.fan:
        yield from _one(board, "fan", "fan profile", asked.fan, board.fan)
    yield from _unkept(told, want)


def _one(board: reading.Board, key: str, name: str, wish: str, now: str) -> Iterator[Found]:
    if not now:
        yield SKIPPED, f"{name} {wish}: {board.unknown.get(key, 'the board does not say what it has')}"
    elif now.lower() != wish.lower():
        yield DRIFT, f"{name} is {now}, not {wish}"
