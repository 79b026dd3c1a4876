"""The one process of a lab that moves its simulated hardware on: `python -m tests.lab.simulated.daemon`, started by the lab itself.

It opens a node's state only for the instant of a tick, and only while the node runs, so that it never stands in the way of lab.down.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab import claim, commands, disk, places, processes
from tests.lab.simulated import board_files, board_model, boards, compiled, figures, groups, holders, layout, model, plugging, slowing
from wattherd.errors import Problem

_TICK_S = 0.2
_IDLE = 0.03
_NODES_S = 1.0
#: A tick that came late (the machine slept, or was stopped) counts as this much at most: a gap is no energy.
_LONGEST_S = 2.0
_STARTS_S = 10.0
_ENDS_S = 10.0
_RESET_AFTER_NS = 1_500_000_000


@dataclass
class Powered:
    """A node with simulated cards that runs."""

    name: str
    root: Path
    leader: int
    device: int
    ids: tuple[str, ...]
    cards: tuple[figures.Card, ...]
    moments: list[model.Moment]
    epoch: int = -1
    others: tuple[holders.Registered, ...] = ()
    frozen: set[int] = field(default_factory=set)
    board: boards.Board | None = None
    board_moment: board_model.Moment | None = None


@dataclass
class Keeper:
    lab: places.Places
    watch: holders.Watch = field(default_factory=holders.Watch)
    nodes: dict[str, Powered] = field(default_factory=dict)
    slowing: slowing.Slowing = field(init=False)
    _looked: float = -math.inf
    _at: float = 0.0
    _last: str = ""

    def __post_init__(self) -> None:
        self.slowing = slowing.Slowing(self.lab)

    def tick(self, now: float) -> None:
        if now - self._looked >= _NODES_S:
            self._looked = now
            self._look_for_nodes()
        if self.nodes:
            self.watch.look(now)
            self.slowing.forget(self.watch.known)
        seconds = min(now - self._at, _LONGEST_S) if self._at else _TICK_S
        self._at = now
        for name, node in list(self.nodes.items()):
            try:
                if node.board:
                    self._move_board(node, node.board, seconds)
                else:
                    self._move(node, seconds)
            except TimeoutError as busy:
                self._told(f"{name}: its state is locked: {busy}")
            except (OSError, ValueError) as error:
                self._told(f"{name}: {error}")
                del self.nodes[name]

    def _told(self, line: str) -> None:
        """The log has each line once in a row."""
        if line != self._last:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
        self._last = line

    def _look_for_nodes(self) -> None:
        disks = [node for node in disk.every(self.lab) if (node.root / plugging.MARK).exists()]
        found = processes.of_all(tuple(node.root for node in disks))
        running = {node.node: node for node in disks if found[node.root].leader}
        for name in set(self.nodes) - set(running):
            groups.release(self.lab, name)
            del self.nodes[name]
        for name, node in running.items():
            leader = found[node.root].leader
            kind = plugging.kind(node.root)[0]
            ids = figures.kinds(kind) if kind else ()
            known = self.nodes.get(name)
            if leader and ids and (known is None or (known.leader, known.ids) != (leader.pid, ids)):
                self.nodes[name] = _powered(node, leader.pid, ids)
            self.slowing.sweep(name)
            if leader and name in self.nodes:
                self.nodes[name].others = holders.registered(node.root, leader.pid)

    def _move_board(self, node: Powered, board: boards.Board, seconds: float) -> None:
        busy = max((process.busy for process in self.watch.of(node.device)), default=0.0)
        was = node.board_moment or board_model.start(board)
        now = board_model.step(board, was, board_files.clocks(node.root, board), busy if busy > _IDLE else 0.0, seconds)
        node.board_moment = now
        board_files.write(node.root, board, now)
        for process in self.watch.of(node.device):
            self.slowing.slow(node.name, process, now.speed)

    def _hang(self, node: Powered, state: layout.Node) -> None:
        """Who called the driver while it hangs is frozen from outside; where it hangs no more, they go on."""
        hung = [pid for pid in state.hung if pid]
        if not hung and not node.frozen:
            return
        if state.faults & layout.NODE_FAULTS["HANG"]:
            for pid in hung:
                outside = holders.host_pid(node.leader, pid)
                if outside:
                    groups.freeze(self.lab, node.name, outside)
        else:
            groups.thaw(self.lab, node.name)
            node.frozen.clear()
            for place in range(layout.MOST_HUNG):
                state.hung[place] = 0

    def _move(self, node: Powered, seconds: float) -> None:
        busy = self.watch.of(node.device)
        others = node.others
        with layout.held(node.root / plugging.STATE, _TICK_S / 4) as state:
            if state.cards != len(node.cards):
                raise ValueError("other cards were put in")
            uuids = [state.card[index].uuid.decode() for index in range(state.cards)]
            self._hang(node, state)
            held = {process.pid: holders.chosen(process, uuids) for process in busy}
            speeds: dict[int, list[float]] = {process.pid: [] for process in busy}
            if state.epoch != node.epoch:
                node.epoch = state.epoch
                for index in range(state.cards):
                    node.moments[index] = _counted(node.moments[index], state.card[index])
            for index in range(state.cards):
                card = state.card[index]
                mine = [process for process in busy if index in held[process.pid]]
                strangers = [other for other in others if index in other.cards]
                _list(card, mine, strangers, held)
                _reset(card, state.faults)
                load = model.Load(
                    bool(mine or strangers or card.faults & layout.CARD_FAULTS["STUCK"]),
                    max((process.busy / len(held[process.pid]) for process in mine), default=0.0),
                )
                node.moments[index] = model.step(node.cards[index], node.moments[index], _settings(card), _quiet(load), seconds)
                _write(card, node.moments[index], load)
                for process in mine:
                    share = model.Load(held=True, busy=1 / len(held[process.pid]))
                    speeds[process.pid].append(model.settle(node.cards[index], _settings(card), share).speed)
        for process in busy:
            if speeds[process.pid]:
                self.slowing.slow(node.name, process, sum(speeds[process.pid]) / len(speeds[process.pid]))


def _powered(node: disk.Disk, leader: int, ids: tuple[str, ...]) -> Powered:
    cards = tuple(figures.cards()[one] for one in ids if one in figures.cards())
    board = None if cards else boards.board(ids[0])
    return Powered(node.node, node.root, leader, node.root.stat().st_dev, ids, cards, [model.start(card) for card in cards], board=board)


def _quiet(load: model.Load) -> model.Load:
    """A server that only polls its sockets is idle."""
    return load if load.busy > _IDLE else model.Load(load.held)


def _settings(card: layout.Card) -> model.Settings:
    limit = min(card.requested_mw, card.bmc_mw or card.requested_mw) / 1000 if card.requested_mw else math.inf
    return model.Settings(
        limit_w=limit,
        gpu_lock_mhz=(card.gpu_lock_min_mhz, card.gpu_lock_max_mhz),
        memory_lock_mhz=(card.memory_lock_min_mhz, card.memory_lock_max_mhz),
        target_c=card.target_c,
    )


def _reset(card: layout.Card, faults: int) -> None:
    """Somebody, or something, that sets a card back a moment after it was set."""
    resets = card.faults & layout.CARD_FAULTS["RESETTING"]
    forgets = faults & layout.NODE_FAULTS["FORGETS"] and not card.persistence and not card.holders
    if (resets or forgets) and time.monotonic_ns() - card.set_at_ns > _RESET_AFTER_NS:
        card.requested_mw = card.default_mw
        if forgets:
            card.gpu_lock_min_mhz = card.gpu_lock_max_mhz = card.memory_lock_min_mhz = card.memory_lock_max_mhz = 0


def _list(card: layout.Card, mine: list[holders.Process], strangers: list[holders.Registered], held: Mapping[int, tuple[int, ...]]) -> None:
    rows = [(process.inside, process.name, process.memory // len(held[process.pid])) for process in mine]
    rows += [(other.inside, other.name, other.memory) for other in strangers]
    card.holders = min(len(rows), layout.MOST_HOLDERS)
    for index, (pid, name, memory) in enumerate(rows[: layout.MOST_HOLDERS]):
        place = card.holder[index]
        place.pid, place.name, place.memory, place.graphics = pid, name.encode()[:159], memory, 0


def _counted(moment: model.Moment, card: layout.Card) -> model.Moment:
    """The counters as the state has them: after a start of this process they go on, after a reload of the driver they begin anew."""
    return dataclasses.replace(
        moment,
        energy_mj=float(card.energy_mj),
        power_violation_ns=float(card.power_violation_ns),
        thermal_violation_ns=float(card.thermal_violation_ns),
    )


def _write(card: layout.Card, now: model.Moment, load: model.Load) -> None:
    card.power_mw, card.average_mw = round(now.watts * 1000), round(now.average_w * 1000)
    card.sm_mhz, card.memory_mhz, card.pstate = round(now.sm_mhz), round(now.memory_mhz), now.pstate
    card.temperature_c, card.memory_temperature_c = round(now.temperature_c), round(now.temperature_c + 4)
    card.fan_percent, card.reasons = round(now.fan_percent), now.reasons
    card.utilization_percent = round(load.busy * 100)
    card.memory_utilization_percent = round(load.busy * 60)
    card.energy_mj = int(now.energy_mj)
    card.power_violation_ns, card.thermal_violation_ns = int(now.power_violation_ns), int(now.thermal_violation_ns)


def ensure(lab: places.Places) -> None:
    """Start it where it does not run, and start it anew where it runs from other sources than these."""
    if _running(lab) == version():
        return
    stop(lab)
    log = _log(lab)
    environment = {**os.environ, "WATTHERD_LAB_NAME": lab.name, "WATTHERD_CACHE": str(lab.cache.parent)}
    with log.open("ab") as stream:
        argv = ["setsid", "--fork", sys.executable, "-m", "tests.lab.simulated.daemon", lab.name]
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, cwd=places.CHECKOUT, env=environment)
    until = time.monotonic() + _STARTS_S
    while _running(lab) != version():
        if time.monotonic() > until:
            message = f"the power model of the lab did not start: {commands.tail(log.read_text(errors='replace'))}"
            raise Problem("lab-failed", message, hint=f"its log is {log}")
        time.sleep(_TICK_S / 4)  # its mark appears once it runs, and only that can be asked


def stop(lab: places.Places) -> None:
    """End it, where it runs."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        pid = int(_mark(lab).read_text().split()[0])
        if _locked(lab):
            processes.kill(processes.alive((pid,)), signal.SIGTERM)
            processes.wait_gone(processes.alive((pid,)), _ENDS_S)
    _mark(lab).unlink(missing_ok=True)
    _log(lab).unlink(missing_ok=True)


