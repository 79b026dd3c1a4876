"""Will it fit? What a server needs of a machine's memory, from its model's shape and its options. Pure.

Exact where a formula is (weights, keys and values, recurrent states); a rule of thumb for compute buffers; None, never a guess, for a
model whose layers are not known. llama.cpp itself never refuses an absurd context: the kernel ends it, or another process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wattherd import errors, material, units
from wattherd.gguf.shape import Shape
from wattherd.serving import layers

if TYPE_CHECKING:
    from wattherd.inventory import settings

_MIB = 1024 * 1024
_CELLS = 256
_UBATCH = 512
_BATCH = 2048
#: Bytes of a block of 32 elements.
_BLOCK_BYTES = {"f32": 128, "f16": 64, "bf16": 64, "q8_0": 34, "q5_1": 24, "q5_0": 22, "q4_1": 20, "q4_0": 18, "iq4_nl": 18}
_BLOCK = 32
_COMPUTE_BYTES = 300 * _MIB
#: Position scaling stretches a context to a few times of what was trained; beyond this it is a slip of the hand.
_MOST_STRETCHED = 16
#: Above this share of a memory an operator should know.
_TIGHT = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """How the context is cut up. `cells` are of one stream; `slots` sequences share one stream when it is `unified`."""

    cells: int
    slots: int = 1
    unified: bool = False
    ubatch: int = _UBATCH
    key_type: str = "f16"
    value_type: str = "f16"
    whole_window: bool = False

    @property
    def streams(self) -> int:
        return 1 if self.unified else self.slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Bytes of one server. `cache_bytes` are keys, values and states; `entry_bytes` the largest state of one sequence.

    `prompt_cache_bytes` is host memory whatever the model runs on: the limit does not bound a single entry.
    """

    weights_bytes: int
    cache_bytes: int
    entry_bytes: int
    compute_bytes: int
    prompt_cache_bytes: int = 0
    resident: bool = False

    @property
    def fixed_bytes(self) -> int:
        """What cannot be given back to the kernel: mapped weights can."""
        return self.cache_bytes + (self.weights_bytes if self.resident else 0)

    @property
    def model_bytes(self) -> int:
        return self.weights_bytes + self.cache_bytes + self.compute_bytes


