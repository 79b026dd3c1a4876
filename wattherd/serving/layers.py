"""Which layers of a model hold what in memory: a whole context, a window of it, a state of fixed size, or nothing. Pure.

Known architectures only, by the rules of llama.cpp 11434 (src/models/*, create_memory). For every other the answer is None: the node's
own llama-fit-params knows, and a guess would be worse than no number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wattherd.gguf.shape import Shape

#: Plain attention in every layer. Heads may differ from layer to layer; no key of another kind may be in the header.
_PLAIN = frozenset(
    (
        *("apertus", "arcee", "arctic", "baichuan", "bitnet", "bloom", "chatglm", "codeshell", "command-r", "dbrx", "deci", "deepseek"),
        *("deepseek2", "dots1", "ernie4_5", "ernie4_5-moe", "exaone", "falcon", "gemma", "gpt2", "gptneox", "granite", "granitemoe"),
        *("grok", "hunyuan-dense", "hunyuan-moe", "internlm2", "jais", "llama", "maincoder", "minicpm", "minimax-m2", "mistral3", "mpt"),
        *("nemotron", "olmo", "olmo2", "olmoe", "openelm", "orion", "pangu-embedded", "phi2", "phi3", "phimoe", "plamo", "qwen", "qwen2"),
        *("qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe", "refact", "seed_oss", "smollm3", "stablelm", "starcoder"),
        *("starcoder2", "xverse"),
    )
)
#: Every n-th layer sees the whole context, the others a window. The file may say another period, or one flag a layer.
_PERIODS = {"gemma2": 2, "gemma3": 6, "gemma3n": 5, "cohere2": 4, "gpt-oss": 2, "olmo2": 4}
_FLAGGED = frozenset(("gemma4", "granite_swa"))
#: gemma3n's layers from here on use the keys and values of earlier ones; the file does not say so.
_OWN_KV = {"gemma3n": 20}
_WINDOWS = {"gemma2": 4096}
#: Encoders and diffusion models keep nothing between two tokens.
_WITHOUT = frozenset(("bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3", "eurobert"))
_WITHOUT_TOO = frozenset(("gemma-embedding", "dream", "llada", "llada-moe", "rnd1"))
_INTERVAL = 4


@dataclass(frozen=True, slots=True)
class Layer:
    """Elements of one cell (one token) of keys and of values; `windowed` ones keep only the window's cells. `recurrent` is a state."""

    key_elements: int = 0
    value_elements: int = 0
    windowed: bool = False
    recurrent: bool = False


def layers(shape: Shape) -> tuple[Layer, ...] | None:
    """One entry a layer, in order; None for an architecture or a header that is not known well enough."""
    count = shape.layers - shape.draft_layers
    if shape.architecture in _WITHOUT | _WITHOUT_TOO:
        return ()
    if not 0 < count <= 4096 or shape.other:
        return None
    kind = _kind(shape)
    if kind is None:
        return None
    made: list[Layer] = []
    for index in range(count):
        one = kind(shape, index, count)
        if one is None:
            return None
        made.append(one)
    return tuple(made)


def window_of(shape: Shape) -> int:
    return shape.window or _WINDOWS.get(shape.architecture, 0)


def state_elements(shape: Shape) -> int:
    """Of one recurrent layer and one sequence: the convolution's past, and the state itself."""
    past = max(0, shape.conv_kernel - 1) * (shape.inner_size + 2 * shape.state_groups * shape.state_size)
    return past + shape.state_size * shape.inner_size


_Kind = Callable[[Shape, int, int], "Layer | None"]


def _kind(shape: Shape) -> _Kind | None:
    if shape.architecture in _RECURRENT:
        return _RECURRENT[shape.architecture] if shape.inner_size and shape.state_size else None
    windowed = shape.architecture in {*_PERIODS, *_FLAGGED}
    if windowed and window_of(shape):
        return _windowed
    plain = shape.architecture in _PLAIN or (shape.architecture == "gemma3" and not shape.window)
    # A window that this architecture is not known to use, or a latent that it should not have: better ask the node.
    return _plain if plain and not shape.window and not shape.shared_kv_layers else None


def _plain(shape: Shape, index: int, _count: int) -> Layer | None:
    return _attention(shape, index, windowed=False)


def _windowed(shape: Shape, index: int, count: int) -> Layer | None:
    own = _OWN_KV.get(shape.architecture, count - shape.shared_kv_layers)
    if index >= own:
        return Layer()
    flags = shape.window_layers
    if len(flags) > 1:
        return _attention(shape, index, windowed=bool(flags[index])) if index < len(flags) else None
    if shape.architecture in _FLAGGED:
        return None
    period = flags[0] if flags else _PERIODS[shape.architecture]
    return _attention(shape, index, windowed=period == 0 or index % period < period - 1)


def _attention(shape: Shape, index: int, *, windowed: bool) -> Layer | None:
    heads, heads_kv = _at(shape.heads, index), _at(shape.heads_kv or shape.heads, index)
    if heads_kv is None:
        return None
    own = shape.embedding // heads if heads else 0
    key, value = shape.key_length or own, shape.value_length or own
    if windowed:
        key, value = shape.window_key_length or key, shape.window_value_length or value
    if heads_kv and not (key and value):
        return None
    if shape.latent_key_length:
        # Latent attention keeps one row of latent and position for all heads, and no values.
        return Layer(key_elements=heads_kv * key) if shape.key_length else None
    return Layer(key_elements=heads_kv * key, value_elements=heads_kv * value, windowed=windowed)


def _by_interval(shape: Shape, index: int, _count: int) -> Layer | None:
    flags = shape.recurrent_layers
    if flags:
        recurrent = _at(flags, index)
        return None if recurrent is None else (Layer(recurrent=True) if recurrent else _attention(shape, index, windowed=False))
    recurrent_here = (index + 1) % (shape.attention_interval or _INTERVAL) != 0
    return Layer(recurrent=True) if recurrent_here else _attention(shape, index, windowed=False)


def _by_heads(shape: Shape, index: int, _count: int) -> Layer | None:
    heads_kv = _at(shape.heads_kv, index)
    if heads_kv is None:
        return None
    return _attention(shape, index, windowed=False) if heads_kv else Layer(recurrent=True)


def _by_heads_and_feed_forward(shape: Shape, index: int, _count: int) -> Layer | None:
    """No heads does not mean recurrent: a layer without heads and with a feed-forward part is nothing but experts."""
    heads_kv, wide = _at(shape.heads_kv, index), _at(shape.feed_forward, index)
    if heads_kv is None or wide is None:
        return None
    if wide:
        return Layer()
    return _attention(shape, index, windowed=False) if heads_kv else Layer(recurrent=True)


def _both(shape: Shape, index: int, _count: int) -> Layer | None:
    held = _attention(shape, index, windowed=False)
    return held and Layer(held.key_elements, held.value_elements, recurrent=True)


def _state_only(_shape: Shape, _index: int, _count: int) -> Layer | None:
    return Layer(recurrent=True)


_RECURRENT: dict[str, _Kind] = {
    "qwen3next": _by_interval,
    "qwen35": _by_interval,
    "qwen35moe": _by_interval,
    "nemotron_h": _by_heads_and_feed_forward,
    "nemotron_h_moe": _by_heads_and_feed_forward,
    "jamba": _by_heads,
    "granitehybrid": _by_heads,
    "falcon-h1": _both,
    "mamba": _state_only,
    "mamba2": _state_only,
}


def _at(values: tuple[int, ...], index: int) -> int | None:
    """One value for all layers, or this layer's own."""
    if len(values) == 1:
        return values[0]
    return values[index] if index < len(values) else None
