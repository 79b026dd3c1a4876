"""What a served instance was started with, read from the files that a deploy really writes."""

from __future__ import annotations

import pytest

from tests.node import strict
from wattherd import errors
from wattherd.node import tuning_flags
from wattherd.resources.flagging import files

PATH = "/etc/wattherd/serve/smol.flags"


def put(bench: strict.Bench, *words: tuple[str, ...], presets: str = "") -> None:
    bench.put(PATH, files.environment_text("options", "0" * 64, words, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, presets))


def test_the_model_and_what_llama_bench_shares(bench: strict.Bench) -> None:
    put(
        bench,
        ("--model", "/var/lib/wattherd/models/a model.gguf"),
        ("--ctx-size", "2048"),
        ("--threads", "4"),
        ("--no-kv-unified",),
        ("--flash-attn", "on"),
        ("--cache-type-k", "q8_0"),
        ("--n-gpu-layers", "all"),
        ("--metrics",),
    )
    found = tuning_flags.read(bench.machine, PATH)
    assert found == tuning_flags.Started("/var/lib/wattherd/models/a model.gguf", ("-t", "4", "-fa", "1", "-ctk", "q8_0", "-ngl", "999"))


@pytest.mark.parametrize(("value", "words"), [("auto", ()), ("33", ("-ngl", "33")), ("-1", ("-ngl", "999")), ("; rm", ())])
def test_layers(bench: strict.Bench, value: str, words: tuple[str, ...]) -> None:
    put(bench, ("--model", "/m.gguf"), ("--n-gpu-layers", value))
    found = tuning_flags.read(bench.machine, PATH)
    assert found is not None
    assert found.options == words


def test_a_router_gives_the_named_model_or_the_first_that_it_starts(bench: strict.Bench) -> None:
    sections = {
        "big": [("--model", "/m/big.gguf"), ("load-on-startup", "false")],
        "small": [("--model", "/m/small.gguf"), ("--threads", "2"), ("load-on-startup", "true")],
    }
    bench.put("/etc/wattherd/serve/smol.ini", files.preset_text("presets", sections, None))
    put(bench, ("--models-preset", "/etc/wattherd/serve/smol.ini"), ("--models-max", "4"))
    assert tuning_flags.read(bench.machine, PATH) == tuning_flags.Started("/m/small.gguf", ("-t", "2"), "small")
    assert tuning_flags.read(bench.machine, PATH, "big") == tuning_flags.Started("/m/big.gguf", (), "big")
    assert tuning_flags.read(bench.machine, PATH, "other") is None


def test_what_is_not_deployed_is_none(bench: strict.Bench) -> None:
    assert tuning_flags.read(bench.machine, PATH) is None


def test_presets_that_somebody_broke_are_told(bench: strict.Bench) -> None:
    bench.put("/etc/wattherd/serve/smol.ini", "no section = 1\n")
    put(bench, ("--models-preset", "/etc/wattherd/serve/smol.ini"))
    with pytest.raises(errors.Problem) as caught:
        tuning_flags.read(bench.machine, PATH)
    assert caught.value.code == "tune-load"
