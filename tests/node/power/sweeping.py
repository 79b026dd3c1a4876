"""A node for sweeps: a fake card whose watts and speed follow its limit, and a llama-bench whose runs follow that speed, on one clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.node import strict
from tests.node.power import fake
from wattherd.node import tuning
from wattherd.power import beside

UUID = "GPU-11111111-1111-1111-1111-111111111111"
MODEL = "/var/lib/wattherd/models/small.gguf"
PROGRAM = "/opt/wattherd/current/bin/llama-bench"
FLAGS = "/etc/wattherd/serve/small.flags"
#: What the card draws by itself under each phase, and how fast it is then.
NATURAL_W = {"prefill": 330.0, "decode": 270.0}
FASTEST = {"prefill": 3000.0, "decode": 100.0}
IDLE_W = 20.0
#: Below this share of the natural draw speed falls with the draw, above it hardly: a knee.
_FLAT = 0.75


@dataclass
class World:
    """Moves with the bench's clock. `at_wait` is called after each wait: where a test lets something happen."""

    bench: strict.Bench
    cards: fake.Cards
    process: Process | None = None
    at_wait: Callable[[], None] | None = None
    waits: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)
    _last_s: float = 0.0

    def __post_init__(self) -> None:
        self._last_s = self.bench.machine.clock_s
        self.bench.machine.on_wait = self._waited
        self.cards.before_answer = self.move

    @property
    def card(self) -> fake.Card:
        return self.cards.cards[0]

    def _waited(self) -> None:
        self.waits += 1
        self.move()
        if self.at_wait is not None:
            self.at_wait()

    def move(self) -> None:
        """Bring energy, counters and runs up to now."""
        now_s = self.bench.machine.clock_s
        lasted_s, self._last_s = now_s - self._last_s, now_s
        phase = self.process.phase if self.process is not None and self.process.code is None else ""
        for card in self.cards.cards[:1]:
            watts, throttled = self.draw(card, phase)
            card.draw_w = watts if card.draw_w is not None else None
            card.sm_mhz = self.clock(card, phase)
            card.utilization_percent = 100 if phase else 0
            card.temperature_c = 65 if phase else 40
            if card.energy_mj is not None:
                card.energy_mj += round(watts * lasted_s * 1000)
            if "sw_power_cap" in card.violations_ns and throttled:
                card.violations_ns["sw_power_cap"] += round(lasted_s * 1e9)
        if phase and self.process is not None:
            self.process.work(lasted_s, self.speed(self.card, phase), now_s)

    def draw(self, card: fake.Card, phase: str) -> tuple[float, bool]:
        if not phase:
            return IDLE_W, False
        natural_w = NATURAL_W[phase]
        if card.locked_mhz is not None:
            natural_w *= card.locked_mhz[1] / card.sm_max_mhz
        cap_w = card.enforced_w if card.enforced_w is not None else natural_w
        return min(natural_w, cap_w), cap_w < natural_w

    def speed(self, card: fake.Card, phase: str) -> float:
        share = self.draw(card, phase)[0] / NATURAL_W[phase]
        return FASTEST[phase] * (1 - (1 - share) * 0.12 if share >= _FLAT else 0.97 * share / _FLAT)

    @staticmethod
    def clock(card: fake.Card, phase: str) -> int:
        if not phase:
            return 210
        return card.locked_mhz[1] if card.locked_mhz is not None else card.sm_max_mhz - 150

    # -- what a controller does

    def order(self, **more: object) -> dict[str, object]:
        server = {"name": "small", "unit": "llama@small.service", "url": "unix:/run/wattherd/llama-small/llama.sock:", "flags_file": FLAGS}
        return {"verb": "power-tune", "program": PROGRAM, "account": "", "steps": 6, "seconds_per_step": 5.0, "servers": [server], **more}

    def emit(self, message: Mapping[str, Any]) -> None:
        self.events.append(dict(message))

    def tune(self, **more: object) -> Mapping[str, Any]:
        return tuning.tune(self.bench.machine, self.order(**more), self.emit, self.start)

    def start(
        self, argv: Sequence[str], environment: Mapping[str, str], clock: Callable[[], float], wanted: Callable[[str], bool]
    ) -> beside.Beside:
        self.move()
        self.process = Process(tuple(argv), dict(environment), clock(), wanted)
        return self.process  # type: ignore[return-value]  # stands where a Beside stands

    def deploy(self) -> None:
        """A release, a model, and the flags of one served instance."""
        self.bench.put(f"/opt/wattherd/releases/abc-b11434-cuda{PROGRAM[len('/opt/wattherd/current') :]}", "", 0o755)
        self.bench.link("/opt/wattherd/current", "/opt/wattherd/releases/abc-b11434-cuda")
        self.bench.put(MODEL, "GGUF")
        flags = f'# x\nWATTHERD_FLAGS="--model {MODEL} --n-gpu-layers all --flash-attn on --cache-type-k q8_0 --threads 4 --host /run/x"\n'
        self.bench.put(FLAGS, flags)


class Process:
    """llama-bench as `beside.Beside` shows it: real words, at the times at which the card's speed makes them due."""

    def __init__(self, argv: tuple[str, ...], environment: dict[str, str], now_s: float, wanted: Callable[[str], bool]) -> None:
        self.argv = argv
        self.environment = environment
        self.phase = "decode" if argv[argv.index("-p") + 1] == "0" else "prefill"
        self.tokens = int(argv[argv.index("-n" if self.phase == "decode" else "-p") + 1])
        self.code: int | None = None
        self.words = ""
        self._wanted = wanted
        self._kept: list[tuple[float, str]] = []
        self._done = 0.0
        self._runs = 0
        self._say(now_s, "llama-bench: benchmark 1/1: starting")
        self._say(now_s, f"llama-bench: benchmark 1/1: warmup {self._word} run")
        self._mark(now_s)

    @property
    def lines(self) -> tuple[tuple[float, str], ...]:
        return tuple(self._kept)

    @property
    def _word(self) -> str:
        return "generation" if self.phase == "decode" else "prompt"

    def work(self, lasted_s: float, speed: float, now_s: float) -> None:
        begun_s, left_s = now_s - lasted_s, lasted_s
        while speed > 0 and self._done + speed * left_s >= self.tokens:
            took_s = (self.tokens - self._done) / speed
            begun_s, left_s, self._done = begun_s + took_s, left_s - took_s, 0.0
            self._mark(begun_s)
        self._done += speed * left_s

    def crash(self, words: str, code: int = 1) -> None:
        self.words, self.code = words, code

    def stop(self) -> None:
        self.code = self.code if self.code is not None else -15

    def _mark(self, at_s: float) -> None:
        self._runs += 1
        self._say(at_s, f"llama-bench: benchmark 1/1: {self._word} run {self._runs}/1000000")

    def _say(self, at_s: float, line: str) -> None:
        if self._wanted(line):
            self._kept.append((at_s, line))
        else:
            self.words += line + "\n"


def world(bench: strict.Bench, *cards: fake.Card, guard: bool = True) -> World:
    """A node with these cards (one 3090 by itself), a release and a model."""
    made = World(bench, fake.Cards(bench, cards or [fake.Card()]))
    made.deploy()
    if guard:
        bench.runner.plan("systemd-run", "--quiet", "--collect", strict.REST, times=None)
    return made
