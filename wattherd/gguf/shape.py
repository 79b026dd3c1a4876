"""What of a header decides how much memory a model takes: layers, heads, windows, states. Numbers as they stand there; no arithmetic.

0 and () are unknown. `heads_kv`, `feed_forward` and `heads` have one value for all layers, or one a layer.
"""

from __future__ import annotations

from typing import Tuple

from wattherd.gguf import reader
from wattherd.records import dataclass


@dataclass(frozen=True, kw_only=True)
class Shape:
    """`window_layers` is the file's own pattern: one flag a layer, or its period. `other` are keys whose effect is not known here."""

    architecture: str = ""
    layers: int = 0
    draft_layers: int = 0
    embedding: int = 0
    vocabulary: int = 0
    weights_bytes: int = 0
    heads: Tuple[int, ...] = ()
    heads_kv: Tuple[int, ...] = ()
    feed_forward: Tuple[int, ...] = ()
    key_length: int = 0
    value_length: int = 0
    window_key_length: int = 0
    window_value_length: int = 0
    window: int = 0
    window_layers: Tuple[int, ...] = ()
    latent_rank: int = 0
    latent_key_length: int = 0
    shared_kv_layers: int = 0
    attention_interval: int = 0
    recurrent_layers: Tuple[int, ...] = ()
    conv_kernel: int = 0
    state_size: int = 0
    state_groups: int = 0
    inner_size: int = 0
    other: Tuple[str, ...] = ()


_NUMBERS = {
    "layers": "block_count",
    "draft_layers": "nextn_predict_layers",
    "embedding": "embedding_length",
    "vocabulary": "vocab_size",
    "key_length": "attention.key_length",
    "value_length": "attention.value_length",
    "window_key_length": "attention.key_length_swa",
    "window_value_length": "attention.value_length_swa",
    "window": "attention.sliding_window",
    "latent_rank": "attention.kv_lora_rank",
    "latent_key_length": "attention.key_length_mla",
    "shared_kv_layers": "attention.shared_kv_layers",
    "attention_interval": "full_attention_interval",
    "conv_kernel": "ssm.conv_kernel",
    "state_size": "ssm.state_size",
    "state_groups": "ssm.group_count",
    "inner_size": "ssm.inner_size",
}
_LISTS = {
    "heads": "attention.head_count",
    "heads_kv": "attention.head_count_kv",
    "feed_forward": "feed_forward_length",
    "window_layers": "attention.sliding_window_pattern",
    "recurrent_layers": "attention.recurrent_layers",
}
#: Beginnings of keys that mean a cache or a state of another kind.
_OTHER = ("attention.indexer.", "attention.compress", "compress_ratios", "wkv.", "shortconv.", "token_shift_count", "kda.", "rwkv.")


def of(raw: reader.Raw, architecture: str) -> Shape:
    found: dict[str, int] = {field: raw.number(f"{architecture}.{key}") or 0 for field, key in _NUMBERS.items()}
    lists: dict[str, Tuple[int, ...]] = {field: _numbers(raw, f"{architecture}.{key}") for field, key in _LISTS.items()}
    if raw.vocabulary is not None:
        found["vocabulary"] = raw.vocabulary.count
    start = f"{architecture}."
    other = sorted(key[len(start) :] for key in raw.values if key.startswith(tuple(start + one for one in _OTHER)))
    return Shape(architecture=architecture, weights_bytes=raw.weights_bytes, other=tuple(other[:16]), **found, **lists)  # type: ignore[arg-type]


def _numbers(raw: reader.Raw, key: str) -> Tuple[int, ...]:
    kept = raw.arrays.get(key)
    if kept is not None:
        return kept
    value = raw.values.get(key)
    if isinstance(value, bool):
        return (int(value),)
    number = raw.number(key)
    return () if number is None else (number,)