def version() -> str:
    """Of the sources that it is made of."""
    digest = hashlib.sha256(compiled.fingerprint().encode())
    for path in sorted(path for path in Path(__file__).parent.iterdir() if path.suffix in {".py", ".yaml"}):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _log(lab: places.Places) -> Path:
    return lab.cache / f"gpu-{lab.name}.log"


def _mark(lab: places.Places) -> Path:
    return lab.run / f"gpu-{lab.name}"


def _locked(lab: places.Places) -> bool:
    """Does a process hold the mark? A mark without one is left from a kill."""
    with contextlib.suppress(OSError), _mark(lab).open("r") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _running(lab: places.Places) -> str:
    with contextlib.suppress(OSError, IndexError):
        if _locked(lab):
            return _mark(lab).read_text().split()[1]
    return ""


def main() -> int:
    lab = places.here()
    lab.run.mkdir(parents=True, exist_ok=True)
    with _mark(lab).open("a+") as mark:
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        mark.truncate(0)
        mark.write(f"{os.getpid()} {version()}\n")
        mark.flush()
        ended: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, _frame: ended.append(number))
        keeper = Keeper(lab)
        while not ended and claim.taken(lab):
            began = time.monotonic()
            keeper.tick(began)
            time.sleep(max(0.02, _TICK_S - (time.monotonic() - began)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
