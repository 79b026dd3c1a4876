"""Every field case of tests/cases/memory.yaml, one test each, and the ways in which a model must stay unknown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from wattherd import errors, material
from wattherd.gguf.shape import Shape
from wattherd.inventory import settings
from wattherd.serving import layers, memory

MIB = 1024 * 1024
_CASES = Path(__file__).parents[2] / "cases" / "memory.yaml"
LLAMA8 = Shape(architecture="llama", layers=32, heads=(32,), heads_kv=(8,), embedding=4096, key_length=128, value_length=128)
MISTRAL = Shape(architecture="llama", layers=40, heads=(32,), heads_kv=(8,), embedding=5120, key_length=128, value_length=128)
GEMMA = Shape(architecture="gemma3", layers=62, heads=(32,), heads_kv=(16,), key_length=128, value_length=128, window=1024)
GPT_OSS = Shape(architecture="gpt-oss", layers=24, heads=(64,), heads_kv=(8,), key_length=64, value_length=64, window=128)
QWEN35 = Shape(
    architecture="qwen35",
    layers=64,
    heads=(24,),
    heads_kv=(4,),
    key_length=256,
    value_length=256,
    conv_kernel=4,
    state_size=128,
    state_groups=16,
    inner_size=6144,
)


def nemotron() -> Shape:
    """The published pattern of 52 layers: M is a state, E experts, * attention."""
    pattern = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
    assert (len(pattern), pattern.count("M"), pattern.count("E"), pattern.count("*")) == (52, 23, 23, 6)
    return Shape(
        architecture="nemotron_h_moe",
        layers=52,
        heads=tuple(32 if one == "*" else 0 for one in pattern),
        heads_kv=tuple(2 if one == "*" else 0 for one in pattern),
        feed_forward=tuple(1856 if one == "E" else 0 for one in pattern),
        key_length=128,
        value_length=128,
        conv_kernel=4,
        state_size=128,
        state_groups=8,
        inner_size=4096,
    )


def mib(shape: Shape, context: int, slots: int = 1, *, unified: bool = False, **more: object) -> float:
    cells = memory.cut(context, slots, unified=unified)
    found = memory.cache_bytes(shape, memory.Cache(cells=cells, slots=slots, unified=unified, **more))  # type: ignore[arg-type]
    assert found is not None
    return found / MIB


def test_every_case_has_its_test() -> None:
    cases = yaml.safe_load(_CASES.read_text("utf-8"))["cases"]
    assert len(cases) == 8
    starts = tuple(f"test_{case['id'].split('-')[0]}_" for case in cases)
    assert {start for start in starts if any(name.startswith(start) for name in globals())} == set(starts)


def test_k01_llama_3_1_8b() -> None:
    assert mib(LLAMA8, 131072) == 16384
    assert mib(LLAMA8, 131072, 4, unified=True) == 16384
    assert mib(LLAMA8, 131072, key_type="q8_0", value_type="q8_0") == 8704


def test_k02_a_head_is_not_embedding_by_heads() -> None:
    qwen = Shape(architecture="qwen3moe", layers=48, heads=(32,), heads_kv=(4,), embedding=2048, key_length=128, value_length=128)
    assert mib(qwen, 40960) == 3840
    derived = Shape(architecture="qwen3moe", layers=48, heads=(32,), heads_kv=(4,), embedding=2048)
    assert mib(derived, 40960) == 1920, "only a header without lengths is read so"


@pytest.mark.parametrize(("kind", "wanted"), [("f16", 1040.0), ("q8_0", 552.5), ("q4_0", 292.5)])
def test_k03_measured_types(kind: str, wanted: float) -> None:
    assert mib(MISTRAL, 6656, key_type=kind, value_type=kind) == wanted
    assert mib(MISTRAL, 32768) == 5120


def test_k04_windows_cost_slots_and_batches() -> None:
    assert mib(GEMMA, 32768) == 2560 + 624
    assert mib(GEMMA, 32768, 4, unified=True) == 2560 + 1872
    assert mib(GEMMA, 32768, 4, unified=True, ubatch=2048) == 2560 + 2496
    assert mib(GEMMA, 32768, whole_window=True) == 15872
    assert mib(GEMMA, 32768, key_type="q8_0", value_type="q8_0") == 1360 + 331.5
    full = [index for index, layer in enumerate(layers.layers(GEMMA) or ()) if not layer.windowed]
    assert full == list(range(5, 62, 6))


def test_k06_gpt_oss_measured() -> None:
    windows = sum(layer.windowed for layer in layers.layers(GPT_OSS) or ())
    assert windows == 12
    assert mib(GPT_OSS, 131072) == 3072 + 18
    assert mib(GPT_OSS, 131072, 4, unified=True) == 3072 + 24


def test_k08_no_heads_does_not_mean_a_state() -> None:
    shape = nemotron()
    held = layers.layers(shape) or ()
    assert (sum(one.recurrent for one in held), sum(bool(one.key_elements) for one in held)) == (23, 6)
    state = layers.state_elements(shape) * 4 * 23 / MIB
    assert state == pytest.approx(46.0 + 1.617, abs=0.001)
    assert mib(shape, 32768) == pytest.approx(192 + state)
    assert mib(shape, 131072) == pytest.approx(768 + state)
    assert mib(shape, 131072, 4, unified=True) == pytest.approx(768 + 190.5, abs=0.1)


def test_k09_cells_of_a_state_are_sequences() -> None:
    assert mib(QWEN35, 32768, 3, unified=True) == pytest.approx(2048 + 432.00 + 16.875)
    held = layers.layers(QWEN35) or ()
    assert sum(one.recurrent for one in held) == 48
    drafting = Shape(
        **{name: getattr(QWEN35, name) for name in ("architecture", "heads", "heads_kv", "conv_kernel", "state_size")}, layers=65
    )
    assert layers.layers(drafting) is None, "without the size of a state nothing is computed"


MODEL = material.Model(
    name="big",
    files=(material.File(sha256="1" * 64, size_bytes=1, file_name="big.gguf"),),
    context=40_000,
    architecture="llama",
    # 122 KiB a token, as the case's log has it: 61 layers of 1024 elements of keys and of values would be 244.
    shape=Shape(architecture="llama", layers=61, heads=(8,), heads_kv=(4,), key_length=128, value_length=128, weights_bytes=8 << 30),
)


def options(**more: object) -> settings.Serve:
    return settings.Serve.model_validate({"name": "smol", "model": "big", "port": 8080, **more})


def test_d10_one_entry_is_larger_than_the_limit() -> None:
    """The prompt cache's limit does not bound a single entry: the largest counts when it is more."""
    small = memory.need(options(context=4096, cache_ram_mib=2048), MODEL)
    large = memory.need(options(context=40_000, cache_ram_mib=2048), MODEL)
    assert small is not None
    assert large is not None
    assert small.prompt_cache_bytes == 2048 * MIB
    assert large.prompt_cache_bytes == large.entry_bytes == large.cache_bytes > 3462.85 / 28960 * 40_000 * MIB
    none = memory.need(options(context=40_000, cache_ram_mib=0), MODEL)
    assert none is not None
    assert none.prompt_cache_bytes == 0
    (words,) = memory.check("titan", options(context=40_000), {"big": MODEL}, 16 << 30, None)
    assert "for its prompt cache" in words
    on_card = memory.check("titan", options(context=40_000), {"big": MODEL}, 4 << 30, 80 << 30)
    assert on_card == ["titan: the server smol may take 4.68 GiB for its prompt cache, and there are 4.00 GiB of memory"]


