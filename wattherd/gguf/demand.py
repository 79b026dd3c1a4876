"""What a file asks of the llama.cpp that loads it: an architecture, a pre-tokenizer, tensor types. Compared with the words in a binary.

Pure: the words come through a function. A kind of word that cannot be found in a binary at all (a compiler may store short ones as
numbers) is no evidence, so some that every build has known for long are looked for first.
"""

from __future__ import annotations

from typing import Callable, Tuple

from wattherd.records import dataclass

Holds = Callable[[str], bool]
_CONTROLS = {
    "architecture": ("llama", "falcon", "gpt2", "starcoder", "bert"),
    "pre-tokenizer": ("llama-bpe", "deepseek-llm", "starcoder", "command-r", "gpt-2"),
    "tensor type": ("q4_0", "q4_1", "q5_0", "q8_0", "q6_K"),
}
#: As many of the controls as must be there before the absence of a word means something.
_ENOUGH = 4


@dataclass(frozen=True)
class Demand:
    """'' and () ask nothing. Tensor types are called as in `tables`."""

    architecture: str = ""
    pre_tokenizer: str = ""
    tensor_types: Tuple[str, ...] = ()


def lacking(demand: Demand, holds: Holds) -> Tuple[str, ...]:
    """What the binary does not know, each with its kind: ("the pre-tokenizer 'gpt-4o'",)."""
    wanted = [("architecture", demand.architecture), ("pre-tokenizer", demand.pre_tokenizer)]
    wanted += [("tensor type", _spelled(name)) for name in demand.tensor_types]
    found = []
    for kind, word in wanted:
        if word and word != "default" and not holds(word) and _can_tell(kind, holds):
            found.append(f"the {kind} '{word}'")
    return tuple(found)


def _can_tell(kind: str, holds: Holds) -> bool:
    return sum(holds(word) for word in _CONTROLS[kind]) >= _ENOUGH


def _spelled(name: str) -> str:
    """Q4_K -> q4_K, as ggml writes it; a type that has no name here cannot be looked for."""
    return "" if name.startswith("type ") else name.lower().replace("_k", "_K")
