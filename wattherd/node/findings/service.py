"""One served unit: its state, its restarts, a loop that the start limit never sees, and what the OOM killer took. Pure."""

from __future__ import annotations

import re
from typing import List, Optional, Sequence, Tuple

from wattherd import units
from wattherd.node.findings import journal
from wattherd.records import dataclass
from wattherd.resources import complaints
from wattherd.wire import finding

#: Restarts that make a loop rather than bad luck, when the starts behind them were short.
_LOOP_RESTARTS = 3
#: A start that ends within this never served anybody for long.
_SHORT_S = 900.0
#: What a start may take before its life is compared with those of the others.
_GRACE_S = 5.0
#: What a server says of its own end stands in its last lines.
_LAST_LINES = 20
_SAVED = re.compile(r"saving prompt with length (?P<tokens>\d{1,9})\b.*?total state size = (?P<mib>\d{1,9}(?:\.\d+)?) MiB")
_CONTEXT = re.compile(r"n_ctx_(?:slot|seq|per_seq)\s*[=:]\s*(?P<tokens>\d{1,9})")
_CACHE = re.compile(r"^(?:--cache-ram|-cram)$")


@dataclass(frozen=True)
class Service:
    """What systemd says of one unit. Times in seconds; `limit_s` 0 means that there is no start limit."""

    name: str
    active: str = ""
    sub: str = ""
    result: str = ""
    restarts: int = 0
    pid: int = 0
    exit_code: str = ""
    exit_status: int = 0
    restart_s: float = 0.0
    limit_s: float = 0.0
    burst: int = 0
    argv: Tuple[str, ...] = ()
    wanted: bool = False

    @property
    def running(self) -> bool:
        return self.active in {"active", "reloading", "refreshing"}

    @property
    def between(self) -> bool:
        """It waits for its next start: neither running nor given up."""
        return self.active == "activating" and self.sub == "auto-restart"

    @property
    def ill(self) -> bool:
        """Its program met an instruction that the CPU lacks (systemd: status=4/ILL; a shell: 132)."""
        return (self.exit_code in {"2", "3"} and self.exit_status == 4) or (self.exit_code == "1" and self.exit_status == 132)


def judge(service: Service, starts: Sequence[journal.Start], now_s: float, build: str = "") -> List[finding.Finding]:
    """`starts` oldest first; `now_s` is the clock of their times; `build` names the binary that the unit runs."""
    recent = starts[-(service.restarts + 1) :]
    failures = [one for one in recent if one.failed or one.ended_s is not None]
    killed = next((one for one in reversed(failures) if one.result == "oom-kill"), None)
    oom = [_oom(service, killed)] if killed is not None or service.result == "oom-kill" else []
    loops = _loops(service, recent, now_s)
    if service.running and not loops:
        return oom or _restarted(service, failures)
    if loops or service.active == "failed" or service.between or (service.active == "activating" and service.restarts):
        return [*oom, *_failing(service, failures, build, loops=loops, oom=bool(oom))]
    if service.wanted and service.active == "inactive":
        words = "it is wanted and does not run; it ended by itself or was stopped by hand"
        do = f"systemctl start {service.name}, or invoke deploy"
        return [*oom, finding.found("unit-stopped", finding.ERROR, service.name, words, do=do)]
    return oom


def loop_interval_s(service: Service, life_s: float) -> float:
    """The shortest StartLimitIntervalSec that would count these starts as one loop."""
    return service.burst * (service.restart_s + life_s)


def never_trips(service: Service, life_s: float) -> bool:
    """A start limit that is off, or whose interval is over before its burst of starts is through."""
    return service.limit_s == 0 or service.burst == 0 or service.limit_s <= loop_interval_s(service, life_s)


def _loops(service: Service, recent: Sequence[journal.Start], now_s: float) -> bool:
    """Enough restarts, short lives, and the start that runs now has not outlived the others yet."""
    lives = [one.life_s for one in recent if one.life_s is not None]
    if service.restarts < _LOOP_RESTARTS or service.active == "failed":
        return False
    if not lives:
        return service.between
    young = recent[-1].ended_s is not None or now_s - recent[-1].begun_s <= 2 * _middle(lives) + _GRACE_S
    return _middle(lives) < _SHORT_S and young


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _failing(service: Service, failures: Sequence[journal.Start], build: str, *, loops: bool, oom: bool) -> List[finding.Finding]:
    """That it fails, and why, as two findings: the second is the one to mend."""
    why = None if oom else _why(service, failures, build)
    silent = "" if oom or why is not None else "; its log names no reason"
    if loops:
        return [_loop(service, failures), *([why] if why is not None else [])]
    words = f"it failed and nobody starts it again ({_how(service, failures)})"
    if service.active != "failed":
        words = f"its start fails ({_how(service, failures)}) and is tried again"
    do = (
        f"mend the cause, then systemctl reset-failed {service.name} and invoke deploy"
        if not silent
        else f"journalctl -u {service.name} -b"
    )
    failed = finding.found("unit-failed", finding.ERROR, service.name, f"{words}{silent}", do=do)
    return [failed, *([why] if why is not None else [])]