@pytest.mark.parametrize(
    ("context", "slots", "unified", "total"),
    [(8192, 4, True, 8192), (4096, 4, False, 4 * 1024), (5000, 3, False, 3 * 1792), (5000, 3, True, 5120), (256, 1, False, 256)],
)
def test_a_context_is_cut_as_llama_cpp_cuts_it(context: int, slots: int, unified: bool, total: int) -> None:
    assert memory.cut(context, slots, unified=unified) * (1 if unified else slots) == total


@pytest.mark.parametrize(
    "shape",
    [
        Shape(),
        Shape(architecture="llama"),
        Shape(architecture="brand-new", layers=4, heads=(4,), heads_kv=(4,), embedding=64),
        Shape(architecture="llama", layers=4, heads=(4,), heads_kv=(4,), embedding=64, window=4096),
        Shape(architecture="llama", layers=4, heads=(4,), heads_kv=(4, 4), embedding=64),
        Shape(architecture="qwen3", layers=4, heads=(4,), heads_kv=(4,), embedding=64, other=("attention.indexer.head_count",)),
        Shape(architecture="gemma4", layers=4, heads=(4,), heads_kv=(4,), embedding=64, window=512),
        Shape(architecture="nemotron_h", layers=4, heads_kv=(0, 2, 0, 2), state_size=4, inner_size=4),
        Shape(architecture="llama", layers=10**9, heads=(4,), heads_kv=(4,), embedding=64),
    ],
    ids=str,
)
def test_what_is_not_known_stays_unknown(shape: Shape) -> None:
    assert memory.cache_bytes(shape, memory.Cache(cells=4096)) is None


