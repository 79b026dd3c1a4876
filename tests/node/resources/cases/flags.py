"""The four cases of a server's flags, with a release whose help is a real build's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests import corpus
from tests.node import strict, tiny
from wattherd import machine as machines
from wattherd import store
from wattherd.resources import flags
from wattherd.wire import facts

FINGERPRINT = "0123456789abcdef-b11434-cpu"
BINARY = f"/opt/wattherd/releases/{FINGERPRINT}/bin/llama-server"
PATH = "/etc/wattherd/serve/smol.flags"
PRESET = "/etc/wattherd/serve/smol.ini"
VERSION = "version: 0.6.0-dev (build 11434, commit abc1234)\nbuilt with GNU 12.2.0 for Linux x86_64\n"
OPTIONS: tuple[tuple[str, ...], ...] = (("--model", "/m.gguf"), ("--parallel", "1"), ("--no-kv-unified",), ("--load-mode", "mlock"))

Answer = Callable[[Sequence[str]], machines.Result]


def answering(build: str, said: str = VERSION, code: int = 0) -> Answer:
    """A llama-server that prints the help of a real build, and says `said` to any command line that ends in --version."""

    def answer(argv: Sequence[str]) -> machines.Result:
        if argv[-1] == "--help":
            return machines.Result(0, corpus.helped(build).encode(), b"")
        assert argv[-1] == "--version", f"it would have been started to serve: {argv}"
        return machines.Result(code, b"", said.encode())

    return answer


def plan(bench: strict.Bench, answer: Answer, binary: str = BINARY) -> None:
    """With and without rights to give away: the tests run as root or as anybody."""
    bench.runner.plan("setpriv", strict.REST, effect=answer, times=None)
    bench.runner.plan(bench.machine.path(binary), strict.REST, effect=answer, times=None)


def wanted(**more: object) -> flags.Flags:
    values: dict[str, object] = {"options": OPTIONS, "extra": ("--temp", "0.2"), **more}
    return flags.Flags(name="smol", path=PATH, binary=BINARY, build=FINGERPRINT, **values)  # type: ignore[arg-type]


def installed(bench: strict.Bench, build: str = "b11434") -> None:
    bench.put(BINARY, "a binary", mode=0o755)
    bench.folder("/etc/wattherd/serve")
    plan(bench, answering(build))


def in_store(bench: strict.Bench) -> None:
    """Built, and not unpacked yet: as before the first activation, or before an upgrade."""
    digest = tiny.put(bench.machine, tiny.pack_tar({"bin/llama-server": b"a binary"}))
    store.record_build(bench.machine, facts.Built(FINGERPRINT, digest, 1))
    bench.folder("/etc/wattherd/serve")


def absent(bench: strict.Bench) -> flags.Flags:
    installed(bench)
    return wanted()


def drifted(bench: strict.Bench) -> flags.Flags:
    """Somebody has edited the file by hand."""
    one = settled(bench)
    text = bench.machine.text(PATH)
    bench.put(PATH, text.replace("--parallel 1", "--parallel 9"))
    return one


def settled(bench: strict.Bench) -> flags.Flags:
    installed(bench)
    one = wanted()
    one.fix(bench.machine, {"asked": (None, "")}, bench.tell)
    return one


def checked(bench: strict.Bench) -> flags.Flags:
    """The build is to come in the same run."""
    store.prepare(bench.machine)
    return wanted()
