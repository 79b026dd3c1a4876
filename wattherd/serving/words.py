"""Typed options -> the words of llama-server's command line, in the newest build's spelling. A node translates them for its binary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wattherd import material

if TYPE_CHECKING:
    from wattherd.inventory import settings


def option_words(options: settings.Options, model: material.Model) -> tuple[tuple[str, ...], ...]:
    """One option each, its value after it. Slots and unified KV are always written out: their defaults depend on each other."""
    given: list[tuple[str, object]] = [
        ("--model", model.path),
        ("--parallel", options.slots),
        ("--cache-ram", options.cache_ram_mib),
        ("--ctx-size", options.context),
        ("--batch-size", options.batch),
        ("--ubatch-size", options.ubatch),
        ("--threads", options.threads),
        ("--flash-attn", options.flash_attention),
        ("--cache-type-k", options.cache_type_k),
        ("--cache-type-v", options.cache_type_v),
        ("--n-gpu-layers", options.gpu_layers),
    ]
    words: list[tuple[str, ...]] = [(name, str(value)) for name, value in given if value is not None]
    words.append(("--kv-unified",) if options.kv_unified else ("--no-kv-unified",))
    return tuple(words)