def cut(context: int, slots: int, *, unified: bool) -> int:
    """Cells of one stream: llama.cpp rounds up to 256, once for the whole and once for each slot."""
    whole = _padded(context)
    return whole if unified else _padded(whole // slots)


def cache_bytes(shape: Shape, cache: Cache) -> int | None:
    """Keys, values and states of all slots; None where the layers are not known."""
    found = layers.layers(shape)
    if found is None:
        return None
    window = _padded(min(cache.cells, layers.window_of(shape) * (cache.slots if cache.unified else 1) + cache.ubatch))
    total = 0
    for layer in found:
        cells = window if layer.windowed and not cache.whole_window else cache.cells
        keys, values = _row_bytes(layer.key_elements, cache.key_type), _row_bytes(layer.value_elements, cache.value_type)
        if keys is None or values is None:
            return None
        total += (keys + values) * cells * cache.streams
        total += layers.state_elements(shape) * 4 * cache.slots if layer.recurrent else 0
    return total


def need(options: settings.Options, model: material.Model) -> Need | None:
    """Of one server process without its draft model."""
    shape, context = model.shape, options.context or model.context
    if not context or not shape.weights_bytes:
        return None
    ubatch = min(options.ubatch or _UBATCH, options.batch or _BATCH)
    cells = cut(context, options.slots, unified=options.kv_unified)
    cache = Cache(
        cells=cells,
        slots=options.slots,
        unified=options.kv_unified,
        ubatch=ubatch,
        key_type=options.cache_type_k or "f16",
        value_type=options.cache_type_v or "f16",
        whole_window="--swa-full" in options.extra_flags,
    )
    held = cache_bytes(shape, cache)
    if held is None:
        return None
    entry = cache_bytes(shape, Cache(cells=cells, ubatch=ubatch, key_type=cache.key_type, value_type=cache.value_type)) or 0
    return Need(
        weights_bytes=shape.weights_bytes,
        cache_bytes=held,
        entry_bytes=entry,
        compute_bytes=max(_COMPUTE_BYTES, 8 * ubatch * shape.vocabulary),
        prompt_cache_bytes=max(options.cache_ram_mib * _MIB, entry) if options.cache_ram_mib else 0,
        resident=options.load_mode in {"none", "mlock", "mmap+mlock", "dio"},
    )


def check(where: str, server: settings.Serve, models: Mapping[str, material.Model], memory_bytes: int, card_bytes: int | None) -> list[str]:
    """Warnings in words; `memory-short` for what cannot work. `card_bytes` is the memory of the GPUs that the model runs on, None for none.

    0 bytes of memory are unknown, and nothing is said then. A model that is shared out between card and host is not judged.
    """
    words: list[str] = []
    wanted: list[Need] = []
    for options, model in _served(server, models):
        _check_stretch(where, server.name, options, model)
        for one in _with_draft(options, model, models):
            found = need(*one)
            if found is None:
                words.append(
                    f"{where}: how much memory {one[1].name} takes is not known here (architecture '{one[1].architecture or 'unknown'}'): "
                    "on the node, llama-fit-params -fitp on -m FILE -c CONTEXT says it"
                )
            else:
                wanted.append(found)
    if server.router is not None:
        wanted = sorted(wanted, key=lambda one: one.model_bytes, reverse=True)[: server.router.max_loaded or None]
    prompts = sum(one.prompt_cache_bytes for one in wanted)
    if card_bytes is not None:
        shared_out = any(one.gpu_layers not in {None, "all", "auto"} or one.cpu_moe is not None for one in server.presets)
        # Left to itself llama.cpp moves layers to the host until the rest fits: slow, and to be known, but no failure.
        firm = all(one.gpu_layers == "all" for one in server.presets)
        words += _judge(where, server, wanted, 0 if shared_out else card_bytes, "of the GPU's memory", 0, firm=firm)
        words += _judge(where, server, [], memory_bytes, "of memory", prompts)
    else:
        words += _judge(where, server, wanted, memory_bytes, "of memory", prompts)
    return words


def _judge(
    where: str, server: settings.Serve, wanted: Iterable[Need], total_bytes: int, word: str, prompt_bytes: int, *, firm: bool = True
) -> Iterator[str]:
    needs = list(wanted)
    fixed, model = sum(one.fixed_bytes for one in needs), sum(one.model_bytes for one in needs)
    if not total_bytes:
        return
    if firm and fixed > total_bytes:
        contexts = units.size(sum(one.cache_bytes for one in needs))
        raise errors.Problem(
            "memory-short",
            f"{where}: the server {server.name} would take {units.size(fixed)} {word} ({contexts} for its context alone), "
            f"and there are {units.size(total_bytes)}",
            hint="a smaller context:, fewer slots:, or cache_type_k and cache_type_v of fewer bits (q8_0)",
            needed_bytes=fixed,
            total_bytes=total_bytes,
        )
    if model + prompt_bytes > total_bytes * _TIGHT:
        parts = f"{units.size(model)} for models and contexts" if needs else ""
        parts += (" and " if parts and prompt_bytes else "") + (f"{units.size(prompt_bytes)} for its prompt cache" if prompt_bytes else "")
        yield f"{where}: the server {server.name} may take {parts}, and there are {units.size(total_bytes)} {word}"


def _served(server: settings.Serve, models: Mapping[str, material.Model]) -> Iterator[tuple[settings.Options, material.Model]]:
    if server.router is not None:
        yield from ((one, models[one.model]) for one in server.router.models)
    elif server.model is not None:
        yield server, models[server.model]


def _with_draft(
    options: settings.Options, model: material.Model, models: Mapping[str, material.Model]
) -> Iterator[tuple[settings.Options, material.Model]]:
    """A draft model has a cache of its own, as long as its target's."""
    yield options, model
    if options.draft is not None and model.draft in models:
        context = options.context or model.context
        yield options.model_copy(update={"context": context or None, "cache_ram_mib": 0, "draft": None}), models[model.draft]


def _check_stretch(where: str, server: str, options: settings.Options, model: material.Model) -> None:
    asked, trained = options.slot_context(model.context), model.context
    if trained and asked > _MOST_STRETCHED * trained:
        raise errors.Problem(
            "memory-short",
            f"{where}: {server} asks for a context of {asked:,} tokens, and {model.name} was trained for {trained:,}",
            hint="write context: with what you need in all slots together",
        )


def _row_bytes(elements: int, kind: str) -> int | None:
    blocks, rest = divmod(elements, _BLOCK)
    if rest and kind not in {"f32", "f16", "bf16"}:
        return None
    return blocks * _BLOCK_BYTES[kind] + rest * _BLOCK_BYTES[kind] // _BLOCK


def _padded(cells: int) -> int:
    return -(-cells // _CELLS) * _CELLS
