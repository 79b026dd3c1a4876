"""What is odd about one server's options although nothing forbids it, in words for a person; and what cannot work on any build. Pure.

Knows how llama-server shares a context among its slots (its total, each one's part) and which combinations fail late or answer slowly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wattherd import errors

if TYPE_CHECKING:
    from wattherd.inventory import settings

_WHOLE = frozenset(("f32", "f16", "bf16"))
#: llama-server's own physical batch, where none is given.
_UBATCH = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Tokens of one server: in total, for one request at most, and for one when all slots are busy. 0 is unknown."""

    total: int
    request: int
    crowded: int
    slots: int

    @property
    def words(self) -> str:
        if not self.total:
            return f"context: as the model was trained, {_slots(self.slots)}"
        shared = " (shared)" if self.crowded < self.request else ""
        return f"context: {self.total:,} tokens in total, {self.request:,} per request{shared}, {_slots(self.slots)}"


def context(options: settings.Options, trained: int = 0) -> Context:
    """`trained` is what the model's header says; 0 is unknown."""
    request = options.slot_context(trained)
    total = request if options.kv_unified else request * options.slots
    crowded = total // options.slots
    return Context(total=total, request=request, crowded=crowded, slots=options.slots)


def refuse(label: str, options: settings.Options) -> None:
    """`inventory-invalid` for what llama-server only finds out after it has loaded the whole model."""
    if options.flash_attention == "off" and (options.cache_type_v or "f16") not in _WHOLE:
        raise errors.Problem(
            "inventory-invalid",
            f"{label}: cache_type_v {options.cache_type_v} needs flash attention, and flash_attention is off",
            hint="flash_attention: on, or cache_type_v: f16",
        )


def refuse_gpu(label: str, options: settings.Options, *, has_gpu: bool) -> None:
    """Layers or cards that were meant for a GPU, on a host whose build has none: that would be a slow success. RPC brings others' cards."""
    wanted = [f"gpu_layers {options.gpu_layers}"] if options.gpu_layers not in {None, 0, "auto"} else []
    wanted += [f"devices {', '.join(options.devices)}"] if options.devices else []
    if wanted and not has_gpu and not options.rpc:
        raise errors.Problem(
            "inventory-invalid",
            f"{label}: {wanted[0]} on a host whose llama.cpp is built for its CPU alone",
            hint="llama_cpp: {backend: cuda} where a card is, or take it out of this host's serve:",
        )


def warnings(options: settings.Options, trained: int = 0, *, promised: int = 0) -> tuple[str, ...]:
    """`promised` is the context that clients were told they have for one request; 0 is none."""
    found = context(options, trained)
    return tuple(
        words
        for words in (
            _shared(found),
            _promise(found, promised),
            _beyond(found, trained),
            _output(options, found),
            _batches(options, found),
            _idle(options),
        )
        if words
    )


def _shared(found: Context) -> str:
    if found.slots == 1 or not found.total or found.crowded == found.request:
        return ""
    return (
        f"{found.slots} slots share {found.total:,} tokens and each may take them all: oversubscribed {found.slots} times. When they are "
        f"full, every running request ends with an error; {found.crowded:,} tokens a request are safe"
    )


def _promise(found: Context, promised: int) -> str:
    if not promised or not found.request or promised <= found.request:
        return ""
    return (
        f"one request gets {found.request:,} of the {found.total:,} tokens (the total is shared out to {_slots(found.slots)}), "
        f"and {promised:,} are promised: longer prompts are refused. context: {promised * found.slots} gives each slot that much"
    )


def _beyond(found: Context, trained: int) -> str:
    if not trained or found.request <= trained:
        return ""
    return f"a request may have {found.request:,} tokens, and the model was trained on {trained:,}: answers beyond that degrade"


def _output(options: settings.Options, found: Context) -> str:
    if options.kind != "chat":
        return ""
    if options.output_cap is None:
        return "no output_cap: one answer that never ends takes its slot until its context is full"
    budget = found.request - options.output_cap
    if found.request and budget < options.output_cap:
        return f"output_cap {options.output_cap:,} leaves {budget:,} of {found.request:,} tokens for the prompt"
    return ""


def _batches(options: settings.Options, found: Context) -> str:
    ubatch = options.ubatch or _UBATCH
    if options.kind != "chat" and found.request > ubatch:
        return f"a text beyond {ubatch:,} tokens (ubatch) is refused by a model that reads it as a whole; one may have {found.request:,}"
    if options.batch is not None and ubatch > options.batch:
        return f"ubatch {ubatch:,} is more than batch {options.batch:,}: llama-server uses the smaller one"
    return ""


def _idle(options: settings.Options) -> str:
    if options.sleep_idle_s is None:
        return ""
    return "sleep_idle_s gives back weights and cache, but the process keeps its hold on the card, and idle watts with it"


def _slots(count: int) -> str:
    return f"{count} slots" if count > 1 else "one slot"
