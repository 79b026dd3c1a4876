"""How builds of llama-server spell the same thing: names that changed, and options that became another option with a value.

Which spelling a binary understands is read from its help, never from its number, so each row serves in both directions. Data, and the
few ways to look something up in it.
"""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from wattherd.records import dataclass
from wattherd.resources.flagging import manual

#: An option as it stands on a command line: its name, and the words that follow it.
Words = Tuple[str, ...]

#: One option under the names that it has had, the newest first. What follows it stays as it is.
SAME: Tuple[Tuple[str, ...], ...] = (
    ("--predict", "--n-predict", "-n"),
    ("--n-gpu-layers", "--gpu-layers", "-ngl"),
    ("--flash-attn", "-fa"),
    ("--load-mode", "-lm"),
    ("--direct-io", "-dio"),
    ("--no-direct-io", "-ndio"),
    ("--kv-unified", "-kvu"),
    ("--no-kv-unified", "-no-kvu"),
    ("--ui", "--webui"),
    ("--no-ui", "--no-webui"),
    ("--ui-config", "--webui-config"),
    ("--ui-config-file", "--webui-config-file"),
    ("--embeddings", "--embedding"),
    ("--reranking", "--rerank"),
    ("--ctx-checkpoints", "--swa-checkpoints", "-ctxcp"),
    ("--log-verbosity", "--verbosity", "-lv"),
    ("--typical-p", "--typical"),
    ("--top-n-sigma", "--top-nsigma"),
    ("--spec-draft-model", "--model-draft", "-md"),
    ("--spec-draft-n-max", "--draft-max", "--draft-n", "--draft"),
    ("--spec-draft-n-min", "--draft-min", "--draft-n-min"),
    ("--spec-draft-p-min", "--draft-p-min"),
    ("--spec-draft-p-split", "--draft-p-split"),
    ("--spec-draft-ngl", "--n-gpu-layers-draft", "--gpu-layers-draft", "-ngld"),
    ("--spec-draft-device", "--device-draft", "-devd"),
    ("--spec-draft-threads", "--threads-draft", "-td"),
    ("--spec-draft-threads-batch", "--threads-batch-draft", "-tbd"),
    ("--spec-draft-type-k", "--cache-type-k-draft", "-ctkd"),
    ("--spec-draft-type-v", "--cache-type-v-draft", "-ctvd"),
    ("--spec-draft-cpu-moe", "--cpu-moe-draft", "-cmoed"),
    ("--spec-draft-n-cpu-moe", "--n-cpu-moe-draft", "-ncmoed"),
    ("--spec-draft-override-tensor", "--override-tensor-draft", "-otd"),
)


@dataclass(frozen=True)
class Turn:
    """One option of today, and the options that say the same to binaries that do not know it. No old ones: there it needs no saying."""

    new: Words
    old: Tuple[Words, ...] = ()


#: Where several rows fit, the first one speaks to an older binary; to a newer one, the row that explains the most words.
TURNS: Tuple[Turn, ...] = (
    # Before there were load modes the model was mapped unless --no-mmap said otherwise, and --mlock only locked what was mapped.
    Turn(("--load-mode", "mmap+mlock"), (("--mmap",), ("--mlock",))),
    Turn(("--load-mode", "mlock"), (("--mlock",), ("--no-mmap",))),
    Turn(("--load-mode", "mlock"), (("--mlock",),)),
    Turn(("--load-mode", "dio"), (("--direct-io",),)),
    Turn(("--load-mode", "dio"), (("--direct-io",), ("--no-mmap",))),
    Turn(("--load-mode", "mmap"), (("--mmap",),)),
    Turn(("--load-mode", "none"), (("--no-mmap",),)),
    Turn(("--load-mode", "auto"), ()),
    Turn(("--flash-attn", "on"), (("--flash-attn",),)),
    Turn(("--flash-attn", "off"), ()),
    Turn(("--flash-attn", "auto"), ()),
    # More layers than there are means all of them.
    Turn(("--n-gpu-layers", "all"), (("--n-gpu-layers", "999"),)),
    Turn(("--spec-draft-ngl", "all"), (("--spec-draft-ngl", "999"),)),
    # Where a draft model alone turned speculation on, there was no such type to name.
    Turn(("--spec-type", "draft-simple"), ()),
)

#: What Wattherd sets by itself and what makes no difference to a binary that does not know it: it has nothing there to switch off or bound.
NEGLIGIBLE = frozenset(("--no-ui", "--offline", "--sse-ping-interval", "--cache-ram", "--tags"))

_GROUPS: Dict[str, Tuple[str, ...]] = {name: group for group in SAME for name in group}


def names(name: str) -> Tuple[str, ...]:
    """Every name that this option has had, the newest first."""
    return _GROUPS.get(manual.plain(name), (manual.plain(name),))


def newest(words: Words) -> Words:
    return (names(words[0])[0], *words[1:]) if words else words


def arity(name: str, known: manual.Manual) -> Optional[int]:
    """How many words follow this name on a command line, whichever build's spelling it is; None when nobody knows it."""
    for other in names(name):
        entry = known.find(other)
        if entry is not None:
            return entry.arity
    first = names(name)[0]
    counts = [len(words) - 1 for turn in TURNS for words in (turn.new, *turn.old) if words[0] == first]
    return max(counts) if counts else None
