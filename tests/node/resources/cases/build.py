"""Cases of the build type: a real builder, run where systemd would run it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from tests.node import strict, tiny
from wattherd import store
from wattherd.resources import build
from wattherd.wire import facts

IDLE = "ActiveState=inactive\nResult=success\nActiveEnterTimestamp=\n"


def program(argv: Sequence[str]) -> Sequence[str]:
    """What systemd-run is asked to run."""
    return argv[list(argv).index("--") + 1 :]


def run_builder(argv: Sequence[str]) -> None:
    subprocess.run(program(argv), check=True, timeout=120)


def plan_unit(bench: strict.Bench) -> None:
    bench.runner.plan("systemctl", "show", strict.REST, out=IDLE, times=None)
    bench.runner.plan("systemctl", "reset-failed", strict.REST, times=None)
    bench.runner.plan("systemd-run", strict.REST, effect=run_builder, times=None)


def absent(bench: strict.Bench) -> build.Build:
    plan_unit(bench)
    return tiny.wanted(bench.machine)


def drifted(bench: strict.Bench) -> build.Build:
    """It was built, and its release has been damaged in the store since."""
    one = settled(bench)
    recorded = store.recorded(bench.machine, one.fingerprint)
    assert recorded is not None
    bench.put(store.blob(recorded.digest), b"damaged")
    plan_unit(bench)
    return one


def settled(bench: strict.Bench) -> build.Build:
    """Shipped from another node: nothing is compiled, and no compiler is looked for."""
    one = tiny.wanted(bench.machine)
    digest = tiny.put(bench.machine, tiny.pack_tar({"bin/llama-server": b"#!/bin/sh\n"}))
    store.record_build(bench.machine, facts.Built(one.fingerprint, digest, 1))
    return one


def checked(bench: strict.Bench) -> build.Build:
    return absent(bench)