def _loop(service: Service, failures: Sequence[journal.Start]) -> finding.Finding:
    lives = [one.life_s for one in failures if one.life_s is not None]
    life_s = _middle(lives) if lives else 0.0
    words = f"it restarts again and again: {units.plural(service.restarts, 'restart')}, each start ends after {units.duration(life_s)}"
    do = f"mend the cause below, then systemctl restart {service.name}"
    if never_trips(service, life_s) and service.burst:
        needs_s = loop_interval_s(service, max(lives or [0.0]))
        limit = f"{service.burst} starts in {units.duration(service.limit_s)}" if service.limit_s else "none"
        words += f"; the start limit ({limit}) never stops it, since {service.burst} starts take {units.duration(needs_s)}"
        do += f"; StartLimitIntervalSec must be above {int(needs_s) + 1} s (invoke deploy writes one that is)"
    return finding.found("crash-loop", finding.ERROR, service.name, words, do=do, evidence=_how(service, failures))


def _why(service: Service, failures: Sequence[journal.Start], build: str) -> Optional[finding.Finding]:
    """The first failing start speaks; later ones can fail of what it left behind. One without a word is passed over."""
    if service.ill or any("/ILL" in one.how for one in failures):
        return _of_build(complaints.explain(["status=4/ILL"], service.name), build)
    for start in failures:
        # Before its end a server that served for long had complained of many a request.
        served = start.life_s is not None and start.life_s > _SHORT_S
        told = complaints.explain(start.lines[-_LAST_LINES:] if served else start.lines, service.name)
        if told is not None:
            return _of_build(told, build)
    return None


def _of_build(told: Optional[finding.Finding], build: str) -> Optional[finding.Finding]:
    if told is None or not build:
        return told
    return finding.found(told.code, told.severity, told.where, f"{told.words} ({build} runs here)", do=told.do, evidence=told.evidence)


def _how(service: Service, failures: Sequence[journal.Start]) -> str:
    last = next((one for one in reversed(failures) if one.how or one.result), None)
    parts = [last.how, last.result] if last is not None else [service.result]
    return "; ".join(part for part in parts if part and part != "success") or "how is unknown"


def _restarted(service: Service, failures: Sequence[journal.Start]) -> List[finding.Finding]:
    if not service.restarts:
        return []
    words = f"it runs, after {units.plural(service.restarts, 'restart')} by systemd since its first start ({_how(service, failures)})"
    told = _why(service, failures, "")
    if told is None:
        return [finding.found("unit-restarted", finding.WARNING, service.name, words, do=f"journalctl -u {service.name} -b")]
    return [finding.found("unit-restarted", finding.WARNING, service.name, f"{words}: {told.words}", do=told.do, evidence=told.evidence)]


def _oom(service: Service, start: Optional[journal.Start]) -> finding.Finding:
    lines = start.lines if start is not None else ()
    peak = f" at a peak of {start.peak}" if start is not None and start.peak else ""
    saved = next((met for met in (_SAVED.search(line) for line in reversed(lines)) if met), None)
    if saved is None:
        return finding.found(
            "oom-kill",
            finding.ERROR,
            service.name,
            f"the kernel ended it for memory{peak}; its log names no saved prompt, so weights, context or another process may be the cause",
            do="set cache_ram (8 GiB by default) and a smaller context; a log at verbosity 4 shows the size of each saved prompt",
        )
    tokens, mib = int(saved.group("tokens")), float(saved.group("mib"))
    each_kib = mib * 1024 / tokens if tokens else 0.0
    words = (
        f"the kernel ended it for memory{peak}, after it saved a prompt of {tokens} tokens in {mib:.0f} MiB ({each_kib:.0f} KiB a token); "
        f"cache_ram{_cache_words(service.argv)} does not bound one entry: it is allocated first, and at least one is kept"
    )
    context = next((met for met in (_CONTEXT.search(line) for line in lines) if met), None)
    full = ""
    if context:
        gib = int(context.group("tokens")) * each_kib / 1024 / 1024
        full = f"; a full context of {context.group('tokens')} tokens takes up to {gib:.1f} GiB"
    do = f"the host's memory must hold the weights on the CPU and the larger of cache_ram and one such entry{full}; cache_ram: 0 keeps none"
    return finding.found("oom-kill", finding.ERROR, service.name, words, do=do, evidence=saved.group())


def _cache_words(argv: Sequence[str]) -> str:
    for word, value in zip(argv, argv[1:]):
        if _CACHE.match(word) and re.match(r"-?\d{1,9}$", value):
            return f" ({value} MiB)"
    return ""