def test_shared_layers_latent_rows_and_encoders() -> None:
    shared = Shape(
        architecture="gemma4",
        layers=6,
        heads=(8,),
        heads_kv=(2, 2, 4, 2, 2, 4),
        key_length=512,
        value_length=512,
        window_key_length=256,
        window_value_length=256,
        window=512,
        window_layers=(1, 1, 0, 1, 1, 0),
        shared_kv_layers=3,
    )
    held = layers.layers(shared) or ()
    assert [(one.key_elements, one.windowed) for one in held] == [
        (512, True),
        (512, True),
        (2048, False),
        (0, False),
        (0, False),
        (0, False),
    ]
    latent = Shape(architecture="deepseek2", layers=2, heads=(16,), heads_kv=(1,), key_length=576, value_length=512, latent_key_length=192)
    assert memory.cache_bytes(latent, memory.Cache(cells=256)) == 2 * 576 * 2 * 256
    assert memory.cache_bytes(Shape(architecture="bert", layers=12), memory.Cache(cells=512)) == 0


def test_a_row_that_no_block_fits_is_unknown() -> None:
    odd = Shape(architecture="llama", layers=1, heads=(1,), heads_kv=(1,), key_length=80, value_length=80)
    assert memory.cache_bytes(odd, memory.Cache(cells=256, key_type="q8_0")) is None
    assert memory.cache_bytes(odd, memory.Cache(cells=256)) == 160 * 2 * 256


def refused(server: settings.Serve, models: Mapping[str, material.Model], memory_bytes: int) -> errors.Problem:
    with pytest.raises(errors.Problem) as caught:
        memory.check("titan", server, models, memory_bytes, None)
    assert caught.value.code == "memory-short"
    assert caught.value.hint
    return caught.value


def test_an_absurd_context_is_refused_before_anything_is_touched() -> None:
    problem = refused(options(context=100_000_000), {"big": MODEL}, 64 << 30)
    assert "100,000,000" in problem.message or "trained for 40,000" in problem.message
    unknown = material.Model(name="big", files=MODEL.files, context=8192, architecture="brand-new")
    assert "trained for 8,192" in refused(options(context=100_000_000), {"big": unknown}, 64 << 30).message
    short = refused(options(context=400_000), {"big": MODEL}, 16 << 30)
    assert "16.0 GiB" in short.message
    assert short.context["needed_bytes"] == 61 * 1024 * 2 * 400_128


def test_what_is_tight_or_unknown_is_said_and_stops_nothing() -> None:
    assert memory.check("titan", options(context=4096), {"big": MODEL}, 64 << 30, None) == []
    assert memory.check("titan", options(context=4096), {"big": MODEL}, 0, None) == [], "an unknown memory is no small one"
    (tight,) = memory.check("titan", options(context=4096), {"big": MODEL}, 10 << 30, None)
    assert "10.0 GiB" in tight
    unknown = material.Model(name="big", files=MODEL.files, context=8192, architecture="brand-new")
    (words,) = memory.check("titan", options(context=4096), {"big": unknown}, 10 << 30, None)
    assert "'brand-new'" in words
    assert "llama-fit-params" in words
    held = options(context=4096, load_mode="mlock")
    assert "memory-short" in refused(held, {"big": MODEL}, 8 << 30).code


def test_a_draft_model_has_a_cache_of_its_own_and_a_router_only_what_it_may_load() -> None:
    small = material.Model(name="small", files=MODEL.files, context=40_000, architecture="llama", shape=MODEL.shape)
    target = material.Model(name="big", files=MODEL.files, context=40_000, architecture="llama", shape=MODEL.shape, draft="small")
    both = {"big": target, "small": small}
    assert memory.check("titan", options(context=4096, draft={}), both, 19 << 30, None) != []
    assert memory.check("titan", options(context=4096), both, 19 << 30, None) == []
    presets = [{"name": name, "model": "big", "context": 4096} for name in ("a", "b", "c")]
    router = settings.Serve.model_validate({"name": "all", "port": 8080, "router": {"models": presets, "max_loaded": 1}})
    assert memory.check("titan", router, both, 19 << 30, None) == []
    assert memory.check(
        "titan", router.model_copy(update={"router": settings.Router.model_validate({"models": presets})}), both, 19 << 30, None
    )


def test_a_card_s_memory_is_judged_only_when_all_of_the_model_is_there() -> None:
    whole = options(context=40_000, cache_ram_mib=0, gpu_layers="all")
    with pytest.raises(errors.Problem) as caught:
        memory.check("titan", whole, {"big": MODEL}, 64 << 30, 4 << 30)
    assert "of the GPU's memory" in caught.value.message
    (moved,) = memory.check("titan", options(context=40_000, cache_ram_mib=0), {"big": MODEL}, 64 << 30, 4 << 30)
    assert "of the GPU's memory" in moved, "llama.cpp would move layers to the host"
    for more in ({"gpu_layers": 20}, {"cpu_moe": "all"}):
        assert memory.check("titan", options(context=40_000, cache_ram_mib=0, **more), {"big": MODEL}, 64 << 30, 4 << 30) == []
    assert memory.check("titan", options(context=40_000, cache_ram_mib=0), {"big": MODEL}, 64 << 30, 0) == [], "a card of unknown size"
